"""The types of the parameters of `python -m suite compare`, as Typer has parsed them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from suite.runner.options import Sustain


class Parameters(TypedDict):
    """The parameters of `compare` by name. A command line has the options that operations declare too, by their names.

    Names in a list may have commas between them.
    """

    operations: Sequence[str] | None
    op: Sequence[str] | None
    reference: Path | None
    kernelbench: Path | None
    gpumode: Path | None
    impl: Sequence[str] | None
    exclude: Sequence[str] | None
    files: Sequence[Path] | None
    dtype: Sequence[str] | None
    precision: Sequence[str] | None
    shape: Sequence[str] | None
    shapes_file: Path | str | None
    """A file; in the parameters that are kept with results, the digests of its contents."""
    model: Path | None
    tokens: Sequence[str] | None
    weights: str
    inputs: Sequence[str] | None
    device: str | None
    gpus: str | None
    cluster: str
    insecure: bool
    cache: str
    sweep: bool
    sustained: Sustain
    transfers: bool
    compiles: bool
    profile: str
    count: bool
    dump: Sequence[str] | None
    once: str
    no_time: bool
    strict: bool
    max_noise: float
    """In percent."""
    min_time: float
    """In seconds."""
    samples: int
    repeat: int
    seed: int
    timeout: float
    """In seconds."""
    out: Path | None
    publish: bool
    resume: bool
    force: bool
    commit: str
    columns: Sequence[str] | None
    sort: str
    wide: bool
    quiet: bool
    baseline: str
    file_format: str
    as_json: bool
