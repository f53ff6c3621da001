"""Memory that a worker and an external process share."""

from __future__ import annotations

import os

import pytest
import torch

from suite.external.shared_memory import allocate, attach


def test_shared_memory_cannot_be_cut_since_reading_it_would_end_the_worker() -> None:
    shared = allocate(8192, torch.device("cpu"))
    assert shared.descriptor is not None
    for nbytes in (0, 4096, 16384):
        with pytest.raises(PermissionError):
            os.truncate(f"/proc/self/fd/{shared.descriptor}", nbytes)
    (mapped,) = attach([shared.block], [os.dup(shared.descriptor)], torch.device("cpu"))
    mapped.fill_(7)
    assert int(shared.bytes.sum(dtype=torch.int64)) == 7 * 8192
