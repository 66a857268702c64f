"""Streams of tasks: their names, their images, and how images are cut into tasks."""
