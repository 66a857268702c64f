"""Image files, lists and arrays, read into labelled images."""
