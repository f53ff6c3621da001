"""Where an operation of a user's file comes from, so that another process finds the same one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["reference", "kernelbench"]


@dataclass(frozen=True)
class Source:
    """One version of a file that defines an operation.

    path: absolute. kind: how the file says what is computed. digest: the beginning of the SHA-256 of the file and of
    those beside it that it uses.
    """

    path: str
    kind: Kind
    digest: str

    @property
    def name(self) -> str:
        """The file's name, for messages."""
        return Path(self.path).name
