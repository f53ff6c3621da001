"""The bound of a user's reference accepts right results and refuses wrong ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from custom_files import CPU, HEAD, operation, verdict

from suite.checking.problem import Problem
from suite.core.errors import SuiteError
from suite.numerics.bounds import student_deviations

Function = Callable[..., torch.Tensor]

SOFTMAX = HEAD + "shapes = ['M=8,N=400']\ndef reference(x: Float[Tensor, 'M N']):\n    return torch.softmax(x, 1)\n"
PRODUCT = (
    HEAD + "shapes = ['M=24,N=24,K=256']\ndtypes = 'float32'\n"
    "def reference(a: Float[Tensor, 'M K'], b: Float[Tensor, 'K N']):\n    return torch.relu(a @ b - 1)\n"
)
NORM = (
    HEAD + "shapes = ['M=8,N=96']\ndtypes = ('float32',)\n"
    "def reference(x: Float[Tensor, 'M N'], w: Float[Tensor, 'N']):\n"
    "    return torch.nn.functional.layer_norm(x, x.shape[1:], w)\n"
)


def low(function: Function, dtype: torch.dtype) -> Function:
    return lambda *inputs: function(*(each.to(dtype) for each in inputs)).to(inputs[0].dtype)


def explicit(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x.float() - x.float().amax(1, keepdim=True))
    return (e / e.sum(1, keepdim=True)).to(x.dtype)


def last_row_missing(x: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x, 1)
    y[-1] = y[-2]
    return y


def normalized(x: torch.Tensor, w: torch.Tensor, biased: bool = True, eps: float = 1e-5) -> torch.Tensor:
    d = x - x.mean(1, keepdim=True)
    return d / torch.sqrt(x.var(1, unbiased=not biased, keepdim=True) + eps) * w


def one_after_the_other(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total += a[:, k, None] * b[None, k]
    return torch.clamp_min(total - 1, 0)


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.relu(a @ b - 1)


RIGHT = {
    "softmax": (SOFTMAX, explicit),
    "softmax as it is": (SOFTMAX, lambda x: torch.softmax(x, 1)),
    "product in another order": (PRODUCT, one_after_the_other),
    "norm": (NORM, normalized),
}
WRONG = {
    "last row": (SOFTMAX, last_row_missing, "float32"),
    "last row in 16 bits": (SOFTMAX, last_row_missing, "bfloat16"),
    "half precision": (SOFTMAX, low(explicit, torch.float16), "float32"),
    "another type's rounding": (SOFTMAX, low(explicit, torch.float8_e4m3fn), "float16"),
    "bfloat16 products": (PRODUCT, low(product, torch.bfloat16), "float32"),
    "term left out": (PRODUCT, lambda a, b: torch.relu(a[:, 1:] @ b[1:] - 1), "float32"),
    "unbiased variance": (NORM, lambda x, w: normalized(x, w, biased=False), "float32"),
    "other eps": (NORM, lambda x, w: normalized(x, w, eps=1e-6), "float32"),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_stay_below(name: str, dtype: str, tmp_path: Path) -> None:
    text, kernel = RIGHT[name]
    op = operation(tmp_path, text)
    if dtype not in op.dtypes:
        dtype = "float32"
    case = op.case(op.about.defaults[0], dtype)
    inputs = op.make_inputs(case, 0, CPU)
    found = verdict(op, case, kernel(*inputs), inputs)
    assert found.error_ratio < 0.7, found.reason


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_refused(name: str, tmp_path: Path) -> None:
    text, kernel, dtype = WRONG[name]
    op = operation(tmp_path, text)
    case = op.case(op.about.defaults[0], dtype)
    inputs = op.make_inputs(case, 0, CPU)
    assert verdict(op, case, kernel(*inputs), inputs).reason.startswith("value")


def test_the_truth_ignores_casts_to_fewer_bits(tmp_path: Path) -> None:
    text = (
        HEAD + "shapes = ['N=50']\ndef reference(x: Float[Tensor, 'N']):\n"
        "    c = torch.full((1,), 0.1, dtype=torch.float32)\n"
        "    return (x.float() * c).half().float().to(x.dtype)\n"
    )
    op = operation(tmp_path, text)
    case = op.case((50,), "bfloat16")
    inputs = op.make_inputs(case, 0, CPU)
    (truth,) = op.truth(inputs, case)
    assert torch.equal(truth.value, inputs[0].double() * 0.1)


@pytest.mark.parametrize(
    ("stated", "allowed"),
    {"0.5": (0.5, 0.5), "(0.25, 0)": (0.25, 0.0), "{'float32': 2.0}": (2.0, 2.0)}.items(),
    ids=["number", "pair", "by dtype"],
)
def test_a_stated_tolerance_is_the_bound(stated: str, allowed: tuple[float, float], tmp_path: Path) -> None:
    op = operation(tmp_path, SOFTMAX + f"tolerance = {stated}\n")
    case = op.case((8, 400), "float32")
    (truth,) = op.truth(op.make_inputs(case, 0, CPU), case)
    assert torch.allclose(truth.limit, truth.value.abs() * allowed[0] + allowed[1])


def test_rounding_errors_at_a_jump_are_allowed(tmp_path: Path) -> None:
    text = HEAD + "shapes = ['N=4000']\ndef reference(x: Float[Tensor, 'N']):\n    return torch.round(x * 3)\n"
    op = operation(tmp_path, text)
    case = op.case((4000,), "bfloat16")
    inputs = op.make_inputs(case, 0, CPU)
    assert verdict(op, case, torch.round(inputs[0] * 3), inputs).agrees
    assert verdict(op, case, torch.round(inputs[0].float() * 3).bfloat16(), inputs).agrees
    assert not verdict(op, case, torch.floor(inputs[0] * 3), inputs).agrees


def test_a_reference_that_draws_random_numbers_is_refused(tmp_path: Path) -> None:
    text = SOFTMAX.replace("torch.softmax(x, 1)", "torch.nn.functional.dropout(x, 0.5)")
    op = operation(tmp_path, text)
    case = op.case((8, 400), "float32")
    with pytest.raises(SuiteError, match=r"mine\.py: the reference gives other results for the same inputs"):
        list(op.truth(op.make_inputs(case, 0, CPU), case))


@pytest.mark.parametrize(
    "drawn",
    [
        "torch.rand(x.shape, generator=g)",
        "torch.rand(x.shape, generator=g, dtype=torch.float32)",
        "torch.empty(x.shape).uniform_(generator=g)",
        "(torch.randn(x.shape, generator=g) * 0.1 + 0.5)",
    ],
)
def test_random_numbers_of_a_seeded_generator_are_those_of_float32(tmp_path: Path, drawn: str) -> None:
    text = HEAD + "shapes = ['M=8,N=60']\ndef reference(x: Float[Tensor, 'M N']):\n"
    text += f"    g = torch.Generator().manual_seed(7)\n    return x * ({drawn} > 0.4) / 0.6\n"
    op = operation(tmp_path, text)
    for dtype in ("float32", "bfloat16"):
        case = op.case((8, 60), dtype)
        inputs = op.make_inputs(case, 0, CPU)
        (truth,) = op.truth(inputs, case)
        kept = eval(drawn, {"torch": torch, "x": inputs[0], "g": torch.Generator().manual_seed(7)}) > 0.4
        assert torch.equal(truth.value != 0, kept)
        assert bool((truth.limit < truth.value.abs().clamp(min=1e-30)).all()), "none may be kept, or dropped, instead"


def test_numpys_bound_is_that_of_torch(tmp_path: Path) -> None:
    formula = "    e = {0}.exp(x - x.{1}(1, keepdim{2}=True))\n    return e / e.sum(1, keepdim{2}=True)\n"
    torchs = (
        HEAD + "shapes = ['M=8,N=60']\ndef reference(x: Float[Tensor, 'M N']):\n" + formula.format("torch", "amax", "")
    )
    numpys = (
        "import numpy as np\nshapes = ['M=8,N=60']\n"
        "def inputs(case):\n    return np.random.randn(case['M'], case['N'])\n"
        "def reference(x):\n" + formula.format("np", "max", "s").replace("(1,", "(axis=1,")
    )
    limits = []
    for name, text in (("with_torch", torchs), ("with_numpy", numpys)):
        op = operation(tmp_path, text, name)
        case = op.case((8, 60), "float32")
        inputs = op.make_inputs(case, 0, CPU)
        assert verdict(op, case, explicit(*inputs), inputs).error_ratio < 0.7
        (truth,) = op.truth(inputs, case)
        limits.append(float((truth.limit / truth.value).median()))
    assert limits[0] == pytest.approx(limits[1], rel=0.3)


def test_the_deviations_of_few_runs_are_those_of_student() -> None:
    assert student_deviations(1, 10**6) == pytest.approx(4.89, abs=0.01)  # of a normal distribution
    assert 10.0 < student_deviations(2**16, 32) < 10.5
    assert math.isfinite(student_deviations(2**31, 16))


IN_PLACE = {
    "x *= 3.3": ("y = x * 1.5\n    y.mul_(3.3)\n    return y", lambda x: x * 0.0),
    "out += x": ("out = torch.relu(x * 1.1)\n    out += x\n    return out", lambda x: torch.relu(x * 1.1)),
    "out": ("y = x * 1.1\n    torch.add(y, 3.0, out=y)\n    return y", lambda x: x * 1.1),
    "a view": ("y = x * 1.1\n    y[0] *= 3.0\n    return y", lambda x: x * 1.1),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_an_operation_in_place_widens_no_bound(name: str, tmp_path: Path) -> None:
    lines, wrong = IN_PLACE[name]
    op = operation(tmp_path, HEAD + f"shapes = ['M=8,N=50']\ndef reference(x: Float[Tensor, 'M N']):\n    {lines}\n")
    case = op.case((8, 50), "float32")
    inputs = op.make_inputs(case, 0, CPU)
    (truth,) = op.truth(inputs, case)
    assert float(truth.limit.max()) < 1e-5 * float(truth.value.abs().max())
    assert not verdict(op, case, wrong(*inputs), inputs).agrees


def test_a_model_that_changes_its_state_has_the_same_in_every_run(tmp_path: Path) -> None:
    text = (
        "import torch\nn = 8\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('seen', torch.ones(1))\n    def forward(self, x):\n"
        "        self.seen.mul_(1.5)\n        return x * self.seen\n"
        "def get_inputs():\n    return [torch.rand(n)]\ndef get_init_inputs():\n    return []\n"
    )
    op = operation(tmp_path, text, "counts", "kernelbench")
    case = op.default_cases("cpu")[0]
    (truth,) = op.truth(op.make_inputs(case, 0, CPU), case)
    assert float(truth.limit.max()) < 1e-5


@pytest.mark.parametrize("causal", [False, True])
def test_attention_in_16_bits_may_round_its_weights(causal: bool, tmp_path: Path) -> None:
    shapes = ", ".join(f"{name}: Float[Tensor, '2 T 16']" for name in "qkv")
    text = f"shapes = ['T=33']\ndef reference({shapes}):\n    return F.scaled_dot_product_attention(q, k, v"
    op = operation(tmp_path, HEAD + f"import torch.nn.functional as F\n{text}, is_causal={causal})\n")
    case = op.case((33,), "bfloat16")
    q, k, v = inputs = op.make_inputs(case, 0, CPU)
    scores = (q.float() @ k.float().mT) / 4.0
    if causal:
        scores = scores.masked_fill(torch.ones(33, 33).triu(1) > 0, -math.inf)
    e = torch.exp(scores - scores.amax(-1, keepdim=True))
    right = ((e.bfloat16().float() @ v.float()) / e.sum(-1, keepdim=True)).bfloat16()
    assert verdict(op, case, right, inputs).error_ratio < 0.7
    small = (torch.softmax(scores, -1).to(torch.float8_e4m3fn).float() @ v.float()).bfloat16()
    assert not verdict(op, case, small, inputs).agrees


def test_a_weak_bound_is_known_to_all_copies_of_a_problem(tmp_path: Path) -> None:
    op = operation(tmp_path, SOFTMAX + "tolerance = 9.0\n")
    problem = Problem(op.case((8, 400), "float32"), 0, CPU)
    assert problem.weak_bound is None
    list(problem.with_buffers(lambda size, _: torch.empty(size, dtype=torch.uint8)).truth(0))
    assert problem.weak_bound is not None
    assert problem.weak_bound.reason.endswith("zeros would pass")
