"""The CUDA kernels and their launchers where it is easy to go wrong: edges, strides, alignment, extremes, errors.

On the CPU the same .cu runs emulated. Outputs are poisoned with NaN before a kernel writes them, and inputs lie within
larger arrays of NaN, so that an element that is not written, or read from beyond an edge, shows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from cuda_ref import build
from cuda_ref.attention import attention
from cuda_ref.matmul import matmul as matmul_naive
from cuda_ref.matmul_async_copies import matmul as matmul_async_copies
from cuda_ref.matmul_double_buffered import matmul as matmul_double_buffered
from cuda_ref.matmul_register_tiles import matmul as matmul_register_tiles
from cuda_ref.matmul_tiled import matmul as matmul_tiled
from cuda_ref.matrix_add import matrix_add
from cuda_ref.sigmoid import sigmoid
from cuda_ref.vector_add import vector_add
from suite import ops
from suite.checking.verdict import judge
from suite.numerics.formats import ulp

DTYPES = tuple(build.DTYPES)
MATMULS = [
    pytest.param(matmul_naive, id="naive"),
    pytest.param(matmul_tiled, id="tiled"),
    pytest.param(matmul_register_tiles, id="register_tiles"),
    pytest.param(matmul_double_buffered, id="double_buffered"),
]
FLOAT32_MATMULS = [*MATMULS, pytest.param(matmul_async_copies, id="async_copies")]
INF, NAN = math.inf, math.nan


@pytest.fixture(autouse=True)
def _poisoned_outputs() -> Iterator[None]:
    """torch.empty gives NaN."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def random(device: str) -> Callable[..., Tensor]:
    """Normal numbers within an array of NaN that begins `shift` elements before them."""
    source = torch.Generator(device).manual_seed(0)

    def draw(*shape: int, dtype: torch.dtype = torch.float32, shift: int = 8, pad: int = 8) -> Tensor:
        around = torch.full((*shape[:-1], shift + shape[-1] + pad), NAN, dtype=dtype, device=device)
        inner = around[..., shift : shift + shape[-1]]
        return inner.copy_(torch.randn(shape, generator=source, device=device))

    return draw


def agrees(function: Callable[..., Tensor], *inputs: Tensor, precision: str = "ieee", **arguments: Any) -> Tensor:
    """Calls a kernel, and judges its result as the suite does."""
    op = ops.get(function.__name__)
    if op.name == "matmul":
        shape: tuple[int, ...] = (inputs[0].shape[0], inputs[1].shape[1], inputs[0].shape[1])
        arguments["precision"] = precision
    elif op.name == "attention":
        (B, H, S_q, D), (_, H_kv, S_k, _) = inputs[0].shape, inputs[1].shape
        shape = (B, H, H_kv, S_q, S_k, D)
    elif op.name == "sigmoid":
        shape, inputs = (inputs[0].numel(),), (inputs[0],)
    else:
        shape = tuple(inputs[0].shape)
    dtype = str(inputs[0].dtype).removeprefix("torch.")
    case = op.case(shape, dtype, precision, causal=arguments.get("causal"))
    before = [x.clone() for x in inputs]
    out = function(*inputs, **arguments)
    assert out.is_contiguous()
    judged, given = (out.flatten(), (inputs[0].flatten(),)) if op.name == "sigmoid" else (out, inputs)
    verdict = judge(judged, op.truth(given, case), shape=op.output_shape(case), dtype=dtype)
    assert verdict.agrees, verdict.reason
    assert all(torch.equal(x, y) for x, y in zip(before, inputs, strict=True)), "an input was changed"
    return out


# vector_add


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_vector_add_sizes_and_alignments(random: Callable[..., Tensor], dtype: torch.dtype) -> None:
    for N, shift in itertools.product((1, 3, 4, 7, 8, 9, 15, 16, 17, 4095, 4096, 4101), (0, 1, 8)):
        agrees(vector_add, random(N, dtype=dtype, shift=shift), random(N, dtype=dtype, shift=8))
        agrees(vector_add, random(N, dtype=dtype, shift=shift), random(N, dtype=dtype, shift=shift))


def test_vector_add_strides(random: Callable[..., Tensor]) -> None:
    a = random(2001)
    agrees(vector_add, a[::2], random(1001))
    agrees(vector_add, a[::2], a[:1].expand(1001))
    agrees(vector_add, random(1001, 3)[:, 1], a[1000:])


