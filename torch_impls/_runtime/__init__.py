"""Argument checks, precision and compilation that implementations of this folder share."""
