"""The lines in JAX, PyTorch and NumPy: right against float64 at every shape of their contract, and honest beyond it.

On a machine with a GPU the PyTorch lines are tested on it too, and the JAX lines only there.
"""

from __future__ import annotations

import ast
import importlib
import os
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

jax = pytest.importorskip("jax")
ml_dtypes = pytest.importorskip("ml_dtypes")
np = pytest.importorskip("numpy")

from suite import frameworks  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
CUDA = ["cuda"] if torch.cuda.is_available() else []
DEVICES = {
    "numpy": ["cpu"],
    "torch": ["cpu", *CUDA],
    "jax": ["cuda"] if jax.default_backend() == "gpu" else ["cpu"],
}
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ATTENTION = {
    "numpy": ["attention"],
    "torch": ["attention", "attention_cudnn", "attention_flash", "attention_math"],
    "jax": ["attention", "attention_cudnn"],
}
FUSED = ("torch_impls.attention_cudnn", "torch_impls.attention_flash", "jax_impls.attention_cudnn")


class Line:
    """One implementation on one device, called with torch tensors and answering with one."""

    def __init__(self, framework: str, file: str, device: str) -> None:
        self.framework, self.file, self.device = framework, file, device
        self.module = importlib.import_module(f"{framework}_impls.{file}")
        self.function: Callable[..., Any] = getattr(
            self.module, file.partition("_")[0] if "attention" in file else file
        )

    def __call__(self, *tensors: torch.Tensor, **arguments: Any) -> torch.Tensor:
        tensors = tuple(tensor.to(self.device) for tensor in tensors)
        copies = [tensor.clone() for tensor in tensors]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            output = self.torch(self.function(*map(self.native, tensors), **arguments))
        for tensor, copy in zip(tensors, copies, strict=True):
            assert torch.equal(tensor.nan_to_num(7.0), copy.nan_to_num(7.0)), "an input was changed"
        assert output.is_contiguous()
        assert output.dtype == tensors[0].dtype
        assert output.device == tensors[0].device
        return output.cpu()

    def native(self, tensor: torch.Tensor) -> Any:
        if self.framework == "torch":
            return tensor
        if self.framework == "jax":
            compact = tensor.is_contiguous() or tensor.mT.is_contiguous() if tensor.ndim > 1 else tensor.is_contiguous()
            return jax.dlpack.from_dlpack(tensor if compact else tensor.contiguous())
        if tensor.dtype == torch.bfloat16:
            return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return tensor.numpy()

    def torch(self, array: Any) -> torch.Tensor:
        if self.framework == "torch":
            return array
        if self.framework == "jax":
            return torch.from_dlpack(array)
        assert isinstance(array, np.ndarray)
        if array.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)


def lines(*files: str) -> list[Any]:
    """Every framework that has one of `files`, on each of its devices."""
    found = []
    for framework, devices in DEVICES.items():
        for file in files:
            if file in ATTENTION[framework] or "attention" not in file:
                found += [
                    pytest.param((framework, file, device), id=f"{framework}-{file}-{device}") for device in devices
                ]
    return found


@pytest.fixture(params=lines("vector_add"))
def vector_add(request: pytest.FixtureRequest) -> Line:
    return Line(*request.param)


@pytest.fixture(params=lines("matrix_add"))
def matrix_add(request: pytest.FixtureRequest) -> Line:
    return Line(*request.param)


@pytest.fixture(params=lines("sigmoid"))
def sigmoid(request: pytest.FixtureRequest) -> Line:
    return Line(*request.param)


@pytest.fixture(params=lines("matmul"))
def matmul(request: pytest.FixtureRequest) -> Line:
    return Line(*request.param)


