"""The options of `compare` on what it prints and on the formats of its files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from suite.cli.messages import say
from suite.core.errors import UsageError
from suite.core.names import unknown

if TYPE_CHECKING:
    from suite.results.render import View

FORMATS = ("csv", "parquet")


@dataclass(frozen=True)
class Output:
    """The options of a run's tables, and the formats of its files."""

    view: View
    quiet: bool
    as_json: bool
    file_format: str
    strict: bool

    def check(self) -> None:
        """Raise `UsageError` for a name that does not exist or a package that is not installed."""
        from suite.results import parquet

        self.view.check()
        if self.file_format not in FORMATS:
            raise UsageError(f"--format: {unknown(self.file_format, FORMATS)}")
        if self.file_format == "parquet":
            parquet.check()

    @property
    def tables(self) -> bool:
        """True if tables and summaries go to stdout."""
        return not (self.quiet or self.as_json)

    def remark(self, message: str) -> None:
        """Print a message on stderr, unless the run is quiet."""
        if not self.quiet:
            say(message)
