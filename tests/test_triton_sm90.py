"""Matrix multiplication for Hopper in Triton and Gluon: what the compiler makes of it without a GPU, what launchers
refuse, and whether three bfloat16 numbers are as good as a float32.

As in test_triton_kernels.py, a compilation test starts this file as a program, which launches every configuration with
a driver that compiles and runs nothing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
import test_triton_kernels as program
import torch

BUILDS = {  # process: what it calls, as VARIANT DTYPE (or tf32) LAYOUT SIZE
    "gluon, 16 bits": ["gluon bfloat16 nn 4096", "gluon float16 tt 1024", "gluon bfloat16 tn 16x14336x4096"],
    "gluon, tf32": ["gluon tf32 nn 4096", "gluon tf32 nt 4096", "gluon tf32 tt 1024"],
    "persistent, 16 bits": ["persistent bfloat16 nn 4096", "persistent float16 tt 1024"],
    "persistent, tf32": ["persistent tf32 nn 4096", "persistent tf32 tt 1024"],
    "gluon, 8 bits": ["gluon float8_e4m3fn nt 4096 promoted", "gluon float8_e4m3fn nt 4096 fast"],
    "split": ["split float32 nn 4096", "split float32 tt 1003x1001x1009", "split float32 nn 512x512x16"],
}


def calls(name: str) -> Iterator[Callable[[], object]]:
    """The launch that a name in BUILDS stands for."""
    variant, kind, layout, size, *precision = name.split()
    matmul = import_module(f"triton_kernels.matmul_{variant}").matmul
    M, N, K = (int(each) for each in (size.split("x") * 3)[:3])
    dtype = getattr(torch, kind, torch.float32)
    a, b = (
        program._empty(*shape, dtype=dtype) if letter == "n" else program._empty(*shape[::-1], dtype=dtype).t()
        for letter, shape in zip(layout, ((M, K), (K, N)), strict=True)
    )
    if precision:
        scale = program._empty(1, dtype=torch.float32)[0]
        yield lambda: matmul(a, b, scale, scale, precision=precision[0])
    else:
        yield lambda: matmul(a, b, precision="tf32" if kind == "tf32" else "ieee")


if __name__ == "__main__":
    sys.path.insert(0, str(program.ROOT))
    torch.cuda.get_device_capability = lambda device=None: (9, 0)  # type: ignore[assignment]
    program._calls = calls
    print(json.dumps(program._compile(90, sys.argv[1:])))
    sys.exit()


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDS)
def test_compiles_to_wgmma_fed_by_tma(name: str, tmp_path: Path) -> None:
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, __file__, *BUILDS[name]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout.splitlines()[-1])
    assert {record["name"] for record in records} == set(BUILDS[name])
    for record in records:
        variant, kind = record["name"].split()[:2]
        assert program.count(record, "LDL|STL") == 0, record  # no spills
        if record["kernel"] in ("split_kernel", "transpose_kernel"):
            assert program.count(record, "HG?MMA") == 0, record
            continue
        assert program.count(record, "QGMMA" if "float8" in kind else "HGMMA") > 0, record
        assert program.count(record, r"HMMA|LDGSTS") == 0, record
        assert program.count(record, "UTMALDG") > 0, record
        assert variant == "split" or program.count(record, "UTMASTG") > 0, record
        assert variant == "split" or kind == "tf32" or program.count(record, "STSM") > 0, record
        if "float8" in kind:  # sums leave the tensor cores, to be added elsewhere, in one of the two only
            assert (program.count(record, "FADD") >= 64) == record["name"].endswith("promoted"), record
        assert (program.count(record, "USETMAXREG") > 0) == (variant == "gluon"), record


REFUSED = [
    ("persistent", "matmul(e(4), e(4, 5))", ValueError, "matmul: a must be (M, K); got (4,)"),
    ("gluon", "matmul(e(128, 64), e(32, 256))", ValueError, "so b must be (64, N); got (32, 256)"),
    ("split", "matmul(e(4, 4), e(4, 4, dtype=half))", ValueError, "matmul: a is torch.float32, so b must be too"),
    ("gluon", "matmul(e(4, 4), e(4, 4), precision='high')", ValueError, 'got "high"'),
    ("split", "matmul(*2 * [e(4, 4, dtype=half)])", NotImplementedError, "got torch.float16"),
    ("split", "matmul(*2 * [e(4, 4)], precision='tf32')", NotImplementedError, '"tf32"'),
    ("persistent", "matmul(*2 * [e(4, 4)])", NotImplementedError, 'float32 with precision="ieee"'),
    ("persistent", "matmul(e(8, 8, dtype=half), e(8, 12, dtype=half))", NotImplementedError, "TMA needs b's rows or"),
    ("persistent", "matmul(e(9, 8, dtype=half)[:, 1:], e(7, 8, dtype=half))", NotImplementedError, "TMA needs a's"),
    ("persistent", "matmul(e(8, 8, dtype=half), e(12, 8, dtype=half).t())", NotImplementedError, "TMA needs out's"),
    ("persistent", "matmul(e(1, 8, dtype=half).expand(8, 8), e(8, 8, dtype=half))", NotImplementedError, "(0, 1)"),
    ("persistent", "matmul(e(1, 1).half().expand(2**27 + 1, 1), e(1, 1).half())", NotImplementedError, "at most 2^27"),
    ("gluon", "matmul(*2 * [e(16, 16, dtype=float8)])", ValueError, 'must be "promoted" or "fast" for float8'),
    ("gluon", "matmul(*2 * [e(16, 16, dtype=float8)], precision='fast')", ValueError, "so scale_a must be"),
    ("gluon", "matmul(*2 * [e(16, 16)], *2 * [e(1)[0]], precision='tf32')", ValueError, "so scale_a must be None"),
]  # fmt: skip


@pytest.mark.parametrize(("variant", "call", "error", "message"), REFUSED, ids=[" ".join(case[:2]) for case in REFUSED])
def test_launcher_errors(variant: str, call: str, error: type[Exception], message: str, device: str) -> None:
    names = {
        "matmul": import_module(f"triton_kernels.matmul_{variant}").matmul,
        "e": lambda *shape, dtype=torch.float32: torch.empty(*shape, dtype=dtype, device=device),
        "half": torch.float16,
        "float8": torch.float8_e4m3fn,
    }
    with pytest.raises(error, match=re.escape(message)):
        eval(call, names)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("K", [1, 4, 64])
def test_operands_of_tf32_lie_along_k(layout: str, K: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through registers ptxas lets no two products overlap; a vector could be taken for rows or for columns."""
    module = import_module("triton_kernels.matmul_persistent")
    a, b = torch.randn(64, K, device=device), torch.randn(K, 64, device=device)
    if layout[0] == "t":
        a = a.t().contiguous().t()
    if layout[1] == "t":
        b = b.t().contiguous().t()
    orders = []

    class Launch:
        def __getitem__(self, grid: object) -> Callable[..., None]:
            return lambda a_desc, b_desc, *_, A_ROWS, B_ROWS, **__: orders.append(
                (A_ROWS, B_ROWS, torch.equal(a_desc.base, a), torch.equal(b_desc.base.t(), b))
            )

    monkeypatch.setattr(module, "matmul_kernel", Launch())
    module.matmul(a, b, precision="tf32")
    assert orders == [(True, False, True, True)]


