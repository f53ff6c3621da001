"""The file of a user's operation, identified so that another process finds the same version."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["reference", "kernelbench", "gpumode"]


@dataclass(frozen=True)
class Source:
    """One version of a file that defines an operation.

    path: absolute. kind: the form of the definition. digest: the beginning of the SHA-256 of the file and of the
    neighbouring files that it uses.
    """

    path: str
    kind: Kind
    digest: str

    @property
    def name(self) -> str:
        """The file's name, for messages."""
        return Path(self.path).name
