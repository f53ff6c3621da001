"""Files that define an operation: what is read of them, and what is said of those that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from custom_files import CPU, HEAD, operation

from suite.core.errors import UsageError
from suite.custom.file import source_of
from suite.custom.load import load
from suite.custom.operation import CustomOperation
from suite.numerics.formats import DTYPES

SCALED = (
    HEAD + '"""Scaled."""\nshapes = ["M=4,N=6", {"M": 2, "N": 3}]\n\n'
    "def reference(x: Float[Tensor, 'M N'], w: Float[Tensor, '2*N'], eps: float = 0.5):\n"
    '    """y = x (w + eps)"""\n    return x * (w[: x.shape[1]] + eps)\n'
)
PROBLEM = """
import torch
import torch.nn as nn

batch = width = 8
depth: int = 3
shape = (batch, width)
slope = 0.5


class Model(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))

    def forward(self, x, slope):
        return torch.nn.functional.leaky_relu(self.layers(x), slope)


def get_inputs():
    return [torch.rand(shape), slope]


def get_init_inputs():
    return [width, depth]
"""


def test_a_reference_is_described(tmp_path: Path) -> None:
    op = operation(tmp_path, SCALED, "scaled")
    assert (op.name, op.entry, op.signature) == ("scaled", "scaled", "scaled(x, w, eps=0.5)")
    assert op.formula == "y = x (w + eps)"
    assert op.dims == ("M", "N")
    assert [case.label for case in op.default_cases("cpu")] == ["M=4,N=6"] * 3 + ["M=2,N=3"] * 3
    case = op.case((4, 6), "bfloat16")
    assert op.operands(case) == ((4, 6), (12,))
    assert (op.output_shape(case), op.output_dtype(case)) == ((4, 6), "bfloat16")
    assert op.bytes(case) == 2 * (24 + 12 + 24)
    assert op.flops(case) == 0
    assert op.precisions("float32") == ("ieee",)
    assert op.parse_shapes("N=5,7") == [(4, 5), (4, 7)]
    assert case.source == op.source


def test_flops_and_bytes_are_those_that_the_file_states(tmp_path: Path) -> None:
    stated = "def flops(case):\n    return 7 * case['M']\ndef bytes(case):\n    return 11\n"
    op = operation(tmp_path, SCALED + stated, "scaled")
    case = op.case((4, 6))
    assert (op.flops(case), op.bytes(case)) == (28, 11)


def test_flops_of_products_are_found(tmp_path: Path) -> None:
    text = HEAD + "def inputs(case):\n    return torch.rand(5, 7)\ndef reference(x):\n    return x @ x.mT\n"
    op = operation(tmp_path, text)
    (case, *_) = op.default_cases("cpu")
    assert op.flops(case) == 2 * 5 * 5 * 7
    assert op.precisions("float32") == ("ieee", "tf32")
    assert case.label == ""


FUSED = """LSTM = torch.nn.LSTM(8, 5, batch_first=True)
def reference(x: Float[Tensor, "2 4 8"]):
    y = torch.nn.functional.scaled_dot_product_attention(x, x, x)
    return torch.func.functional_call(LSTM, {name: p.detach().to(x.device, x.dtype) for name, p in
                                             LSTM.named_parameters()}, y)[0]
