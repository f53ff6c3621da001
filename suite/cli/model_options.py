"""Options of `compare --model`: a transformer's layer for several numbers of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from suite.cli.options import split
from suite.core.errors import UsageError
from suite.numerics.formats import DTYPES

if TYPE_CHECKING:
    from suite.models.workload import Workload

DEFAULT_TOKENS = ("1", "64", "4096")
DEFAULT_LENGTH = 4096
MAX_TOKENS = 1 << 24

ModelOption = Annotated[
    Path | None,
    typer.Option(
        "--model", metavar="FILE", help="Instead of --op: a layer of the model in a Hugging Face config.json."
    ),
]
TokensOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tokens",
        metavar="LIST",
        help="Numbers of new tokens for --model; 1@8192 is one new token in a sequence of 8192. "
        f"Default: {','.join(DEFAULT_TOKENS)}, each in a sequence of at least {DEFAULT_LENGTH}.",
    ),
]
WeightsOption = Annotated[
    str,
    typer.Option(
        "--weights",
        metavar="FORM",
        help="Number format of the weights: fp8 (a scale for each 128 x 128), int4 (groups of 128) or plain. "
        "Default: that of the configuration.",
    ),
]


def layers_of(model: Path | None, tokens: list[str] | None, weights: str = "") -> tuple[Workload, ...]:
    """A layer of `model` for each entry of `--tokens`. Empty without a model. weights: `--weights`, or empty.

    An encoder has no cache, so all tokens of its sequence are new.
    Raises `UsageError` for a file that is no known configuration, and for entries that are no numbers or contradict it.
    """
    if model is None:
        for flag in [*(["--tokens"] if tokens is not None else []), *(["--weights"] if weights else [])]:
            raise UsageError(f"{flag} needs --model, which was not given; e.g. --model config.json")
        return ()
    from suite.models.config import is_causal, workload

    cached, entries = is_causal(model), dict.fromkeys(split(tokens) or DEFAULT_TOKENS)
    counts = [_counts(text, cached=cached) for text in entries]
    return tuple(workload(model, 1, length, new, weights) for new, length in counts)


def operations_of(workloads: Sequence[Workload]) -> list[str]:
    return list(dict.fromkeys(name for each in workloads for name in each.operations))


def own_dtype(workloads: Sequence[Workload]) -> list[str] | None:
    """The type that the model's configuration names, if the operations have it."""
    dtypes = {each.dtype for each in workloads} & set(DTYPES)
    return sorted(dtypes) or None


def _counts(text: str, *, cached: bool) -> tuple[int, int]:
    """The new tokens and all tokens of the sequence that an entry such as `64` or `1@8192` means."""
    new, at, length = text.partition("@")
    if at and not cached:
        raise UsageError(f"--tokens {text}: the model is an encoder, all its tokens are new; give {new}")
    if not all(each.isdecimal() and 0 < int(each) <= MAX_TOKENS for each in (new, length or new)) or text.endswith("@"):
        raise UsageError(f"--tokens {text!r}: must be numbers from 1 to {MAX_TOKENS}, such as 1,64,4096 or 1@8192")
    if at and int(new) > int(length):
        raise UsageError(f"--tokens {text}: {new} new tokens are more than the {length} of the sequence")
    return int(new), int(length) if at else max(int(new), DEFAULT_LENGTH if cached else 0)
