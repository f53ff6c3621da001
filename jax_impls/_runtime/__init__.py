"""Argument checks and Mosaic helpers that implementations of this folder share."""