@pytest.fixture(params=lines("attention", "attention_cudnn", "attention_flash", "attention_math"))
def attention(request: pytest.FixtureRequest) -> Line:
    return Line(*request.param)


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def ulp(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    info = torch.finfo(dtype)
    exponent = torch.floor(torch.log2(value.abs().clamp_min(info.smallest_normal)))
    return info.eps * torch.exp2(exponent)


# ---------------------------------------------------------------------------------------------------- elementwise


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("n", "step"), [(0, 1), (1, 1), (31, 1), (1025, 1), (1025, 3)])
def test_vector_add_is_correctly_rounded(vector_add: Line, dtype: torch.dtype, n: int, step: int) -> None:
    a, b = (normal(n * step, dtype=dtype, seed=seed)[::step] for seed in (1, 2))
    assert torch.equal(vector_add(a, b), (a.double() + b.double()).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda t: t, id="plain"),
        pytest.param(lambda t: t.T.contiguous().T, id="transposed"),
        pytest.param(lambda t: torch.cat([t, t], dim=1)[:, ::2], id="sliced"),
        pytest.param(lambda t: t[:1].expand(t.shape), id="broadcast-rows"),
        pytest.param(lambda t: t[:, :1].expand(t.shape), id="broadcast-columns"),
    ],
)
def test_matrix_add_is_correctly_rounded(matrix_add: Line, dtype: torch.dtype, view: Callable) -> None:
    a, b = (normal(33, 65, dtype=dtype, seed=seed) for seed in (1, 2))
    for left, right in ((view(a), b), (a, view(b)), (view(a), view(b))):
        assert torch.equal(matrix_add(left, right), (left.double() + right.double()).to(dtype))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (1, 1), (1, 129)])
def test_matrix_add_of_edge_shapes(matrix_add: Line, shape: tuple[int, int]) -> None:
    a = normal(*shape)
    assert torch.equal(matrix_add(a, a), a + a)


def test_sums_beyond_the_range_are_infinite(vector_add: Line) -> None:
    for dtype in DTYPES:
        a = torch.tensor([torch.finfo(dtype).max, -torch.finfo(dtype).max, torch.inf, torch.nan], dtype=dtype)
        assert torch.equal(vector_add(a, a).isinf(), torch.tensor([True, True, True, False]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sigmoid_is_accurate_everywhere(sigmoid: Line, dtype: torch.dtype) -> None:
    """PyTorch's plain formula reaches 3 float32 ulps. XLA on a CPU flushes subnormals to zero."""
    tails = torch.logspace(-6, 2, 20_000, base=10.0)
    x = torch.cat([normal(50_000) * 3, tails, -tails, torch.linspace(-86, 20, 20_001)]).to(dtype)
    x = x[x > -87]
    truth = torch.sigmoid(x.double())
    float32_ulps = {"numpy": 1.0, "jax": 2.7, "torch": 3.1}[sigmoid.framework]
    error = (sigmoid(x).double() - truth).abs()
    limit = float32_ulps * ulp(truth, torch.float32)
    if dtype != torch.float32:
        limit = limit + 0.5 * ulp(truth, dtype)
    assert (error / limit).max() <= 1.0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sigmoid_at_the_ends(sigmoid: Line, dtype: torch.dtype) -> None:
    x = torch.tensor([-torch.inf, -3e4, -200.0, 0.0, -0.0, 200.0, torch.inf, torch.nan], dtype=dtype)
    expected = torch.tensor([0.0, 0.0, 0.0, 0.5, 0.5, 1.0, 1.0, torch.nan], dtype=dtype)
    assert torch.equal(sigmoid(x).nan_to_num(7.0), expected.nan_to_num(7.0))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 3, 5, 7)])
def test_sigmoid_of_any_shape(sigmoid: Line, shape: tuple[int, ...]) -> None:
    x = normal(*shape)
    torch.testing.assert_close(sigmoid(x), torch.sigmoid(x))
    if len(shape) == 4:
        torch.testing.assert_close(sigmoid(x.permute(3, 1, 0, 2)), torch.sigmoid(x.permute(3, 1, 0, 2)))
        torch.testing.assert_close(sigmoid(x[:, ::2, 1:]), torch.sigmoid(x[:, ::2, 1:]))


# --------------------------------------------------------------------------------------------------------- matmul


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (1, 129, 65), (65, 1, 127), (37, 41, 1), (129, 257, 100), (16, 16, 8192)]
)
def test_matmul_sums_in_float32(matmul: Line, dtype: torch.dtype, m: int, n: int, k: int) -> None:
    """Within one rounding to the type and a few float32 roundings of |A||B|: 16-bit or tf32 sums fall outside."""
    for a_transposed, b_transposed in product((False, True), repeat=2) if m == 129 else [(False, False)]:
        a = normal(k, m, dtype=dtype, seed=1).T if a_transposed else normal(m, k, dtype=dtype, seed=1)
        b = normal(n, k, dtype=dtype, seed=2).T if b_transposed else normal(k, n, dtype=dtype, seed=2)
        truth = a.double() @ b.double()
        limit = 0.5 * ulp(truth, dtype) + 4.0 * 2.0**-24 * (a.double().abs() @ b.double().abs())
        assert ((matmul(a, b).double() - truth).abs() <= limit).all()


