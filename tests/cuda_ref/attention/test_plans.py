"""Plans of attention/wgmma.cu: the model that chooses one, and each of them on a CPU, with TMA and wgmma emulated."""

from __future__ import annotations

import itertools
import math
import re

import pytest
import torch

from cuda_ref import build
from cuda_ref.attention._hopper import scales, strides
from cuda_ref.attention._plan import PLANS, Plan, Problem, best, predicted_us, tile_steps
from cuda_ref.attention.wgmma import run
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
    text = (build.HERE / "attention/wgmma.cu").read_text()
    of_file: dict[int, list[tuple[int, int, int]]] = {}
    for each in re.findall(r"Plan<(\d+, \d+, [^>]*)>", text):
        D, consumers, keys, _, _, *teams = (part.strip() for part in each.split(","))
        of_file.setdefault(int(D), []).append((64 * int(consumers), int(keys), int(teams[0]) if teams else 1))
    assert of_file == {D: [(each.BLOCK_M, each.BLOCK_N, each.teams) for each in PLANS[D]] for D in PLANS}


def test_steps_are_those_of_visible_keys() -> None:
    for S_q, S_k, causal in itertools.product((1, 64, 65, 700), (1, 64, 300, 1000), (False, True)):
        x = Problem(64, causal, S_q, S_k, 1, 132)
        for plan in PLANS[64]:
            expected = []
            for first in range(0, S_q, plan.BLOCK_M):
                last = min(first + plan.BLOCK_M, S_q) - 1
                visible = min(last + S_k - S_q + 1, S_k) if causal else S_k
                if visible > 0:
                    expected.append(-(-visible // plan.BLOCK_N))
            assert tile_steps(plan, x) in (expected, [1, *expected])  # one row of tiles may end at the first key


def test_predictions_grow_with_the_work() -> None:
    for D, causal in itertools.product(PLANS, (False, True)):
        for plan in PLANS[D]:
            times = [predicted_us(plan, Problem(D, causal, S, S, 64, 132)) for S in (1, 100, 512, 1000, 4096, 16384)]
            assert times == sorted(times)
            assert times[0] > 0
            few, many = (predicted_us(plan, Problem(D, causal, 512, 512, heads, 132)) for heads in (1, 1000))
            assert few < many


def test_teams_compute_short_sequences_and_large_steps_long_ones() -> None:
    def chosen(D: int, causal: bool, S: int) -> Plan:
        return PLANS[D][best(Problem(D, causal, S, S, 16384 // S * 2048 // D, 132))]

    for causal in (False, True):
        assert chosen(64, causal, 1024).teams > 1
        assert chosen(64, causal, 16384).teams == 1
        assert chosen(128, causal, 16384).BLOCK_N > chosen(128, causal, 1024).BLOCK_N


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(("D", "plan"), NUMBERED)
@pytest.mark.parametrize(("size", "dtype"), CASES)
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


def check_statistics(plan: int, D: int, S_q: int, S_k: int, causal: bool, device: torch.device) -> None:
    """lse and delta of a plan, beside float64."""
    random = torch.Generator(device).manual_seed(1)
    shapes = ((2, 4, S_q, D), (2, 2, S_k, D), (2, 2, S_k, D), (2, 4, S_q, D))
    q, k, v, do = (torch.randn(shape, generator=random, device=device).to(torch.bfloat16) for shape in shapes)
    padded = -(-S_q // 128) * 128
    lse, delta = (torch.full((2, 4, padded), torch.nan, device=device) for _ in range(2))
    build.launch(
        "attention/wgmma", "attention_statistics", device, q, k, v, do, lse, delta, 2, 4, 2, S_q, S_k, D,
        *(stride for x in (q, k, v, do) for stride in strides(x)), padded, causal, scales(D, None)[1], plan,
        build.DTYPES[q.dtype],
    )  # fmt: skip
    keys, values = (x.double().repeat_interleave(2, 1) for x in (k, v))
    scores = q.double() @ keys.mT * scales(D, None)[1]
    if causal:
        last = torch.arange(S_q, device=device)[:, None] + S_k - S_q
        scores = scores.masked_fill(torch.arange(S_k, device=device) > last, -torch.inf)
    sums = torch.logsumexp(scores * math.log(2), -1) / math.log(2)
    weights = torch.exp2(scores - sums[..., None]).nan_to_num(0)
    expected = ((weights @ values) * do.double()).sum(-1)
    seen = sums > -torch.inf
    torch.testing.assert_close(lse[:, :, :S_q], sums.where(seen, torch.inf).float(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(delta[:, :, :S_q], expected.float(), rtol=0.02, atol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("D", "plan"), [each for each in NUMBERED if each[0] <= 128])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_statistics_emulated(emulated: None, D: int, plan: int, causal: bool) -> None:
    for S_q, S_k in ((150, 290), (400, 70)):
        check_statistics(plan, D, S_q, S_k, causal, torch.device("cpu"))


@pytest.mark.gpu
@pytest.mark.parametrize(("D", "plan"), [each for each in NUMBERED if each[0] <= 128])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_statistics(hopper: torch.device, D: int, plan: int, causal: bool) -> None:
    for S_q, S_k in ((150, 290), (1400, 70), (4000, 3900)):
        check_statistics(plan, D, S_q, S_k, causal, hopper)