def test_vector_add_specials(device: str) -> None:
    a = torch.tensor([INF, INF, NAN, -0.0, 3e38, 1e-45, 65504.0], device=device)
    b = torch.tensor([1.0, -INF, 1.0, -0.0, 3e38, -2e-45, 16.0], device=device)
    for dtype in DTYPES:
        x, y = a.to(dtype), b.to(dtype)
        assert torch.equal(vector_add(x, y).nan_to_num(7.0), (x + y).nan_to_num(7.0))


# matrix_add


def matrix_layouts(random: Callable[..., Tensor], M: int, N: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """The same shape, laid out in every way that the kernel tells apart."""
    return {
        "rows": random(M, N, dtype=dtype, shift=0, pad=0),
        "rows in a wider matrix": random(M, N, dtype=dtype, pad=8 + -N % 8),
        "misaligned rows": random(M, N, dtype=dtype, shift=1),
        "columns": random(N, M, dtype=dtype, shift=0, pad=0).t(),
        "columns in a taller matrix": random(N, M, dtype=dtype, pad=8 + -M % 8).t(),
        "misaligned columns": random(N, M, dtype=dtype, shift=3).t(),
        "one row repeated": random(1, N, dtype=dtype).expand(M, N),
        "one column repeated": random(M, 1, dtype=dtype).expand(M, N),
        "every other row": random(2 * M, N, dtype=dtype)[::2],
        "every third column": random(M, 3 * N, dtype=dtype)[:, ::3],
        "one number": random(1, 1, dtype=dtype).expand(M, N),
    }


@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 40), (40, 1), (8, 8), (72, 136), (64, 64), (70, 33), (70, 40), (129, 3)], ids=str
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_matrix_add_layouts(random: Callable[..., Tensor], shape: tuple[int, int], dtype: torch.dtype) -> None:
    first, second = (matrix_layouts(random, *shape, dtype) for _ in range(2))
    for a, b in itertools.product(first.values(), second.values()):
        agrees(matrix_add, a, b)


def test_matrix_add_more_rows_than_a_grid_holds(device: str) -> None:
    """The blocks of the kernels that go through shared memory then take a second tile: do they wait for the first?"""
    for tall, N in ((65535 * 32 + 37, 2), (65535 * 64 + 128, 8)):
        rows = torch.randn(tall, N, device=device, dtype=torch.bfloat16)
        columns = torch.randn(N, tall, device=device, dtype=torch.bfloat16).t()
        for a, b in ((rows, columns), (columns, columns)):
            assert torch.equal(matrix_add(a, b), a + b)


# sigmoid


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sigmoid_of_every_16_bit_number(device: str, dtype: torch.dtype) -> None:
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype).to(device)
    out, truth = sigmoid(x).double(), exact_sigmoid(x)
    number = ~x.isnan()
    assert torch.equal(out.isnan(), ~number)
    ulps = (out - truth).abs() / ulp(truth.nan_to_num(), str(dtype).removeprefix("torch."))
    assert ulps[number].max() <= 0.55


def test_sigmoid_float32_to_the_ends(device: str) -> None:
    """Every exponent, both signs, and densely where the result is subnormal or rounds to 1."""
    exponents = torch.arange(1, 2**31 - 2**23, 9973, dtype=torch.int32).view(torch.float32)
    x = torch.cat([exponents, -exponents, torch.linspace(-104, -86, 100_001), torch.linspace(14, 18, 10_001)])
    x = torch.cat([x, torch.tensor([0.0, -0.0, 3.4e38, -3.4e38, INF, -INF])]).to(device)
    out, truth = sigmoid(x).double(), exact_sigmoid(x)
    assert ((out - truth).abs() / ulp(truth, "float32")).max() <= 1.9
    assert sigmoid(torch.tensor([NAN, -NAN], device=device)).isnan().all()


def exact_sigmoid(x: Tensor) -> Tensor:
    e = torch.exp(-x.double().abs())
    return torch.where(x < 0, e, 1.0) / (1.0 + e)


def test_sigmoid_shapes_and_strides(random: Callable[..., Tensor]) -> None:
    x = random(6, 10, 24)
    for view in (x, x[0, 0, 0], x.permute(2, 0, 1), x[:, 3], x[:, :, 1::2], x[0, 0, :1].expand(5, 7), x[0, 1, 1:6]):
        assert agrees(sigmoid, view).shape == view.shape


# matmul