@pytest.mark.parametrize("shape", [(3, 4, 0), (0, 4, 3), (3, 0, 4), (0, 0, 0)])
def test_matmul_of_empty_matrices(matmul: Line, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    for dtype in DTYPES:
        c = matmul(torch.ones(m, k, dtype=dtype), torch.ones(k, n, dtype=dtype))
        assert torch.equal(c, torch.zeros(m, n, dtype=dtype))


def test_matmul_of_slices_and_broadcasts(matmul: Line) -> None:
    a, b = normal(40, 60, seed=1)[1::3, ::2], normal(1, 24, seed=2).expand(30, 24)
    torch.testing.assert_close(matmul(a, b), (a.double() @ b.double()).float(), rtol=1e-5, atol=1e-5)


def test_tf32_is_tf32_on_a_gpu_and_refused_elsewhere(matmul: Line) -> None:
    a, b = normal(128, 512, seed=1), normal(512, 128, seed=2)
    if matmul.device == "cpu":
        with pytest.raises(NotImplementedError, match="precision 'tf32' needs NVIDIA's tensor cores"):
            matmul(a, b, precision="tf32")
        return
    truth = a.double() @ b.double()
    error = ((matmul(a, b, precision="tf32").double() - truth).norm() / truth.norm()).item()
    assert 2.0**-14 < error < 2.0**-10
    error = ((matmul(a, b, precision="ieee").double() - truth).norm() / truth.norm()).item()
    assert error < 2.0**-20


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_tf32_is_for_float32(matmul: Line, dtype: torch.dtype) -> None:
    a = normal(4, 4, dtype=dtype)
    with pytest.raises(ValueError, match="precision 'tf32' is for float32 inputs"):
        matmul(a, a, precision="tf32")
    with pytest.raises(ValueError, match=r"precision must be 'ieee' or 'tf32' for .*; got 'bf16x3'"):
        matmul(a, a, precision="bf16x3")


def test_torch_matmul_puts_the_precision_back(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line("torch", "matmul", "cpu")
    a = normal(8, 8)
    flags = torch.backends.mkldnn.matmul
    before = flags.fp32_precision
    seen: list[str] = []

    def watch(*_: torch.Tensor) -> None:
        seen.append(flags.fp32_precision)
        raise RuntimeError("out of memory")

    try:
        flags.fp32_precision = "bf16"
        line(a, a)
        assert flags.fp32_precision == "bf16"
        monkeypatch.setattr(torch, "matmul", watch)
        with pytest.raises(RuntimeError, match="out of memory"):
            line(a, a)
        assert (seen, flags.fp32_precision) == (["ieee"], "bf16")
    finally:
        flags.fp32_precision = before


# ------------------------------------------------------------------------------------------------------ attention

ATTENTION_SHAPES = [
    (1, 1, 1, 1, 1, 64),
    (1, 2, 1, 1, 77, 64),
    (1, 4, 2, 33, 130, 128),
    (1, 2, 1, 130, 33, 64),
    (1, 1, 1, 40, 40, 256),
    (2, 2, 2, 200, 200, 64),
]


def exact_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, sm_scale: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The float64 result, and sum_j p_j |v_j|, by which errors of the probabilities are weighed."""
    q, k, v = q.double(), k.double(), v.double()
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    s = q @ k.mT * (q.shape[3] ** -0.5 if sm_scale is None else sm_scale)
    if causal:
        i, j = torch.arange(s.shape[2])[:, None], torch.arange(s.shape[3])[None, :]
        s = s.masked_fill(j > i + s.shape[3] - s.shape[2], -torch.inf)
    p = torch.softmax(s, dim=-1).nan_to_num(0.0)
    return p @ v, p @ v.abs()


def check_attention(
    line: Line, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, sm_scale: float | None = None
) -> None:
    """Within one rounding of each probability and of the output, and 2^-17 for the float32 parts."""
    truth, weight = exact_attention(q, k, v, causal, sm_scale)
    rounding = 0.0 if q.dtype == torch.float32 else torch.finfo(q.dtype).eps / 2
    output = line(q, k, v, causal=causal, sm_scale=sm_scale).double()
    limit = (rounding + 2.0**-17) * weight + 0.5 * ulp(truth, q.dtype) + torch.finfo(q.dtype).smallest_normal
    assert ((output - truth).abs() <= limit).all()


def refuses(line: Line, dtype: torch.dtype, keys: int) -> bool:
    """Does the contract of this line leave the case out on this device?"""
    if line.device == "cpu":
        return line.file == "attention_cudnn"
    fused = line.module.__name__ in FUSED
    return fused and (dtype == torch.float32 or (line.module.__name__ == "torch_impls.attention_cudnn" and keys == 1))


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", ATTENTION_SHAPES, ids=lambda s: "x".join(map(str, s)))
def test_attention(attention: Line, shape: tuple[int, ...], dtype: torch.dtype, causal: bool) -> None:
    b, h, h_kv, s_q, s_k, d = shape
    q = normal(b, h, s_q, d, dtype=dtype, seed=1)
    k, v = (normal(b, h_kv, s_k, d, dtype=dtype, seed=seed) for seed in (2, 3))
    if refuses(attention, dtype, s_k):
        with pytest.raises(NotImplementedError, match="attention: "):
            attention(q, k, v, causal=causal)
        return
    check_attention(attention, q, k, v, causal=causal)


def test_attention_takes_a_scale_and_large_scores(attention: Line) -> None:
    """Scores near 1000, where an exponential without the maximum subtracted overflows."""
    q, k, v = (normal(1, 2, 70, 64, dtype=torch.bfloat16, seed=seed) for seed in (1, 2, 3))
    if refuses(attention, torch.bfloat16, 70):
        pytest.skip("needs a GPU")
    check_attention(attention, q, k, v, causal=True, sm_scale=0.3)
    check_attention(attention, q * 8, k * 8, v, causal=False, sm_scale=0.5)


def test_attention_takes_strides(attention: Line) -> None:
    """(B, S, H, D) in memory, as projections leave it: the result is row-major in (B, H, S, D) all the same."""
    if refuses(attention, torch.bfloat16, 40):
        pytest.skip("needs a GPU")
    q, k, v = (normal(2, 40, 2, 64, dtype=torch.bfloat16, seed=seed).transpose(1, 2) for seed in (1, 2, 3))
    check_attention(attention, q, k, v, causal=True)


@pytest.mark.parametrize(
    "shape", [(0, 2, 2, 5, 5, 64), (1, 2, 1, 0, 5, 64), (1, 2, 2, 5, 0, 64), (1, 0, 0, 5, 5, 64), (1, 1, 1, 5, 5, 0)]
)
def test_attention_of_nothing_gives_zeros(attention: Line, shape: tuple[int, ...]) -> None:
    if refuses(attention, torch.float16, shape[4]):
        pytest.skip("needs a GPU")
    b, h, h_kv, s_q, s_k, d = shape
    q, k = torch.ones(b, h, s_q, d, dtype=torch.float16), torch.ones(b, h_kv, s_k, d, dtype=torch.float16)
    for causal in (False, True):
        assert torch.equal(attention(q, k, k, causal=causal), torch.zeros_like(q))


def test_queries_without_keys_give_zeros(attention: Line) -> None:
    if refuses(attention, torch.float16, 20):
        pytest.skip("needs a GPU")
    q, k, v = (normal(1, 2, s, 64, dtype=torch.float16, seed=s) for s in (50, 20, 20))
    assert not attention(q, k, v, causal=True)[:, :, :30].any()


def test_a_forced_kernel_says_why_it_refuses() -> None:
    x = normal(1, 1, 8, 64)
    for file in ("attention_cudnn", "attention_flash"):
        for device in DEVICES["torch"]:
            line = Line("torch", file, device)
            if refuses(line, torch.float32, 8):
                with pytest.raises(NotImplementedError, match=r"float|Half|dtype|GPU"):
                    line(x, x, x)
    transposed = normal(1, 1, 64, 64).to(torch.float16).mT
    with pytest.raises(NotImplementedError, match="FlashAttention-2 refuses: "):
        Line("torch", "attention_flash", "cpu")(transposed, transposed, transposed)


# ------------------------------------------------------------------------------------------- contract and errors


@pytest.mark.parametrize("line", lines("vector_add", "matrix_add", "matmul"))
@pytest.mark.parametrize(
    ("a", "b"), [((3, 4), (3, 4, 1)), ((12,), (3, 4)), ((3, 4), (3,)), ((3,), (4,)), ((3, 4), (5, 3))]
)
def test_shape_errors_name_the_argument(line: tuple[str, str, str], a: tuple[int, ...], b: tuple[int, ...]) -> None:
    with pytest.raises(
        ValueError, match=rf"^{line[1]}: (a must be \(.*\); got \(|a is \(.*, so b must be \(.*; got \()"
    ):
        Line(*line)(normal(*a), normal(*b))


@pytest.mark.parametrize("line", lines("vector_add", "matrix_add", "matmul"))
def test_dtype_errors_name_the_argument(line: tuple[str, str, str]) -> None:
    x = normal(*((4,) if line[1] == "vector_add" else (4, 4)))
    with pytest.raises(
        ValueError, match=r"a is (torch\.)?float32, so b must be (torch\.)?float32; got (torch\.)?float16"
    ):
        Line(*line)(x, x.half())
    dtypes = "float32, float16, bfloat16 or float8_e4m3fn" if line[1] == "matmul" else "float32, float16 or bfloat16"
    with pytest.raises(ValueError, match=rf"a must be {dtypes}; got (torch\.)?int32"):
        Line(*line)(x.int(), x.int())


FLOAT8_ERRORS = [
    ("float8", (None, 0.5), "promoted", "scale_a must be"),
    ("float8", (0.5, [0.5]), "promoted", "scale_b must be"),
    ("float32", (0.5, 0.5), "ieee", "scale_a must be"),
    ("float8", (0.5, 0.5), "ieee", "precision must be 'promoted' or 'fast'"),
    ("float32", (), "fast", "precision must be 'ieee' or 'tf32'"),
]


@pytest.mark.parametrize(("kind", "scales", "precision", "message"), FLOAT8_ERRORS)
def test_float8_has_two_scales_and_precisions_of_its_own(
    matmul: Line, kind: str, scales: tuple[object, ...], precision: str, message: str
) -> None:
    a = normal(16, 16).to(torch.float8_e4m3fn if kind == "float8" else torch.float32)
    given = [a, a.T, *(None if each is None else torch.tensor(each) for each in scales)]
    native = frameworks.get(matmul.framework).to_native
    arguments = [each if each is None else native(each.to(matmul.device)) for each in given]
    with pytest.raises(ValueError, match=message):
        matmul.function(*arguments, precision=precision)


def test_sigmoid_names_the_dtype(sigmoid: Line) -> None:
    with pytest.raises(ValueError, match=r"sigmoid: x must be float32, float16 or bfloat16; got (torch\.)?int32"):
        sigmoid(normal(4).int())


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)), r"q must be \(B, H, S_q, D\); got \(2, 3, 4\)"),
        (((1, 2, 3, 8), (1, 2, 3, 4), (1, 2, 3, 4)), r"so k must be \(1, H_kv, S_k, 8\); got \(1, 2, 3, 4\)"),
        (((1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 4, 8)), r"so v must be \(1, 2, 5, 8\); got \(1, 2, 4, 8\)"),
        (((1, 3, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8)), r"H must be a multiple of H_kv; got H=3, H_kv=2"),
    ],
)
def test_attention_errors_name_the_argument(attention: Line, shapes: tuple, message: str) -> None:
    q, k, v = (normal(*shape, dtype=torch.float16) for shape in shapes)
    with pytest.raises(ValueError, match=message):
        attention(q, k, v)


@pytest.mark.parametrize(
    "path", [p for f in DEVICES for p in sorted((ROOT / f"{f}_impls").glob("*.py"))], ids=lambda p: str(p.name)
)
def test_files_are_leaves_with_literal_constants(path: Path) -> None:
    """The runner reads VENDOR and REQUIRES without importing; a file is lifted out of the tree as it is."""
    tree = ast.parse(path.read_text())
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    folder = path.parent.name.removesuffix("_impls")
    standard = {"__future__", "collections", "dataclasses", "functools", "math", "typing", "warnings"}
    assert imported <= standard | {"jaxtyping", "ml_dtypes", "numpy", folder}
    constants = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("VENDOR", "REQUIRES")
    }
    if path.name != "__init__.py":
        ours = folder == "numpy" or path.stem.endswith("_pallas")
        needed = "cuda" if path.stem.endswith("_cudnn") else "sm_90" if path.stem.endswith("_pallas") else None
        assert ("VENDOR" in constants) != ours
        assert constants.get("REQUIRES") == needed
