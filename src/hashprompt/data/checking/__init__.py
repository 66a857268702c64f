"""A data set looked at before a run: what is wrong with it, and a contact sheet."""
