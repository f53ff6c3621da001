"""Arguments that the launchers refuse, with their messages, and empty tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from cuda_ref import build, matmul
from cuda_ref.attention import attention
from cuda_ref.matmul import async_copies as matmul_async_copies
from cuda_ref.matmul import double_buffered as matmul_double_buffered
from cuda_ref.matmul import mma as matmul_mma
from cuda_ref.matmul import register_tiles as matmul_register_tiles
from cuda_ref.matmul import skinny as matmul_skinny
from cuda_ref.matmul import split as matmul_split
from cuda_ref.matmul import stream as matmul_stream
from cuda_ref.matmul import tiled as matmul_tiled
from cuda_ref.matmul import tma_wgmma as matmul_tma_wgmma
from cuda_ref.matmul import uncoalesced as matmul_uncoalesced
from cuda_ref.matmul import warp_specialized as matmul_warp_specialized
from cuda_ref.matmul import wgmma as matmul_wgmma
from cuda_ref.matrix_add import matrix_add
from cuda_ref.sigmoid import sigmoid
from cuda_ref.vector_add import vector_add

MATMULS = [
    module.matmul
    for module in (
        matmul,
        matmul_uncoalesced,
        matmul_tiled,
        matmul_register_tiles,
        matmul_double_buffered,
        matmul_async_copies,
        matmul_tma_wgmma,
        matmul_warp_specialized,
        matmul_wgmma,
        matmul_skinny,
        matmul_split,
        matmul_mma,
        matmul_stream,
    )
]


def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


HALF = torch.float16
ARGUMENTS: list[tuple[Callable[..., Tensor], tuple[Tensor, ...], dict[str, Any], str]] = [
    (vector_add, (tensor(2, 3), tensor(2, 3)), {}, "vector_add: a must be (N,); got (2, 3)"),
    (vector_add, (tensor(3), tensor(4)), {}, "vector_add: a is (N,)=(3,), so b must be (3,); got (4,)"),
    (vector_add, (tensor(3), tensor(3, dtype=HALF)), {}, "a is float32, so b must be float32; got float16"),
    (vector_add, (tensor(3).int(),) * 2, {}, "a must be float32, float16, bfloat16 or float64; got int32"),
    (vector_add, (tensor(3), torch.zeros(3, device="meta")), {}, "a is on cpu, so b must be on cpu; got meta"),
    (matrix_add, (tensor(6), tensor(6)), {}, "matrix_add: a must be (M, N); got (6,)"),
    (matrix_add, (tensor(2, 3), tensor(3, 2)), {}, "a is (M, N)=(2, 3), so b must be (2, 3); got (3, 2)"),
    (matrix_add, (tensor(2, 3, dtype=HALF), tensor(2, 3)), {}, "a is float16, so b must be float16; got float32"),
    (matrix_add, (tensor(2, 3).int(),) * 2, {}, "a must be float32, float16, bfloat16 or float64; got int32"),
    (matrix_add, (tensor(2, 3), torch.zeros(2, 3, device="meta")), {}, "a is on cpu, so b must be on cpu; got meta"),
    (sigmoid, (tensor(3).bool(),), {}, "sigmoid: x must be float32, float16, bfloat16 or float64; got bool"),
    *(
        (matmul, arguments, keywords, message)
        for matmul in MATMULS
        for arguments, keywords, message in (
            ((tensor(3), tensor(3, 2)), {}, "matmul: a must be (M, K); got (3,)"),
            ((tensor(128, 64), tensor(32, 256)), {}, "a is (M, K)=(128, 64), so b must be (64, N); got (32, 256)"),
            ((tensor(2, 3), tensor(3)), {}, "a is (M, K)=(2, 3), so b must be (3, N); got (3,)"),
            ((tensor(2, 3), tensor(3, 2, dtype=HALF)), {}, "a is float32, so b must be float32; got float16"),
            ((tensor(2, 2).long(),) * 2, {}, "matmul: a must be float32, float16"),
            (
                (tensor(2, 2),) * 2,
                {"precision": "bf16"},
                "a is float32, so precision must be 'ieee' or 'tf32'; got 'bf16'",
            ),
            (
                (tensor(2, 2, dtype=HALF),) * 2,
                {"precision": "tf32"},
                "a is float16, so precision must be 'ieee'; got 'tf32'",
            ),
            ((tensor(2, 2), torch.zeros(2, 2, device="meta")), {}, "a is on cpu, so b must be on cpu; got meta"),
        )
    ),
    (
        matmul_wgmma.matmul,
        (*(tensor(16, 16, dtype=torch.float8_e4m3fn),) * 2, tensor(), torch.zeros((), device="meta")),
        {"precision": "fast"},
        "a is on cpu, so scale_b must be on cpu; got meta",
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
        "k is (B, H_kv, S_k, D)=(1, 2, 3, 64), so v must be (1, 2, 3, 64); got (1, 2, 4, 64)",
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
        "q is float32, so v must be float32; got float16",
    ),
    (attention, (tensor(1, 1, 3, 64).double(),) * 3, {}, "q must be float32, float16 or bfloat16; got float64"),
    (
        attention,
        (tensor(1, 1, 3, 64), tensor(1, 1, 3, 64), torch.zeros(1, 1, 3, 64, device="meta")),
        {},
        "q is on cpu, so v must be on cpu; got meta",
    ),
]


REFUSED = [pytest.param(*each, id=f"{each[0].__module__.removeprefix('cuda_ref.')}: {each[3]}") for each in ARGUMENTS]


@pytest.mark.parametrize(("function", "arguments", "keywords", "message"), REFUSED)
def test_unusable_arguments_are_refused(
    function: Callable[..., Tensor], arguments: tuple[Tensor, ...], keywords: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        function(*arguments, **keywords)
    assert message in str(caught.value)


def test_cases_that_are_not_covered() -> None:
    with pytest.raises(NotImplementedError, match="D must be at most 256; got D=257"):
        attention(*[tensor(1, 1, 3, 257)] * 3)
    with pytest.raises(NotImplementedError, match=r"must be at most 2\^30; got B=1, H=1, S_q=3, S_k=1073741825"):
        attention(tensor(1, 1, 3, 1), *[tensor(1, 1, 1, 1).expand(1, 1, 2**30 + 1, 1)] * 2)
    with pytest.raises(NotImplementedError, match="meta"):
        sigmoid(torch.zeros(3, device="meta"))


NEGATED = torch.ones(4, 4, dtype=torch.complex64).conj().imag
TWO = [(vector_add, 1), (matrix_add, 2), *((each, 2) for each in MATMULS)]


@pytest.mark.parametrize(("function", "dims"), TWO, ids=[each.__module__ for each, _ in TWO])
def test_the_negative_bit_and_lost_gradients_are_refused(function: Callable[..., Tensor], dims: int) -> None:
    plain, negated = (x if dims == 2 else x[0] for x in (torch.ones(4, 4), NEGATED))
    assert negated.is_neg()
    with pytest.raises(NotImplementedError, match=r"b has torch's negative bit set; pass b\.resolve_neg\(\)"):
        function(plain, negated)
    with pytest.raises(
        NotImplementedError, match=r"a requires a gradient, .*pass a\.detach\(\), or use torch\.no_grad"
    ):
        function(plain.clone().requires_grad_(), plain)


def test_the_negative_bit_and_lost_gradients_are_refused_by_other_operations() -> None:
    x = tensor(1, 1, 3, 64)
    for function, inputs in ((sigmoid, (x,)), (attention, (x, x, x))):
        wanted = tuple(each.clone().requires_grad_() for each in inputs)
        with pytest.raises(NotImplementedError, match="requires a gradient"):
            function(*wanted)
        with torch.no_grad():
            assert not function(*wanted).requires_grad
    with pytest.raises(NotImplementedError, match="sigmoid: x has torch's negative bit"):
        sigmoid(NEGATED)


def test_the_first_call_inside_a_graph_capture_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(build.CudaError, match="no_such: first call inside a CUDA graph capture; call it once before"):
        build.launch("no_such", "no_such", torch.device("cuda", 7))


def test_unknown_dtype_code_is_refused_with_the_launch(device: str) -> None:
    x = torch.zeros(8, device=device)
    with pytest.raises(build.CudaError, match="cudaErrorInvalidValue"):
        build.launch("sigmoid/sigmoid", "sigmoid", x.device, x, x, 8, 17)


@pytest.mark.parametrize("dtype", build.DTYPES, ids=str)
def test_elementwise_of_empty_tensors(device: str, dtype: torch.dtype) -> None:
    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    assert vector_add(empty(0), empty(0)).shape == (0,)
    for shape in ((0, 5), (5, 0), (0, 0)):
        assert matrix_add(empty(*shape), empty(*shape)).shape == shape
    assert sigmoid(empty(3, 0, 2)).shape == (3, 0, 2)
