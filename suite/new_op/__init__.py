"""Writes skeletons of a new operation from the files in `templates/`."""