def test_gluon_runs_on_no_cpu() -> None:
    from triton_kernels.matmul_gluon import matmul

    with pytest.raises(ValueError, match="matmul: a is on cpu; pass CUDA tensors"):
        matmul(torch.empty(8, 8), torch.empty(8, 8), precision="tf32")


# Three bfloat16 numbers for one float32


def planes(x: torch.Tensor, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """What split_kernel makes of the rows of x: (3, R, K) in float64, and the exponents as a column."""
    from triton_kernels.matmul_split import _split

    desc, exponents = _split(x.to(device))
    R, K = x.shape
    return desc.base[:, :K].cpu().double().view(3, R, K), exponents.cpu()[:, None]


@pytest.mark.parametrize("power", [0, -140, 126])
def test_three_planes_and_an_exponent_are_the_number(power: int, device: str) -> None:
    source = torch.Generator().manual_seed(0)
    x = torch.randn(50, 301, generator=source).clamp(-3.9, 3.9).double().ldexp(torch.tensor(power)).float()
    x[3] = 0.0
    x[4, :-1] = 0.0
    parts, exponents = planes(x, device)
    assert torch.equal(torch.ldexp(parts.sum(0), exponents), x.double())
    largest = parts.sum(0).abs().amax(1)
    assert ((largest >= 1) & (largest < 2) | (largest == 0)).all()

    x[5, 7], x[6, 8], x[7, 9] = torch.tensor([torch.inf, -torch.inf, torch.nan])
    parts, exponents = planes(x, device)
    assert torch.equal(torch.ldexp(parts.sum(0), exponents).nan_to_num(nan=7.0), x.double().nan_to_num(nan=7.0))
    assert parts[1:].isfinite().all()


def truncated(x: torch.Tensor) -> torch.Tensor:
    """To 24 significant bits, towards zero, as tensor cores leave their sums."""
    fraction, exponent = torch.frexp(x)
    return torch.ldexp(torch.trunc(fraction * 2.0**24), exponent - 24)


def tensor_core(a: torch.Tensor, b: torch.Tensor, acc: torch.Tensor) -> torch.Tensor:
    """acc + a b^T, 16 exact products at a time."""
    for k in range(0, a.shape[1], 16):
        acc = truncated(acc + a[:, k : k + 16] @ b[:, k : k + 16].T)
    return acc


@pytest.mark.parametrize("K", [1, 2, 3, 16, 17, 100, 1024, 16384])
@pytest.mark.parametrize("kind", ["normal", "positive", "magnitudes"])
@pytest.mark.parametrize("BLOCK_K", [32, 64])
def test_split_products_meet_the_bound_although_tensor_cores_truncate(
    K: int, kind: str, BLOCK_K: int, device: str
) -> None:
    """The order of matmul_split's additions, simulated: each within the bound of float32 products and sums."""
    from suite.ops.matmul import matmul_limit

    size = 24 if K > 1000 else 64
    source = torch.Generator().manual_seed(K)
    a, b = (torch.randn(size, K, generator=source) for _ in range(2))
    if kind == "positive":
        a, b = a.abs(), b.abs()
    elif kind == "magnitudes":
        a, b = (x * 10.0 ** (4 * torch.randn(size, K, generator=source)).clamp(-12, 12) for x in (a, b))
    (parts_a, exponents_a), (parts_b, exponents_b) = planes(a, device), planes(b, device)
    acc, lower = torch.zeros(size, size), torch.zeros(size, size, dtype=torch.float64)
    for k in range(0, K, BLOCK_K):
        (a1, a2, a3), (b1, b2, b3) = parts_a[:, :, k : k + BLOCK_K], parts_b[:, :, k : k + BLOCK_K]
        for x, y in [(a3, b2), (a2, b3)] if K <= 16 else []:
            lower = tensor_core(x, y, lower)
        for x, y in [(a1, b3), (a3, b1), (a2, b2), (a1, b2), (a2, b1)]:
            lower = tensor_core(x, y, lower)
        acc += tensor_core(a1, b1, torch.zeros_like(lower)).float()
    c = torch.ldexp((acc + lower.float()).double(), exponents_a + exponents_b.T)

    value, spread_squared = a.double() @ b.double().T, a.double().square() @ b.double().square().T
    limit = matmul_limit(value, spread_squared, K, size * size, "float32", "ieee")
    assert ((c.float().double() - value).abs() / limit).max() <= 1
