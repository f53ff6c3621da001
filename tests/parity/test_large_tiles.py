"""matmul at a size with large tiles, in every layout: a compiler may make other code of them than of small ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from suite import ops
from suite.checking.check import check
from suite.checking.problem import Problem
from suite.implementations import builtin
from suite.implementations.builtin import Implementation

if TYPE_CHECKING:
    from suite.hardware.device import Device

OP = ops.get("matmul")


@pytest.mark.gpu
@pytest.mark.parametrize("layout", OP.options[0].values)
@pytest.mark.parametrize(("dtype", "precision"), [("bfloat16", "ieee"), ("float32", "tf32"), ("float32", "ieee")])
@pytest.mark.parametrize("implementation", builtin.implementations("matmul"), ids=lambda each: each.name)
def test_large_tiles_agree(
    where: Device, implementation: Implementation, dtype: str, precision: str, layout: str
) -> None:
    case = OP.case((2048, 2304, 1024), dtype, precision, layout=layout)
    obstacle = implementation.obstacle(where, case)
    if obstacle is not None:
        pytest.skip(f"{obstacle[0]}: {obstacle[1]}")
    problem = Problem(case, 1, torch.device(where.type))
    try:
        found = check(implementation.function, implementation.adapter, problem)
    except NotImplementedError as error:
        pytest.skip(f"unsupported: {error}")
    assert found.agrees, f"{found.reason} (error / bound {found.error_ratio:.3g})"
