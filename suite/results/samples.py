"""Writes and reads the raw samples beside a table: `<operation>.samples.npz`, which has no pickled objects.

These arrays have one entry for each row: `operation`, `case`, `dtype`, `precision`, `device`, `implementation` (text)
and `count` (int64). `device_us` (float64) has the samples of all rows, one row after the other.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from suite.core.errors import ResultsError
from suite.core.files import MAX_RESULT_BYTES, read_regular
from suite.core.text import one_line
from suite.results.row import Key, Row

SUFFIX = ".samples.npz"
KEY = ("operation", "case", "dtype", "precision", "device", "implementation")
"""The parts of `Row.key`."""
COUNT, VALUES = "count", "device_us"
DAMAGE = (
    *(OSError, ValueError, TypeError, KeyError, AttributeError, EOFError),
    *(OverflowError, MemoryError, NotImplementedError, SyntaxError, RuntimeError, struct.error),
)
"""Errors of `numpy.load` and of the modules under it on damaged files."""


def to_npz(rows: Iterable[Row]) -> bytes:
    """The contents of a file with the samples of `rows`. Rows without samples are left out."""
    import numpy as np

    sampled = [row for row in rows if row.sample_us]
    arrays: dict[str, Any] = {
        name: np.array([row.key[place] for row in sampled], dtype=str) for place, name in enumerate(KEY)
    }
    arrays[COUNT] = np.array([len(row.sample_us) for row in sampled], dtype=np.int64)
    arrays[VALUES] = np.array([us for row in sampled for us in row.sample_us], dtype=np.float64)
    contents = io.BytesIO()
    np.savez_compressed(contents, **arrays)
    return contents.getvalue()


def _contents(path: Path) -> bytes:
    """The file. Raises `ValueError` if it is larger once unpacked than a file that is read."""
    from zipfile import ZipFile

    contents = read_regular(path, MAX_RESULT_BYTES)
    with ZipFile(io.BytesIO(contents)) as archive:
        if sum(each.file_size for each in archive.infolist()) > MAX_RESULT_BYTES:
            raise ValueError(f"it has more than {MAX_RESULT_BYTES >> 20} MiB once it is unpacked")
    return contents


def read_samples(path: Path) -> dict[Key, tuple[float, ...]]:
    """The samples by the keys of their rows; empty if there is no file. Raises `ResultsError` for a damaged file."""
    import zlib
    from zipfile import BadZipFile

    import numpy as np

    try:
        with np.load(io.BytesIO(_contents(path))) as file:
            keys = list(zip(*(file[name].tolist() for name in KEY), strict=True))
            counts, values = file[COUNT].tolist(), file[VALUES].tolist()
        if len(counts) != len(keys) or min(counts, default=0) < 0 or sum(counts) != len(values):
            raise ValueError("counts and samples do not match")
    except FileNotFoundError:
        return {}
    except (*DAMAGE, BadZipFile, zlib.error) as error:
        raise ResultsError(
            f"{path}: no readable file of samples ({one_line(error)[:80]}); remove it to go on without them"
        ) from error
    found, begin = {}, 0
    for key, count in zip(keys, counts, strict=True):
        found[key] = tuple(values[begin : begin + count])
        begin += count
    return found
