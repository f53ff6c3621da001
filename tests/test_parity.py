"""Every implementation of every operation agrees with float64 at sizes that break kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from suite import backends, ops
from suite.device import Device
from suite.op import DTYPES, Case
from suite.worker import Worker


def ragged_cases(name: str) -> Iterator[Case]:
    """Every ragged size in every dtype and arithmetic; causal or not; layouts in turn."""
    op = ops.get(name)
    kinds = [(dtype, precision) for dtype in DTYPES for precision in op.precisions(dtype)]
    for position, shape in enumerate(op.ragged):
        for dtype, precision in kinds:
            for causal in (False, True) if op.causal else (None,):
                layout = op.layouts[position % len(op.layouts)] if op.layouts else None
                yield op.case(shape, dtype, precision, causal=causal, layout=layout)


PARAMETERS = [
    pytest.param(implementation, case, id=f"{name}-{implementation.name}-{case.label}-{case.dtype}-{case.precision}")
    for name in ops.names()
    for implementation in backends.implementations(name)
    for case in ragged_cases(name)
]


@pytest.fixture(scope="session")
def worker(device: str) -> Worker:
    if device == "cuda":
        import torch

        where = Device("cuda", 0, torch.cuda.get_device_name(0), torch.cuda.get_device_capability(0))
    else:
        where = Device("cpu", name="CPU")
    for name in backends.backends():
        backends.backend(name).prepare(where)
    return Worker(where, lambda document: None)


@pytest.mark.parametrize(("implementation", "case"), PARAMETERS)
def test_agrees_with_float64(worker: Worker, implementation: backends.Implementation, case: Case) -> None:
    obstacle = implementation.obstacle(worker.device)
    if obstacle is not None:
        pytest.skip(f"{obstacle[0]}: {obstacle[1]}")
    result = worker.check(case, implementation.name, seed=1)
    if result["status"] == "unsupported":
        pytest.skip(f"unsupported: {result['reason']}")
    assert result["status"] == "ok", f"{result['reason']} (error / bound {result['error_ratio']:.3g})"
    assert result["error_ratio"] <= 1
