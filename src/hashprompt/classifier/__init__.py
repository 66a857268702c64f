"""A classifier on disk that learns from photos as they arrive."""
