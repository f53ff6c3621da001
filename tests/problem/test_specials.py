"""Special numbers in one operand."""

from __future__ import annotations

import pytest
import torch

from suite import ops
from suite.core.errors import UsageError
from suite.problem import specials

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", specials.names(6))
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_one_operand_is_special_and_the_others_are_as_usual(name: str, dtype: str) -> None:
    op, position = ops.get("lstm"), int(name[-1])
    usual, found = (op.make_inputs(op.case((2, 3, 5, 4), dtype, inputs=each), 0, CPU) for each in ("normal", name))
    changed = found[position]
    assert changed.dtype == usual[position].dtype
    match specials.kind_of(name):
        case "nan":
            (at,) = changed.isnan().nonzero().tolist()
            assert at[-1] == (0 if dtype == "float16" else changed.shape[-1] - 1)
        case "infinity":
            rows, columns = changed.reshape(-1, changed.shape[-1]).isinf().nonzero().unbind(1)
            assert len(rows) == 2
            assert rows[0] == rows[1]
            assert columns.diff().item() in (1, changed.shape[-1] - 1)
        case "subnormal":
            assert bool((changed.abs() < torch.finfo(changed.dtype).tiny).all())
            assert bool(changed.any())
    assert all(torch.equal(one, other) for one, other in zip(usual[:position], found[:position], strict=True))


def test_they_combine_with_layouts_and_unknown_ones_are_refused() -> None:
    op = ops.get("matmul")
    a, b = op.make_inputs(op.case((5, 6, 7), inputs="nan@1+transposed/padded"), 0, CPU)
    assert (bool(a.isnan().any()), bool(b.isnan().any())) == (False, True)
    assert (a.stride(), b.stride()) == ((1, 5), (7, 1))
    for name in ("nan@", "nan@x", "zero@1"):
        with pytest.raises(UsageError, match=r"valid are .*in one operand, as nan@0"):
            op.family(name)


def test_an_operand_without_elements_stays_empty() -> None:
    op = ops.get("matmul")
    a, _ = op.make_inputs(op.case((0, 3, 0), inputs="infinity@0"), 0, CPU)
    assert a.shape == (0, 0)
