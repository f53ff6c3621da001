"""The identity of an implementation in messages between processes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ExternalReference:
    """All that another process needs to load one version of a user's file; see `ExternalImplementation`."""

    name: str
    path: str
    framework: str
    deterministic: bool
    digest: str
    line: int | None


Reference = str | ExternalReference
"""A built-in implementation is identified by its name alone."""


def name_of(reference: Reference) -> str:
    """The implementation's name in tables: `triton/persistent`, `with/mine`."""
    return reference if isinstance(reference, str) else reference.name
