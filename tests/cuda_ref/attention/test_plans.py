"""Plans of attention/wgmma.cu: the choice of one, and each of them on a CPU, with TMA and wgmma emulated."""

from __future__ import annotations

import math
import re

import pytest
import torch
from thinning import covering_values, thorough_unless

from cuda_ref import build
from cuda_ref.attention._hopper import scales, strides
from cuda_ref.attention._plan import PLANS, choose
from cuda_ref.attention.wgmma import attention, run
from suite import ops
from suite.checking.judge import judge

NUMBERED = [(D, number) for D in PLANS for number in range(len(PLANS[D]))]
# B, H, H_kv, S_q, S_k: ragged, with groups of heads and several tiles a team; queries that see no key
CASES = [
    pytest.param((1, 4, 2, 150, 290), "bfloat16", id="ragged"),
    pytest.param((1, 2, 1, 150, 290), "float16", id="float16"),
    pytest.param((1, 3, 1, 400, 70), "bfloat16", id="queries without keys"),
    pytest.param((1, 1, 1, 900, 70), "bfloat16", id="fewer tiles than blocks"),
]


def test_the_plans_are_those_of_the_kernel() -> None:
    text = (build.HERE / "attention/wgmma.cuh").read_text()
    of_file: dict[int, list[tuple[int, int, int]]] = {}
    for each in re.findall(r"Plan<(\d+, \d+, [^>]*)>", text):
        D, consumers, keys, _, _, *teams = (part.strip() for part in each.split(","))
        of_file.setdefault(int(D), []).append((64 * int(consumers), int(keys), int(teams[0]) if teams else 1))
    assert of_file == {D: [(each.BLOCK_M, each.BLOCK_N, each.teams) for each in PLANS[D]] for D in PLANS}


CHOICES = {  # D, causal, S_q, S_k, heads -> BLOCK_M, BLOCK_N: the faster plan on an H200 with 132 multiprocessors
    (64, False, 512, 512, 1024): (64, 128),  # short rows
    (64, True, 1024, 1024, 512): (64, 128),
    (64, False, 5059, 5059, 5): (64, 128),  # few tiles
    (64, False, 4096, 4096, 128): (192, 128),
    (64, True, 8192, 8192, 64): (192, 128),
    (128, False, 350, 350, 552): (128, 176),  # 352 keys with padding, instead of 384
    (128, False, 512, 512, 512): (128, 128),
    (128, False, 5059, 5059, 5): (128, 176),
    (128, True, 700, 700, 276): (128, 128),
    (256, True, 700, 700, 276): (128, 64),
}


