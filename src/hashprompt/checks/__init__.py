"""Checks that every method must pass, ours and yours."""
