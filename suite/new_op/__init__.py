"""Skeletons of a new operation, from the files in `templates/`."""
