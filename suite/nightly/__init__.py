"""Nightly runs of one card: judges the last one against those before, and writes a site of static pages."""