def matmul_layouts(random: Callable[..., Tensor], rows: int, columns: int, dtype: torch.dtype) -> list[Tensor]:
    return [
        random(rows, columns, dtype=dtype),
        random(columns, rows, dtype=dtype, shift=1).t(),
        random(2 * rows, 3 * columns, dtype=dtype)[1::2, ::3],
        random(1, columns, dtype=dtype).expand(rows, columns),
        random(rows, 1, dtype=dtype).expand(rows, columns),
    ]


@pytest.mark.parametrize("matmul", MATMULS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_matmul_layouts(matmul: Callable[..., Tensor], random: Callable[..., Tensor], dtype: torch.dtype) -> None:
    for M, N, K in ((1, 1, 1), (1, 35, 33), (34, 1, 70), (40, 37, 1), (33, 65, 31)):
        left, right = matmul_layouts(random, M, K, dtype), matmul_layouts(random, K, N, dtype)
        for a, b in itertools.product(left, right):
            agrees(matmul, a, b)


@pytest.mark.parametrize("matmul", MATMULS)
def test_matmul_tf32_rounds_factors_to_nearest(matmul: Callable[..., Tensor], random: Callable[..., Tensor]) -> None:
    a, b = random(33, 65), random(65, 40)
    agrees(matmul, a, b, precision="tf32")
    assert torch.equal(matmul(a, b, precision="tf32"), matmul(to_tf32(a), to_tf32(b)))
    assert not torch.equal(matmul(a, b, precision="tf32"), matmul(a, b))
    x = torch.tensor([[1 + 2**-11, -1 - 2**-11, 1 + 2**-11 - 2**-23, 3.4e38, -3.4028235e38, INF, -INF]]).to(a.device)
    expected = torch.tensor([[1 + 2**-10, -1 - 2**-10, 1.0, to_tf32(x)[0, 3].item(), -INF, INF, -INF]]).to(a.device)
    one = torch.ones(1, 1, device=a.device)
    assert torch.equal(matmul(one, x, precision="tf32"), expected)
    for bits in (0x7FC00000, 0x7FFFFFFF, 0x7F800001):  # a carry out of a NaN would make it a number
        nan = torch.tensor([[bits]], dtype=torch.int32).view(torch.float32).to(a.device)
        assert matmul(one, nan, precision="tf32").isnan().all()


def to_tf32(x: Tensor) -> Tensor:
    """To 11 significant bits, ties away from zero, by exact arithmetic in float64."""
    significand, exponent = torch.frexp(x.double())
    units = torch.ldexp(significand.abs(), torch.tensor(11, device=x.device)).add(0.5).floor()
    return torch.copysign(torch.ldexp(units, exponent - 11), x.double()).float()


def test_matmul_tiled_adds_in_the_order_of_the_definition(random: Callable[..., Tensor]) -> None:
    a, b = random(40, 100), random(100, 50)
    assert torch.equal(matmul_naive(a, b), matmul_tiled(a, b))


def test_matmul_async_copies_is_double_buffered_to_the_last_bit(random: Callable[..., Tensor]) -> None:
    """Of one tile and of many, whole and overhanging, with fewer steps than stages and with more."""
    for M, N, K in ((1, 1, 1), (1, 35, 33), (40, 37, 1), (64, 128, 16), (64, 128, 64), (66, 130, 90), (128, 132, 96)):
        left, right = (matmul_layouts(random, *shape, torch.float32) for shape in ((M, K), (K, N)))
        for a, b in itertools.product(left, right):
            assert torch.equal(matmul_async_copies(a, b), matmul_double_buffered(a, b))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_matmul_async_copies_converts_nothing(random: Callable[..., Tensor], dtype: torch.dtype) -> None:
    for x, precision in ((random(4, 4, dtype=dtype), "ieee"), (random(4, 4), "tf32")):
        with pytest.raises(NotImplementedError, match='float32 and "ieee" only'):
            matmul_async_copies(x, x, precision=precision)


@pytest.mark.parametrize("matmul", FLOAT32_MATMULS)
def test_matmul_keeps_nan_and_infinity_in_their_place(
    matmul: Callable[..., Tensor], random: Callable[..., Tensor]
) -> None:
    a, b = random(40, 50), random(50, 45)
    a[3, 7], a[20, 0], b[11, 44] = NAN, INF, -INF
    agrees_at = torch.ones(40, 45, dtype=torch.bool, device=a.device)
    agrees_at[3], agrees_at[20], agrees_at[:, 44] = False, False, False
    assert torch.equal(matmul(a, b).isfinite(), agrees_at)


# attention


@pytest.mark.parametrize("D", [1, 3, 32, 64, 65, 96, 128, 200, 256])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_attention_head_dimensions(random: Callable[..., Tensor], D: int, dtype: torch.dtype) -> None:
    q, k, v = (random(1, H, S, D, dtype=dtype, pad=8 + -D % 8) for H, S in ((2, 5), (1, 37), (1, 37)))
    agrees(attention, q, k, v)
    q, k, v = (x.clone() for x in (q, k, v))
    agrees(attention, q, k, v, causal=True)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_lengths(random: Callable[..., Tensor], causal: bool) -> None:
    for S_q, S_k in itertools.product((1, 31, 33, 64, 70), (1, 32, 65)):
        q, k, v = random(2, 4, S_q, 64), random(2, 2, S_k, 64), random(2, 2, S_k, 64)
        out = agrees(attention, q, k, v, causal=causal)
        if causal:
            assert not out[:, :, : max(0, S_q - S_k)].any(), "a query that sees no key gives zeros"


def test_attention_strides(random: Callable[..., Tensor]) -> None:
    shape = (2, 3, 40, 64)
    stored = random(8000)
    kinds = (
        random(2, 40, 3, 64).transpose(1, 2),  # the heads of a token side by side
        random(*shape, shift=1),
        stored.as_strided(shape, (33, 8, 64, 1)),
        stored.as_strided(shape, (8, 33, 64, 1)),
        stored.as_strided(shape, (8, 16, 65, 1)),
        random(2, 1, 40, 64).expand(shape),
        random(2, 3, 64, 40).transpose(2, 3),
    )
    for position, kind in itertools.product(range(3), kinds):
        q, k, v = (kind if i == position else random(*shape) for i in range(3))
        agrees(attention, q, k, v, causal=position == 1)


def test_attention_scales(random: Callable[..., Tensor]) -> None:
    """A factor that is a power of two may stand in sm_scale or in q."""
    q, k, v = random(1, 2, 33, 64), random(1, 2, 40, 64), random(1, 2, 40, 64)
    for factor in (-4.0, 0.0, 0.5):
        expected = attention(q * factor, k, v)
        assert torch.equal(attention(q, k, v, sm_scale=factor / 8), expected)
    agrees(attention, q, k, v)


def test_attention_of_huge_scores(random: Callable[..., Tensor]) -> None:
    """Weights of 0 and 1, whatever the sign of the scores, and no overflow on the way."""
    q, k, v = random(1, 1, 40, 64), random(1, 1, 70, 64), random(1, 1, 70, 64)
    for size in (1e4, -1e4, 1e15):
        best = (size * q.double() @ k.double().mT).argmax(-1)[0, 0]
        out = attention(q, k, v, sm_scale=size)
        assert torch.allclose(out[0, 0], v[0, 0][best], rtol=1e-5), size
    agrees(attention, q * 1e3, k * 1e3, v)


def test_attention_ignores_what_is_hidden(random: Callable[..., Tensor]) -> None:
    """Keys after the last visible one may hold anything finite; a NaN in a query stays in its row."""
    q, k, v = random(1, 1, 20, 64), random(1, 1, 20, 64), random(1, 1, 20, 64)
    expected = attention(q, k, v, causal=True)
    k[..., 10:, :], v[..., 10:, :] = 1e30, 1e30
    assert torch.equal(attention(q, k, v, causal=True)[..., :10, :], expected[..., :10, :])
    q[0, 0, 3, 5] = NAN
    out = attention(q, k, v, causal=True)[0, 0]
    assert out[3].isnan().all()
    assert torch.equal(out[:3], expected[0, 0, :3])


# all


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_empty(device: str, dtype: torch.dtype) -> None:
    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    assert vector_add(empty(0), empty(0)).shape == (0,)
    for shape in ((0, 5), (5, 0), (0, 0)):
        assert matrix_add(empty(*shape), empty(*shape)).shape == shape
    assert sigmoid(empty(3, 0, 2)).shape == (3, 0, 2)
    for matmul in (matmul_naive, matmul_tiled, matmul_register_tiles, matmul_double_buffered):
        assert matmul(empty(0, 5), empty(5, 4)).shape == (0, 4)
        assert matmul(empty(4, 5), empty(5, 0)).shape == (4, 0)
        assert torch.equal(matmul(empty(40, 0), empty(0, 33)), torch.zeros(40, 33, dtype=dtype, device=device))
    if dtype == torch.float32:
        assert torch.equal(matmul_async_copies(empty(40, 0), empty(0, 33)), torch.zeros(40, 33, device=device))
    assert attention(empty(0, 2, 3, 64), empty(0, 1, 4, 64), empty(0, 1, 4, 64)).shape == (0, 2, 3, 64)
    assert attention(empty(1, 2, 0, 64), empty(1, 1, 4, 64), empty(1, 1, 4, 64)).shape == (1, 2, 0, 64)
    assert attention(empty(1, 0, 3, 64), empty(1, 0, 4, 64), empty(1, 0, 4, 64)).shape == (1, 0, 3, 64)
    assert attention(empty(1, 2, 3, 0), empty(1, 2, 4, 0), empty(1, 2, 4, 0)).shape == (1, 2, 3, 0)
    no_keys = attention(empty(1, 2, 3, 64), empty(1, 2, 0, 64), empty(1, 2, 0, 64))
    assert torch.equal(no_keys, torch.zeros(1, 2, 3, 64, dtype=dtype, device=device))


def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


HALF = torch.float16
REFUSED: list[tuple[Callable[..., Tensor], tuple[Tensor, ...], dict[str, Any], str]] = [
    (vector_add, (tensor(2, 3), tensor(2, 3)), {}, "vector_add: a must be (N,); got (2, 3)"),
    (vector_add, (tensor(3), tensor(4)), {}, "vector_add: a is (N,)=(3,), so b must be too; got (4,)"),
    (vector_add, (tensor(3), tensor(3, dtype=HALF)), {}, "a is torch.float32, so b must be too; got torch.float16"),
    (vector_add, (tensor(3).double(),) * 2, {}, "a must be float32, float16 or bfloat16; got torch.float64"),
    (vector_add, (tensor(3), torch.zeros(3, device="meta")), {}, "a is on cpu, so b must be too; got meta"),
    (matrix_add, (tensor(6), tensor(6)), {}, "matrix_add: a must be (M, N); got (6,)"),
    (matrix_add, (tensor(2, 3), tensor(3, 2)), {}, "a is (M, N)=(2, 3), so b must be too; got (3, 2)"),
    (matrix_add, (tensor(2, 3, dtype=HALF), tensor(2, 3)), {}, "a is torch.float16, so b must be too"),
    (matrix_add, (tensor(2, 3).int(),) * 2, {}, "a must be float32, float16 or bfloat16; got torch.int32"),
    (matrix_add, (tensor(2, 3), torch.zeros(2, 3, device="meta")), {}, "a is on cpu, so b must be too; got meta"),
    (sigmoid, (tensor(3).bool(),), {}, "sigmoid: x must be float32, float16 or bfloat16; got torch.bool"),
    *(
        (matmul, arguments, keywords, message)
        for matmul in (case.values[0] for case in FLOAT32_MATMULS)
        for arguments, keywords, message in (
            ((tensor(3), tensor(3, 2)), {}, "matmul: a must be (M, K); got (3,)"),
            ((tensor(128, 64), tensor(32, 256)), {}, "a is (M, K)=(128, 64), so b must be (64, N); got (32, 256)"),
            ((tensor(2, 3), tensor(3)), {}, "a is (M, K)=(2, 3), so b must be (3, N); got (3,)"),
            ((tensor(2, 3), tensor(3, 2, dtype=HALF)), {}, "a is torch.float32, so b must be too; got torch.float16"),
            ((tensor(2, 2).long(),) * 2, {}, "a must be float32, float16 or bfloat16; got torch.int64"),
            ((tensor(2, 2),) * 2, {"precision": "bf16"}, 'precision must be "ieee", or "tf32" for float32; got "bf16"'),
            ((tensor(2, 2, dtype=HALF),) * 2, {"precision": "tf32"}, 'got "tf32" for torch.float16'),
            ((tensor(2, 2), torch.zeros(2, 2, device="meta")), {}, "a is on cpu, so b must be too; got meta"),
        )
    ),
    (attention, (tensor(2, 3, 64),) * 3, {}, "attention: q must be (B, H, S_q, D); got (2, 3, 64)"),
    (
        attention,
        (tensor(1, 2, 3, 64), tensor(1, 2, 3, 32), tensor(1, 2, 3, 32)),
        {},
        "q is (B, H, S_q, D)=(1, 2, 3, 64), so k must be (1, H_kv, S_k, 64); got (1, 2, 3, 32)",
    ),
    (
        attention,
        (tensor(1, 2, 3, 64), tensor(1, 2, 3, 64), tensor(1, 2, 4, 64)),
        {},
        "k is (B, H_kv, S_k, D)=(1, 2, 3, 64), so v must be too; got (1, 2, 4, 64)",
    ),
    (
        attention,
        (tensor(1, 4, 3, 64), tensor(1, 3, 3, 64), tensor(1, 3, 3, 64)),
        {},
        "H must be a multiple of H_kv; got H=4, H_kv=3",
    ),
    (
        attention,
        (tensor(1, 1, 3, 64), tensor(1, 0, 3, 64), tensor(1, 0, 3, 64)),
        {},
        "H must be a multiple of H_kv; got H=1, H_kv=0",
    ),
    (
        attention,
        (tensor(1, 1, 3, 64), tensor(1, 1, 3, 64), tensor(1, 1, 3, 64, dtype=HALF)),
        {},
        "q is torch.float32, so k and v must be too; got torch.float32 and torch.float16",
    ),
    (attention, (tensor(1, 1, 3, 64).double(),) * 3, {}, "q must be float32, float16 or bfloat16; got torch.float64"),
    (
        attention,
        (tensor(1, 1, 3, 64), tensor(1, 1, 3, 64), torch.zeros(1, 1, 3, 64, device="meta")),
        {},
        "q is on cpu, so k and v must be too; got cpu and meta",
    ),
]


@pytest.mark.parametrize(("function", "arguments", "keywords", "message"), REFUSED, ids=[each[3] for each in REFUSED])
def test_refused(
    function: Callable[..., Tensor], arguments: tuple[Tensor, ...], keywords: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        function(*arguments, **keywords)
    assert message in str(caught.value)


def test_not_covered() -> None:
    with pytest.raises(NotImplementedError, match="D must be at most 256; got D=257"):
        attention(*[tensor(1, 1, 3, 257)] * 3)
    with pytest.raises(NotImplementedError, match=r"must be at most 2\^30; got B=1, H=1, S_q=3, S_k=1073741825"):
        attention(tensor(1, 1, 3, 1), *[tensor(1, 1, 1, 1).expand(1, 1, 2**30 + 1, 1)] * 2)
    with pytest.raises(NotImplementedError, match="meta"):
        sigmoid(torch.zeros(3, device="meta"))


def test_unknown_dtype_code_is_refused_with_the_launch(device: str) -> None:
    x = torch.zeros(8, device=device)
    with pytest.raises(build.CudaError, match="cudaErrorInvalidValue"):
        build.launch("sigmoid", "sigmoid", x.device, x, x, 8, 17)


# The largest: only where there is a GPU with the memory


@pytest.mark.gpu
def test_more_than_2_to_the_31_elements(device: str) -> None:
    needs_memory(device, gib=40)
    N = 3_000_000_001
    x = torch.ones(N, dtype=torch.bfloat16, device=device)
    for out, expected in ((vector_add(x, x), 2.0), (sigmoid(x), sigmoid(x[:1]).item())):
        assert (out == expected).all()
    matrix = x[: 65536 * 45760].view(65536, 45760)
    for other in (matrix, matrix.view(45760, 65536).t()):
        assert (matrix_add(matrix, other) == 2.0).all()
    assert (matmul_naive(x[:, None][:, :0], x[None, :1][:0]) == 0.0).all()


@pytest.mark.gpu
def test_more_rows_than_a_grid_holds(device: str) -> None:
    needs_memory(device, gib=16)
    tall = 65535 * 512 + 8  # more than any of the kernels takes in one step
    wide = torch.randn(8, tall, device=device).half()
    rows = wide.t().contiguous()
    for a, b in ((rows, rows), (rows, wide.t()), (wide.t(), wide.t())):
        assert torch.equal(matrix_add(a, b), rows + rows)
    agrees(matmul_naive, rows[: 65535 * 8 + 3], rows[:8])
    agrees(matmul_tiled, rows[: 65535 * 32 + 3], rows[:8])


@pytest.mark.gpu
def test_attention_of_more_heads_than_a_grid_holds(device: str) -> None:
    q, k, v = (torch.randn(70_000, 2, 3, 64, device=device).half() for _ in range(3))
    few = attention(q[-5:], k[-5:], v[-5:])
    agrees(attention, q[-5:], k[-5:], v[-5:])
    assert torch.equal(attention(q, k, v)[-5:], few)


def needs_memory(device: str, gib: int) -> None:
    free = torch.cuda.mem_get_info(device)[0] / 2**30
    if free < gib:
        pytest.skip(f"needs {gib} GiB of free device memory; there are {free:.0f}")
