"""Runs of one card, night after night: what got slower in two runs in a row, and a site of static pages."""
