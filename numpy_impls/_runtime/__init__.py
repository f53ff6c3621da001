"""Argument checks that implementations of this folder share."""
