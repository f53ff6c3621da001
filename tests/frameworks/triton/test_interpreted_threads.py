"""A product in Triton's interpreter is one of small blocks: it has one thread, whatever other libraries have."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from suite import frameworks, hardware
from suite.hardware import threads


@pytest.mark.parametrize(("interpreted", "expected"), [("1", 1), ("0", 3)])
def test_an_interpreted_call_has_one_thread_of_blas(
    monkeypatch: pytest.MonkeyPatch, interpreted: str, expected: int
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", interpreted)
    np.ones((2, 2)) @ np.ones((2, 2))

    def counts(*_: object) -> set[int]:
        """The numbers of threads of all libraries: SciPy, if it is imported, has one of its own."""
        return {count() for count, _ in threads._openblas()}

    with hardware.blas_threads_set(3):
        called = frameworks.get("triton").called_with(counts, (torch.ones(1),))
        assert called(torch.ones(1)) == {expected}
        assert counts() == {3}