"""


def test_flops_of_fused_operations_are_found(tmp_path: Path) -> None:
    """A small case runs on the CPU, where torch fuses an attention and an LSTM, and can count neither then."""
    op = operation(tmp_path, HEAD + FUSED)
    (case, *_) = op.default_cases("cpu")
    assert op.flops(case) == 2 * 2 * (2 * 4 * 4 * 8 + 4 * 20 * (8 + 5))


def test_inputs_are_those_of_the_seed_in_the_cases_dtype(tmp_path: Path) -> None:
    text = (
        HEAD + "shapes = ['N=9']\ndef inputs(case):\n"
        "    return [torch.randn(case['N']), 2.5, torch.randint(0, 9, (case['N'],))]\n"
        "def reference(x, factor, index):\n    return x[index] * factor\n"
    )
    op = operation(tmp_path, text)
    case = op.case((9,), "float16")
    before = torch.random.get_rng_state()
    (x, index), (again, _), (other, _) = (op.make_inputs(case, seed, CPU) for seed in (0, 0, 1))
    assert torch.equal(before, torch.random.get_rng_state())
    assert (x.dtype, index.dtype) == (torch.float16, torch.int64)
    assert torch.equal(x, again)
    assert not torch.equal(x, other)
    kernel = op.callable_of(lambda x, factor, index: x[index] * factor, case)
    assert torch.equal(kernel(x, index), x[index] * 2.5)


def test_a_problem_runs_with_other_sizes(tmp_path: Path) -> None:
    op = operation(tmp_path, PROBLEM, "3-layers", "kernelbench")
    assert (op.name, op.entry, op.signature) == ("3_layers", "ModelNew", "ModelNew(...)(x, slope)")
    assert op.dims == ("batch", "width", "depth")
    assert op.about.defaults == ((8, 8, 3),)
    case = op.case((2, 16, 1), "float32")
    assert op.operands(case) == ((2, 16),)
    assert op.flops(case) == 2 * 2 * 16 * 16
    assert op.bytes(case) == 4 * (32 + 32 + 16 * 16 + 16)
    assert op.dtypes == ("float32",)
    assert op.dtypes_beyond == tuple(DTYPES)[1:]


def test_a_solution_has_the_weights_of_the_problem(tmp_path: Path) -> None:
    op = operation(tmp_path, PROBLEM, "layers", "kernelbench")

    class ModelNew(torch.nn.Module):
        def __init__(self, width: int, depth: int) -> None:
            super().__init__()
            self.first = torch.nn.Linear(width, 3)  # draws numbers of its own
            self.layers = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(depth)))

        def forward(self, x: torch.Tensor, slope: float) -> torch.Tensor:
            for layer in self.layers:
                x = torch.nn.functional.linear(x, layer.weight, layer.bias)
            return torch.where(x > 0, x, slope * x)

    case = op.case((4, 8, 2), "bfloat16")
    (x,) = op.make_inputs(case, 0, CPU)
    ours = op.program.function(case, torch.bfloat16, CPU)(x)
    theirs = op.callable_of(ModelNew, case)(x)
    assert theirs.dtype is torch.bfloat16
    assert not theirs.requires_grad
    assert torch.allclose(ours, theirs, rtol=0.05, atol=0.01)


def judged(op: CustomOperation) -> None:
    case = op.default_cases("cpu")[0]
    list(op.truth(op.make_inputs(case, 0, CPU), case))


REFUSED = {
    "no reference": (
        "import torch\nfrom math import sqrt\nfrom numpy import exp as reference_exp\ndef softmax(x):\n    return x\n",
        r"mine\.py has no function reference; it defines softmax$",
    ),
    "no shape": ("def reference(x):\n    return x\n", "x of reference has no annotated shape"),
    "other shapes": (SCALED.replace("'M N'", "'M ...'"), "must be names, numbers and products"),
    "shapes": (SCALED.replace('"M=4,N=6"', "4"), "shapes must be texts such as"),
    "size": (SCALED.replace('"M=4,N=6"', '"M=4"'), "missing N"),
    "dtypes": (SCALED + "dtypes = 'int32'\n", "dtypes must be of float32, float16, bfloat16, float64; got 'int32'"),
    "tolerance": (SCALED + "tolerance = 'small'\n", "tolerance must be a number, a pair"),
    "sets": ("def inputs(case):\n    return [{1}]\ndef reference(x):\n    return x\n", "numbers or texts, .*; got set"),
    "numbers": (
        SCALED.replace("return x *", "return 1.5, x #"),
        r"alone or in tuples and dicts; got tuple of 2 \(float,",
    ),
    "float4": (SCALED.replace("return x *", "return x.view(torch.float4_e2m1fn_x2) #"), "which cannot be judged"),
}


@pytest.mark.parametrize(("text", "complaint"), REFUSED.values(), ids=REFUSED.keys())
def test_a_file_that_cannot_be_used_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    def use() -> None:
        judged(operation(tmp_path, text))

    with pytest.raises(UsageError, match=complaint):
        use()


def test_a_model_may_keep_a_function_that_calls_its_modules(tmp_path: Path) -> None:
    text = PROBLEM.replace(
        "    def forward", "        layers = self.layers\n        self.run = lambda x: layers(x)\n\n    def forward"
    )
    op = operation(tmp_path, text.replace("self.layers(x), slope", "self.run(x), slope"), "p", "kernelbench")
    case = op.case(op.default_cases("cpu")[0].shape, "bfloat16")
    inputs = op.make_inputs(case, 0, CPU)
    (truth,) = op.truth(inputs, case)
    result = op.program.function(case, torch.bfloat16, CPU)(*inputs)
    assert torch.allclose(result.double(), truth.value, atol=0.05)


def test_a_problem_without_its_functions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"p\.py has no get_inputs; a problem has Model, get_inputs, get_init_inputs"):
        operation(tmp_path, PROBLEM.replace("get_inputs", "make_inputs"), "p", "kernelbench")


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("none.py", None, "there is no such file"),
        ("op.txt", "", "must be a .py file"),
        ("broken.py", "def reference(:\n", r"SyntaxError: .* \(broken\.py:1\)"),
        ("my-op.py", "", "'my-op' is no name; rename"),
    ],
)
def test_a_path_that_cannot_be_used_is_refused(name: str, text: str | None, complaint: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=complaint):
        source_of(tmp_path / name, "reference")


def test_a_file_that_has_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "changing.py"
    path.write_text(SCALED, encoding="utf-8")
    source = source_of(path, "reference")
    path.write_text(SCALED + "\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"changing\.py, or a file that it uses, changed while the run was going on"):
        load(source)


@pytest.mark.parametrize(
    ("text", "small"),
    [
        ('shapes = ["N=8"]\ndef reference(x: Float[Tensor, "N"]):\n    return x * 2\n', True),
        ('shapes = ["N=2000000"]\ndef reference(x: Float[Tensor, "N"]):\n    return x * 2\n', False),
        ('shapes = ["N=8"]\ndef reference(x: Float[Tensor, "N 9000 9000"]):\n    return x * 2\n', False),
        ("def inputs(case):\n    return torch.rand(5)\ndef reference(x):\n    return x * 2\n", False),
    ],
    ids=["annotated", "large", "large beside its dimension", "unknown"],
)
def test_the_cpu_shows_the_facts_of_a_case_that_is_known_to_be_small(text: str, small: bool, tmp_path: Path) -> None:
    op = operation(tmp_path, HEAD + text)
    (case, *_) = op.default_cases("cpu")
    assert op.program.is_small(case) is small
