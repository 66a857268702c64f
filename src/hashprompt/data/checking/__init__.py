"""Checks of a data set before a run, and a contact sheet."""
