"""Triton kernels: their launchers' errors, and what the compiler makes of them for devices that are not here.

Kernels compile without a GPU: each compilation test starts this file as a program, which calls the launchers with a
driver that compiles for the architecture asked for and runs nothing, and prints what it found in the machine code.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
DTYPES = ["float32", "float16", "bfloat16"]
BUILDS = {  # process: what it calls (see _calls); every configuration of a call is compiled
    "elementwise": [
        *[f"{operation} {dtype}" for operation in ("vector_add", "matrix_add", "sigmoid") for dtype in DTYPES],
        *["vector_add huge", "matrix_add tall", "sigmoid permuted"],
    ],
    "matmul of 16 bits": [
        *["matmul bfloat16 4096", "matmul float16 1024", "matmul bfloat16 16x14336x4096"],
        *["matmul bfloat16 1001x1000x1000", "matmul bfloat16 99x101x103"],
    ],
    "matmul by columns": ["matmul bfloat16 4096 nt", "matmul float16 4096 tt", "matmul tf32 4096 tn"],
    "matmul of 8 bits": ["matmul float8_e4m3fn 4096", "matmul float8_e4m3fn 1008x1008x1024"],
    "matmul of 32 bits": ["matmul tf32 1001x1004x4096", "matmul float32 4096"],
    "attention": ["attention float16 64", "attention bfloat16 128 causal", "attention bfloat16 128 decode"],
    "attention, large": ["attention bfloat16 256", "attention float32 128 causal"],
    "sm_80": ["vector_add float32", "sigmoid float32", "matmul bfloat16 1024", "attention bfloat16 256 decode"],
}


# The program that compiles.


class _OnGPU(torch.Tensor):
    """Memory of the host (never touched) that says it is on a GPU."""

    is_cuda = True
    device = torch.device("cuda", 0)  # type: ignore[assignment]


def _empty(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype).as_subclass(_OnGPU)


def _calls(name: str) -> Iterator[Callable[[], object]]:
    """The launches that a name in BUILDS stands for."""
    from triton_kernels.attention import attention
    from triton_kernels.matmul import matmul
    from triton_kernels.matrix_add import matrix_add
    from triton_kernels.sigmoid import sigmoid
    from triton_kernels.vector_add import vector_add

    operation, kind, *rest = name.split()
    dtype = getattr(torch, kind, torch.float32)
    if operation == "vector_add" and kind == "huge":
        x = _empty(1, dtype=torch.float16).expand(2**31 + 1)
        yield lambda: vector_add(x, x)
    elif operation == "vector_add":
        x = _empty(4096, dtype=dtype)
        yield lambda: vector_add(x, x)
    elif operation == "matrix_add" and kind == "tall":
        x = _empty(8, 2**25, dtype=torch.float32).t()
        yield lambda: matrix_add(x, x)
    elif operation == "matrix_add":
        x = _empty(4096, 4096, dtype=dtype)
        yield lambda: matrix_add(x, x)
        yield lambda: matrix_add(x, x.t())
    elif operation == "sigmoid" and kind == "permuted":
        x = _empty(16, 32, 64, 128, dtype=torch.float32).permute(3, 1, 2, 0)[:, ::2]
        yield lambda: sigmoid(x)
    elif operation == "sigmoid":
        x = _empty(4096, 4096, dtype=dtype)
        yield lambda: sigmoid(x)
        yield lambda: sigmoid(x.t())
    elif operation == "matmul":
        M, N, K = (int(size) for size in (rest[0].split("x") * 3)[:3])
        a, b = _empty(M, K, dtype=dtype), _empty(K, N, dtype=dtype)
        if rest[1:]:
            a = _empty(K, M, dtype=dtype).t() if rest[1][0] == "t" else a
            b = _empty(N, K, dtype=dtype).t() if rest[1][1] == "t" else b
        if dtype == torch.float8_e4m3fn:
            scale, columns = _empty(1, dtype=torch.float32)[0], _empty(N, K, dtype=dtype).t()
            for precision in ("promoted", "fast"):
                yield partial(matmul, a, columns, scale, scale, precision=precision)
        else:
            yield lambda: matmul(a, b, precision="tf32" if kind == "tf32" else "ieee")
    elif operation == "attention":
        D, causal, decode = int(rest[0]), "causal" in rest, "decode" in rest
        q = _empty(1, 4, 1 if decode else 1024, D, dtype=dtype)
        k = _empty(1, 2, 1024, D, dtype=dtype)
        yield lambda: attention(q, k, k, causal=causal)


def _spills_in_loops(sass: str) -> int:
    """The most accesses to local memory in one loop: a spill before or after the loop costs nothing."""
    labels: dict[str, int] = {}
    code: list[str] = []
    worst = 0
    for line in sass.splitlines():
        if label := re.match(r"(\.L_x_\d+):", line):
            labels[label[1]] = len(code)
        elif instruction := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s*(.*?)\s*;", line):
            code.append(instruction[1])
            if (target := re.search(r"BRA `\((\.L_x_\d+)\)", code[-1])) and target[1] in labels:
                loop = code[labels[target[1]] :]
                worst = max(worst, sum("LDL" in line or "STL" in line for line in loop))
    return worst


def _examine(cubin: bytes) -> dict[str, Any]:
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        sass = subprocess.run([tools / "nvdisasm", "-c", file.name], capture_output=True, text=True, check=True).stdout
    instructions = re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s*(?:@!?U?P\w+\s+)?([\w.]+)", sass, flags=re.MULTILINE)
    return {"instructions": Counter(instructions), "spills": _spills_in_loops(sass)}


def _compile(arch: int, names: list[str]) -> list[dict[str, Any]]:
    """Makes every launch of these names compile, and returns a record for each kernel compiled."""
    import triton
    from triton.backends.compiler import GPUTarget

    records: list[dict[str, Any]] = []
    grids: list[tuple[int, ...]] = []

    class Utils:
        @staticmethod
        def load_binary(name: str, cubin: bytes, shared: int, device: int) -> tuple[Any, ...]:
            records.append({"kernel": name, "shared": shared, **_examine(cubin)})
            return "module", "function", 0, 0, 1024

        @staticmethod
        def get_device_properties(device: int) -> dict[str, int]:
            return {"max_shared_mem": 227 * 1024 if arch == 90 else 163 * 1024}

    class Driver:
        utils = Utils()

        @staticmethod
        def launcher_cls(src: object, metadata: object) -> Callable[..., None]:
            return lambda *args: grids.append(args[:3])

        def __getattr__(self, name: str) -> object:
            target = GPUTarget("cuda", arch, 32)
            return {"get_current_target": lambda: target, "get_benchmarker": lambda: self._benchmark}.get(
                name, lambda *args: 0
            )

        @staticmethod
        def _benchmark(call: Callable[[], object], quantiles: object) -> list[float]:
            call()
            return [1.0, 1.0, 1.0]

    empty = torch.empty

    def empty_on_gpu(*args: Any, **options: Any) -> torch.Tensor:
        options.pop("device", None)
        return empty(*args, **options).as_subclass(_OnGPU)

    triton.runtime.driver.set_active(Driver())  # type: ignore[arg-type]
    torch.cuda.current_device = lambda: 0
    properties = type("Properties", (), {"multi_processor_count": 132})
    torch.cuda.get_device_properties = lambda device=None: properties  # type: ignore[assignment, return-value]
    for name in names:
        first = len(records)
        for call in _calls(name):
            torch.empty = empty_on_gpu  # type: ignore[assignment]
            call()
            torch.empty = empty
        for record in records[first:]:
            record["name"] = name
    assert all(0 < grid[0] < 2**31 and grid[1:] == (1, 1) for grid in grids), grids
    return records


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    print(json.dumps(_compile(int(sys.argv[1]), sys.argv[2:])))
    sys.exit()


# The tests.


def build(name: str, tmp_path: Path) -> list[dict[str, Any]]:
    """Compiled in a process of its own, which the interpreter is not on in, with a cache that no real launch reads."""
    arch = "80" if name == "sm_80" else "90"
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, __file__, arch, *BUILDS[name]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    records: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    assert {record["name"] for record in records} == set(BUILDS[name])
    return records


def count(record: dict[str, Any], pattern: str) -> int:
    return sum(number for name, number in record["instructions"].items() if re.match(pattern, name))


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDS)
def test_compiles_to_what_was_meant(name: str, tmp_path: Path) -> None:
    for record in build(name, tmp_path):
        call = record["name"]
        if call == "matmul bfloat16 99x101x103":
            continue  # rows that start anywhere are read element by element, each with an address of its own
        # Registers do not spill where it costs: five accesses in a loop of hundreds are the most there may be.
        assert record["spills"] <= 5, record
        streams = call.startswith(("vector_add", "matrix_add", "sigmoid")) and call.split()[1] in DTYPES
        if streams or record["kernel"] == "transpose_kernel":
            assert count(record, r"LDG\.E(\.\w+)*\.128") > 0, record
            assert count(record, r"STG\.E(\.\w+)*\.128") > 0, record
            continue
        if call.startswith(("matmul", "attention")):
            assert count(record, r"LDGSTS.*128") > 0, record
            rate = "FFMA" if "float32" in call else "QGMMA" if "float8" in call else "HGMMA"
            if name == "sm_80" or call.endswith(("16x14336x4096", "decode")):
                rate = "HMMA"
            assert count(record, rate) >= (100 if rate == "FFMA" else 1), record
            assert rate != "FFMA" or count(record, "HG?MMA") == 0, record
        if call.endswith((" nt", " tt")):  # a wait in the loop and one after it, not one for each wgmma
            assert count(record, r"WARPGROUP\.DEPBAR") <= 2, record


INVALID = [
    ("vector_add(e(2, 3), e(2, 3))", "vector_add: a must be (N,); got (2, 3)"),
    ("vector_add(e(4), e(5))", "vector_add: a is (N,)=(4,), so b must be (4,); got (5,)"),
    ("vector_add(e(4), e(4, dtype=half))", "vector_add: a is torch.float32, so b must be too; got torch.float16"),
    ("vector_add(e(4, dtype=int), e(4, dtype=int))", "a must be float32, float16 or bfloat16; got torch.int64"),
    ("matrix_add(e(4), e(4))", "matrix_add: a must be (M, N); got (4,)"),
    ("matrix_add(e(4, 5), e(5, 4))", "matrix_add: a is (M, N)=(4, 5), so b must be (4, 5); got (5, 4)"),
    ("matrix_add(e(4, 5), e(4, 5, dtype=half))", "matrix_add: a is torch.float32, so b must be too"),
    ("sigmoid(e(4, dtype=int))", "sigmoid: x must be float32, float16 or bfloat16; got torch.int64"),
    ("matmul(e(4), e(4, 5))", "matmul: a must be (M, K); got (4,)"),
    ("matmul(e(128, 64), e(32, 256))", "matmul: a is (M, K)=(128, 64), so b must be (64, N); got (32, 256)"),
    ("matmul(e(4, 4), e(4, 4, dtype=half))", "matmul: a is torch.float32, so b must be too"),
    ("matmul(e(4, 4), e(4, 4), precision='high')", 'precision must be "ieee", or "tf32" for float32; got "high"'),
    ("matmul(*2 * [e(4, 4, dtype=half)], precision='tf32')", 'got "tf32" for torch.float16'),
    ("attention(*3 * [e(8, 64)])", "attention: q must be (B, H, S_q, D); got (8, 64)"),
    ("attention(e(1, 2, 3, 64), *2 * [e(1, 2, 3, 32)])", "so k must be (1, H_kv, S_k, 64); got (1, 2, 3, 32)"),
    ("attention(e(1, 2, 3, 64), e(1, 2, 5, 64), e(1, 2, 4, 64))", "so v must be (1, 2, 5, 64); got (1, 2, 4, 64)"),
    ("attention(e(1, 3, 5, 64), *2 * [e(1, 2, 5, 64)])", "H must be a multiple of H_kv; got H=3, H_kv=2"),
    ("attention(e(1, 1, 5, 64), *2 * [e(1, 1, 5, 64, dtype=half)])", "attention: q is torch.float32, so k and v must"),
]
NOT_COVERED = [
    ("attention(*3 * [e(1, 3, 5, 48)])", "attention: D must be one of (16, 32, 64, 128, 256); got 48"),
    ("attention(*3 * [e(1, 1, 5, 64)], sm_scale=-1.0)", "attention: sm_scale must not be negative; got -1.0"),
    ("matmul(e(1, 1).expand(2**28 + 1, 1), e(1, 1))", "M must be at most 2^28, N at most 2^26; got 268435457 and 1"),
    ("matmul(e(1, 1), e(1, 1).expand(1, 2**26 + 1))", "M must be at most 2^28, N at most 2^26; got 1 and 67108865"),
]


@pytest.mark.parametrize(
    ("call", "message", "error"),
    [(*case, ValueError) for case in INVALID] + [(*case, NotImplementedError) for case in NOT_COVERED],
    ids=[call for call, _ in INVALID + NOT_COVERED],
)
def test_launcher_errors(call: str, message: str, error: type[Exception], device: str) -> None:
    operation = call.split("(")[0]
    names = {
        operation: getattr(import_module(f"triton_kernels.{operation}"), operation),
        "e": lambda *shape, dtype=torch.float32: torch.empty(*shape, dtype=dtype, device=device),
        "half": torch.float16,
    }
    with pytest.raises(error, match=re.escape(message)):
        eval(call, names)


def test_cpu_tensors_need_the_interpreter() -> None:
    """Without TRITON_INTERPRET=1 every launcher says what to do, before it touches the driver."""
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


@pytest.mark.parametrize("name", DTYPES)
def test_sigmoid_at_the_ends(name: str, device: str) -> None:
    """Infinities, NaN and results below the smallest normal number, within 2 ulp of float32 or 0.55 of 16 bits."""
    from triton_kernels.sigmoid import sigmoid

    dtype = getattr(torch, name)
    special = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, -0.0], dtype=dtype, device=device)
    assert sigmoid(special)[:2].tolist() == [1.0, 0.0]
    assert sigmoid(special)[2].isnan()
    assert sigmoid(special)[3:].tolist() == [0.5, 0.5]

    x = torch.cat([torch.linspace(-110, 110, 200_001), torch.linspace(-6, 6, 200_001)]).to(dtype).to(device)
    truth = torch.sigmoid(x.double())
    _, exponent = torch.frexp(truth)
    info = torch.finfo(dtype)
    ulp = torch.exp2(exponent.double()).mul(info.eps / 2).clamp(min=info.smallest_normal * info.eps)
    error = ((sigmoid(x).double() - truth).abs() / ulp).max().item()
    assert error <= (2 if dtype == torch.float32 else 0.55)
