"""Errors of the Triton launchers: the argument, what is expected, and the actual value."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]

INVALID = [
    ("vector_add(e(2, 3), e(2, 3))", "vector_add: a must be (N,); got (2, 3)"),
    ("vector_add(e(4), e(5))", "vector_add: a is (N,)=(4,), so b must be (4,); got (5,)"),
    ("vector_add(e(4), e(4, dtype=half))", "a is float32, so b must be float32; got float16"),
    ("vector_add(e(4, dtype=int), e(4, dtype=int))", "a must be float32, float16, bfloat16 or float64; got int64"),
    ("matrix_add(e(4), e(4))", "matrix_add: a must be (M, N); got (4,)"),
    ("matrix_add(e(4, 5), e(5, 4))", "matrix_add: a is (M, N)=(4, 5), so b must be (4, 5); got (5, 4)"),
    ("matrix_add(e(4, 5), e(4, 5, dtype=half))", "a is float32, so b must be float32"),
    ("sigmoid(e(4, dtype=int))", "sigmoid: x must be float32, float16 or bfloat16; got int64"),
    ("matmul(e(4), e(4, 5))", "matmul: a must be (M, K); got (4,)"),
    ("matmul(e(128, 64), e(32, 256))", "matmul: a is (M, K)=(128, 64), so b must be (64, N); got (32, 256)"),
    ("matmul(e(4, 4), e(4, 4, dtype=half))", "a is float32, so b must be float32"),
    ("matmul(e(4, 4), e(4, 4), precision='high')", "a is float32, so precision must be 'ieee' or 'tf32'; got 'high'"),
    ("matmul(*2 * [e(4, 4, dtype=half)], precision='tf32')", "a is float16, so precision must be 'ieee'; got 'tf32'"),
    ("attention(*3 * [e(8, 64)])", "attention: q must be (B, H, S_q, D); got (8, 64)"),
    ("attention(e(1, 2, 3, 64), *2 * [e(1, 2, 3, 32)])", "so k must be (1, H_kv, S_k, 64); got (1, 2, 3, 32)"),
    ("attention(e(1, 2, 3, 64), e(1, 2, 5, 64), e(1, 2, 4, 64))", "so v must be (1, 2, 5, 64); got (1, 2, 4, 64)"),
    ("attention(e(1, 3, 5, 64), *2 * [e(1, 2, 5, 64)])", "H must be a multiple of H_kv; got H=3, H_kv=2"),
    ("attention(e(1, 1, 5, 64), *2 * [e(1, 1, 5, 64, dtype=half)])", "q is float32, so k must be float32"),
]
NOT_COVERED = [
    ("attention(*3 * [e(1, 3, 5, 48)])", "attention: D must be one of (16, 32, 64, 128, 256); got 48"),
    ("attention(*3 * [e(1, 1, 5, 64)], sm_scale=-1.0)", "attention: sm_scale must not be negative; got -1.0"),
    ("matmul(e(1, 1).expand(2**28 + 1, 1), e(1, 1))", "matmul: M must be at most 2^28"),
    ("matmul(e(1, 1), e(1, 1).expand(1, 2**26 + 1))", "N at most 2^26, K at most 2^30; got (1, 67108865, 1)"),
    ("matmul(e(1, 1).expand(1, 2**31), e(1, 1).expand(2**31, 1))", "K at most 2^30; got (1, 1, 2147483648)"),
    (
        "attention(e(1, 1, 1, 16), *2 * [e(1, 1, 1, 16).expand(1, 1, 2**31, 16)])",
        "S_q and S_k must be at most 2^30; got 1 and 2147483648",
    ),
    ("vector_add(e(4), wanted(4))", "vector_add: b requires a gradient, and this kernel has no backward pass"),
    ("matrix_add(wanted(4, 4), e(4, 4))", "pass a.detach(), or use torch.no_grad()"),
    ("sigmoid(negated)", "sigmoid: x has torch's negative bit set; pass x.resolve_neg()"),
    ("matmul(negated, e(4, 4))", "matmul: a has torch's negative bit set; pass a.resolve_neg()"),
    ("attention(*2 * [e(1, 1, 4, 16)], wanted(1, 1, 4, 16))", "attention: v requires a gradient"),
]


VARIANTS = [
    ("persistent", "matmul(e(4), e(4, 5))", ValueError, "matmul: a must be (M, K); got (4,)"),
    ("gluon", "matmul(e(128, 64), e(32, 256))", ValueError, "so b must be (64, N); got (32, 256)"),
    ("split", "matmul(e(4, 4), e(4, 4, dtype=half))", ValueError, "a is float32, so b must be float32"),
    ("gluon", "matmul(e(4, 4), e(4, 4), precision='high')", ValueError, "got 'high'"),
    ("split", "matmul(*2 * [e(4, 4, dtype=half)])", NotImplementedError, "got torch.float16"),
    ("split", "matmul(*2 * [e(4, 4)], precision='tf32')", NotImplementedError, '"tf32"'),
    ("persistent", "matmul(*2 * [e(4, 4)])", NotImplementedError, 'float32 with precision="ieee"'),
    ("persistent", "matmul(e(1, 1).half().expand(2**27 + 1, 1), e(1, 1).half())", NotImplementedError, "at most 2^27"),
    ("persistent", "matmul(e(1, 1).half().expand(1, 2**31), e(1, 1).half().expand(2**31, 1))", NotImplementedError,
     "K at most 2^30"),
    ("split", "matmul(e(1, 1).expand(1, 2**31), e(1, 1).expand(2**31, 1))", NotImplementedError, "at most 2^29"),
    ("split", "matmul(negated, e(4, 4))", NotImplementedError, "matmul: a has torch's negative bit set"),
    ("persistent", "matmul(*2 * [wanted(4, 4)])", NotImplementedError, "matmul: a requires a gradient"),
    ("gluon", "matmul(*2 * [e(16, 16, dtype=float8)])", ValueError, "so precision must be 'promoted' or 'fast'"),
    ("gluon", "matmul(*2 * [e(16, 16, dtype=float8)], precision='fast')", ValueError, "so scale_a must be"),
    ("gluon", "matmul(*2 * [e(16, 16)], *2 * [e(1)[0]], precision='tf32')", ValueError, "so scale_a must be None"),
]  # fmt: skip


def names_for(module: str, operation: str, device: str) -> dict[str, Any]:
    """The names for evaluating the calls above: the operation, and e(*shape, dtype=...) for a tensor on the device."""
    return {
        operation: getattr(import_module(f"triton_kernels.{module}"), operation),
        "e": lambda *shape, dtype=torch.float32: torch.empty(*shape, dtype=dtype, device=device),
        "wanted": lambda *shape: torch.empty(*shape, device=device, requires_grad=True),
        "negated": torch.ones(4, 4, dtype=torch.complex64, device=device).conj().imag,
        "half": torch.float16,
        "float8": torch.float8_e4m3fn,
    }


@pytest.mark.parametrize(
    ("call", "message", "error"),
    [(*case, ValueError) for case in INVALID] + [(*case, NotImplementedError) for case in NOT_COVERED],
    ids=[call for call, _ in INVALID + NOT_COVERED],
)
def test_plain_kernels(call: str, message: str, error: type[Exception], device: str) -> None:
    operation = call.split("(")[0]
    with pytest.raises(error, match=re.escape(message)):
        eval(call, names_for(operation, operation, device))


@pytest.mark.parametrize(
    ("variant", "call", "error", "message"), VARIANTS, ids=[" ".join(case[:2]) for case in VARIANTS]
)
def test_matmul_variants(variant: str, call: str, error: type[Exception], message: str, device: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        eval(call, names_for(f"matmul.{variant}", "matmul", device))


GLUON_ATTENTION = [
    ("attention(*3 * [e(5, 64)])", ValueError, "attention: q must be (B, H, S_q, D); got (5, 64)"),
    ("attention(e(1, 1, 5, 64), *2 * [e(1, 1, 5, 32)])", ValueError, "so k must be (1, H_kv, S_k, 64); got"),
    ("attention(*2 * [e(1, 1, 5, 64)], e(1, 1, 4, 64))", ValueError, "so v must be (1, 1, 5, 64); got (1, 1, 4, 64)"),
    ("attention(e(1, 3, 5, 64), *2 * [e(1, 2, 5, 64)])", ValueError, "H must be a multiple of H_kv; got H=3, H_kv=2"),
    ("attention(e(1, 1, 5, 64), *2 * [e(1, 1, 5, 64, dtype=half)])", ValueError, "so k must be float32"),
    ("_check_limits(e(1, 1, 5, 64), None)", NotImplementedError, "need float16 or bfloat16; got torch.float32"),
    ("_check_limits(e(1, 1, 5, 96, dtype=half), None)", NotImplementedError, "one of (64, 128, 256); got 96"),
    ("_check_limits(e(1, 1, 5, 64, dtype=half), -1.0)", NotImplementedError, "must not be negative; got -1.0"),
    ("_check_limits(e(1, 1, 5, 64, dtype=half), None)", NotImplementedError, "wgmma needs a Hopper GPU"),
]


@pytest.mark.parametrize(("call", "error", "message"), GLUON_ATTENTION, ids=[call for call, *_ in GLUON_ATTENTION])
def test_gluon_attention(
    call: str, error: type[Exception], message: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (8, 0))
    names = names_for("attention.gluon", "attention", device)
    names["_check_limits"] = import_module("triton_kernels.attention.gluon")._check_limits
    with pytest.raises(error, match=re.escape(message)):
        eval(call, names)


def test_gluon_does_not_run_on_a_cpu() -> None:
    from triton_kernels.attention.gluon import attention
    from triton_kernels.matmul.gluon import matmul

    with pytest.raises(ValueError, match="matmul: a is on cpu; pass CUDA tensors"):
        matmul(torch.empty(8, 8), torch.empty(8, 8), precision="tf32")
    with pytest.raises(ValueError, match="attention: q is on cpu; pass CUDA tensors, Gluon has no interpreter"):
        attention(*3 * [torch.empty(1, 1, 8, 64).half()])


def test_cpu_tensors_need_the_interpreter() -> None:
    """Without TRITON_INTERPRET=1 every launcher names the variable in its error, before it touches the driver."""
    program = """
import torch
from importlib import import_module
x = {1: torch.ones(4), 2: torch.ones(4, 4), 4: torch.ones(1, 1, 4, 64)}
calls = dict(vector_add=[x[1]] * 2, matrix_add=[x[2]] * 2, sigmoid=[x[1]], matmul=[x[2]] * 2, attention=[x[4]] * 3)
for operation, inputs in calls.items():
    try:
        getattr(import_module(f"triton_kernels.{operation}"), operation)(*inputs)
    except ValueError as error:
        print(error)
"""
    environment = os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 5
    assert all("is on cpu; pass" in line and "TRITON_INTERPRET=1" in line for line in lines)