@pytest.mark.parametrize("sizes", CHOICES, ids=str)
def test_the_choice_by_sizes(sizes: tuple[int, bool, int, int, int]) -> None:
    plan = PLANS[sizes[0]][choose(*sizes, 132)]
    assert CHOICES[sizes] == (plan.BLOCK_M, plan.BLOCK_N)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each plan in each case, with and without a mask; in `make test` each of these once."""
    if metafunc.function.__name__ == "test_every_plan_emulated":
        rows = [(case.id, numbered, masked) for case in CASES for numbered in NUMBERED for masked in ("full", "causal")]
        kept = covering_values(rows)
        values = {case.id: case.values for case in CASES}
        metafunc.parametrize(
            ("size", "dtype", "D", "plan", "causal"),
            [
                pytest.param(
                    *values[name],
                    D,
                    plan,
                    masked == "causal",
                    id=f"{name}-{D}-{plan}-{masked}",
                    marks=thorough_unless((name, (D, plan), masked) in kept),
                )
                for name, (D, plan), masked in rows
            ],
        )


@pytest.mark.slow
def test_every_plan_emulated(
    emulated: None, nan_outputs: None, size: tuple[int, ...], D: int, plan: int, causal: bool, dtype: str
) -> None:
    op = ops.get("attention")
    case = op.case((*size, D), dtype, causal=causal)
    inputs = op.make_inputs(case, 1, torch.device("cpu"))
    out = run(plan, *inputs, causal=causal)
    verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype=dtype)
    assert verdict.agrees, verdict.reason
    assert torch.equal(run(plan, *inputs, causal=causal), out)


WINDOWED = [pytest.param(D, plan, id=f"{D}-{plan}") for D, plan in ((64, 0), (64, 1), (128, 0))]
"""D and the plans that have windows."""


@pytest.mark.slow
@pytest.mark.parametrize(("D", "plan"), WINDOWED)
def test_windows_emulated(emulated: None, nan_outputs: None, D: int, plan: int) -> None:
    """Windows within a step, of several steps with unmasked ones between, and with queries that see no key."""
    op = ops.get("attention")
    for size, window in (((1, 2, 1, 210, 700), 300), ((1, 1, 1, 200, 150), 20)):
        case = op.case((*size, D), "bfloat16", window=window)
        inputs = op.make_inputs(case, 1, torch.device("cpu"))
        out = run(plan, *inputs, causal=True, window=window)
        verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype="bfloat16")
        assert verdict.agrees, verdict.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("D", "plan"),
    [pytest.param(*each.values, id=each.id, marks=thorough_unless(each is WINDOWED[0])) for each in WINDOWED],
)
def test_statistics_of_windows_emulated(emulated: None, D: int, plan: int) -> None:
    check_statistics(plan, D, 150, 470, True, torch.device("cpu"), window=100)


@pytest.mark.gpu
@pytest.mark.parametrize(("D", "plan"), WINDOWED)
@pytest.mark.parametrize("window", [1, 100, 128, 1024, 4000])
def test_windows(hopper: torch.device, nan_outputs: None, D: int, plan: int, window: int) -> None:
    op = ops.get("attention")
    for size in ((1, 2, 1, 300, 517), (2, 4, 2, 517, 300), (1, 40, 8, 3000, 3000)):
        near = window if window < size[4] else 0
        case = op.case((*size, D), "bfloat16", window=window)
        inputs = op.make_inputs(case, 1, hopper)
        out = run(plan, *inputs, causal=True, window=near)
        verdict = judge(out, op.truth(inputs, case), shape=op.output_shape(case), dtype="bfloat16")
        assert verdict.agrees, verdict.reason
        assert torch.equal(run(plan, *inputs, causal=True, window=near), out)


def check_statistics(
    plan: int, D: int, S_q: int, S_k: int, causal: bool, device: torch.device, window: int = 0
) -> None:
    """lse and delta of a plan, beside float64."""
    random = torch.Generator(device).manual_seed(1)
    shapes = ((2, 4, S_q, D), (2, 2, S_k, D), (2, 2, S_k, D), (2, 4, S_q, D))
    q, k, v, do = (torch.randn(shape, generator=random, device=device).to(torch.bfloat16) for shape in shapes)
    padded = -(-S_q // 128) * 128
    lse, delta = (torch.full((2, 4, padded), torch.nan, device=device) for _ in range(2))
    build.launch(
        "attention/wgmma", "attention_statistics", device, q, k, v, do, lse, delta, 2, 4, 2, S_q, S_k, D,
        *(stride for x in (q, k, v, do) for stride in strides(x)), padded, causal, scales(D, None)[1], plan, window,
        build.DTYPES[q.dtype],
    )  # fmt: skip
    keys, values = (x.double().repeat_interleave(2, 1) for x in (k, v))
    scores = q.double() @ keys.mT * scales(D, None)[1]
    if causal:
        last = torch.arange(S_q, device=device)[:, None] + S_k - S_q
        keys_at = torch.arange(S_k, device=device)
        scores = scores.masked_fill((keys_at > last) | (keys_at <= last - (window or S_q + S_k)), -torch.inf)
    sums = torch.logsumexp(scores * math.log(2), -1) / math.log(2)
    weights = torch.exp2(scores - sums[..., None]).nan_to_num(0)
    expected = ((weights @ values) * do.double()).sum(-1)
    seen = sums > -torch.inf
    torch.testing.assert_close(lse[:, :, :S_q], sums.where(seen, torch.inf).float(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(delta[:, :, :S_q], expected.float(), rtol=0.02, atol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("D", "plan", "causal"),
    [
        pytest.param(D, plan, causal, marks=thorough_unless(causal and D == 64))
        for D, plan in NUMBERED
        for causal in (False, True)
        if D <= 128
    ],
)
def test_statistics_emulated(emulated: None, D: int, plan: int, causal: bool) -> None:
    for S_q, S_k in ((150, 290), (400, 70)):
        check_statistics(plan, D, S_q, S_k, causal, torch.device("cpu"))


@pytest.mark.gpu
@pytest.mark.parametrize(("D", "plan"), [each for each in NUMBERED if each[0] <= 128])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_statistics(hopper: torch.device, D: int, plan: int, causal: bool) -> None:
    for S_q, S_k in ((150, 290), (1400, 70), (4000, 3900)):
        check_statistics(plan, D, S_q, S_k, causal, hopper)


def test_shapes_are_checked_before_the_window() -> None:
    q = torch.zeros(1, 1, 8, 64, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="so k must be"):
        attention(q, q[0, 0], q, causal=True, window=3)
