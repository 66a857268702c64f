"""A classifier on disk that grows with the photos it is given."""
