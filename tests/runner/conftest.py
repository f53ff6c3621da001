"""Fixtures of the runner's tests."""

from scripted_worker import compare  # noqa: F401 (a fixture)
