"""linear_cross_entropy for Hopper on a CPU: the kernels' own text, with TMA, mbarriers and wgmma emulated."""

from __future__ import annotations

import pytest
import torch
from thinning import thorough_unless

from cuda_ref.linear_cross_entropy import wgmma
from suite import ops
from suite.checking.judge import judge

# T, V, H; columns of a block
CASES = [
    pytest.param((40, 72, 64), 72, id="one block, all logits in dweight"),
    pytest.param((40, 200, 48), 80, id="three blocks, the last one short"),
    pytest.param((70, 136, 24), 64, id="more rows than features: some logits are computed twice"),
]


@pytest.mark.slow(seconds=20)
@pytest.mark.parametrize(
    ("shape", "columns", "family"),
    [
        pytest.param(*case.values, family, id=f"{family}-{case.id}", marks=thorough_unless(number == place))
        for number, family in enumerate(("normal", "peaked", "ignore_index"))
        for place, case in enumerate(CASES)
    ],
)
def test_losses_and_gradients_agree(
    emulated: None,
    nan_outputs: None,
    monkeypatch: pytest.MonkeyPatch,
    shape: tuple[int, int, int],
    columns: int,
    family: str,
) -> None:
    monkeypatch.setattr(wgmma, "_columns", lambda *_: columns)
    monkeypatch.setattr(wgmma, "TILES", (2,))  # no cluster
    wgmma._plan.cache_clear()
    op = ops.get("linear_cross_entropy")
    case = op.case(shape, "bfloat16", inputs=family)
    inputs = op.make_inputs(case, 1, torch.device("cpu"))
    outputs = wgmma.linear_cross_entropy(*inputs, **op.arguments(case))
    out = torch.cat([each.flatten().double() for each in outputs])
    verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype=op.output_dtype(case))
    wgmma._plan.cache_clear()
    assert verdict.agrees, verdict.reason


@pytest.mark.parametrize(("T", "V", "H"), [(4096, 128_256, 4096), (8192, 128_256, 4096), (4096, 151_936, 3584)])
def test_memory_is_a_tenth_of_inputs_and_results(T: int, V: int, H: int) -> None:
    columns = wgmma._columns(T, V, H, 132, None)
    assert columns % 256 == 0
    assert 2 * T * columns + 4 * T * H <= (4 * T * H + 4 * V * H) / 10


def test_few_rows_take_larger_blocks() -> None:
    assert wgmma._columns(16, 32_000, 4096, 132, None) == 32_000
