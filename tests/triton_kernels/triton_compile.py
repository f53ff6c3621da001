"""Compiles the launches of Triton and Gluon kernels for a GPU that is not present, and prints what the cubins contain.

    python triton_compile.py ARCH LAUNCH ...

ARCH: compute capability, 80 or 90. LAUNCH: "KERNEL DTYPE ...", as `launches` reads it. Every configuration of a launch
is compiled, or, if it ends with " first", the first of each autotuner; none runs. Prints a JSON list with one record
per cubin: launch, kernel, shared (bytes), instructions (opcode -> count), spills (local accesses in one loop, at most).

Run in a process of its own without TRITON_INTERPRET: it replaces Triton's driver and torch's allocations.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
SHARED_BYTES = {80: 163 * 1024, 90: 227 * 1024}  # per program


class GpuTensor(torch.Tensor):
    """Host memory, never touched, that claims to be on a GPU."""

    is_cuda = True
    device = torch.device("cuda", 0)  # type: ignore[assignment]


def empty(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype).as_subclass(GpuTensor)


def launches(name: str) -> Iterator[Callable[[], object]]:
    """The calls that a launch name stands for.

    "vector_add DTYPE|huge"; "matrix_add[_VARIANT] DTYPE|tall"; "sigmoid[_VARIANT] DTYPE|permuted"; "silu_mul[_grad]
    DTYPE MxN"; "rope DTYPE BxSxHxH_kvxD"; "top_k[_bitonic] DTYPE MxNxk";
    "softmax|[add_]rms_norm|layer_norm|sum|cross_entropy[_VARIANT] DTYPE MxN"; "linear_cross_entropy DTYPE TxVxH";
    "matmul[_VARIANT] DTYPE|tf32 LAYOUT SIZE|MxNxK [PRECISION of float8]"; "attention_gluon DTYPE D [causal]
    [long|few]"; "attention[_VARIANT|_grad] DTYPE D [causal [window]] [decode]"; "paged_attention[_parts] DTYPE D";
    "linear_sigmoid[_VARIANT|_grad] DTYPE|tf32 SIZE|MxNxK"; "[grouped_]block_scaled_matmul[_VARIANT] float8_e4m3fn
    MxNxK|TxExKxN"; "conv2d[_VARIANT] DTYPE|tf32 SIZE C K TAPS STRIDE"; "lstm[_persistent] DTYPE BxH";
    "grouped_matmul[_VARIANT|_grad] DTYPE LAYOUT TxExKxN"; "int4_matmul[_VARIANT] DTYPE MxNxK [zeros]".
    """
    kernel, kind, *rest = name.split()
    dtype = getattr(torch, kind, torch.float32)
    operation = max((each for each in BUILDERS if f"{kernel}_".startswith(f"{each}_")), key=len)
    module = ".".join(filter(None, ("triton_kernels", operation, kernel.removeprefix(operation).lstrip("_"))))
    function = getattr(import_module(module), operation)
    yield from BUILDERS[operation](function, kind, dtype, rest)


def vector_add(function: Callable[..., Any], kind: str, dtype: torch.dtype, rest: list[str]) -> Iterator[Any]:
    x = empty(1, dtype=torch.float16).expand(2**31 + 1) if kind == "huge" else empty(4096, dtype=dtype)
    yield partial(function, x, x)


def matrix_add(function: Callable[..., Any], kind: str, dtype: torch.dtype, rest: list[str]) -> Iterator[Any]:
    tall = kind == "tall"
    x = empty(8, 2**25, dtype=torch.float32).t() if tall else empty(4096, 4096, dtype=dtype)
    yield partial(function, x, x)
    if not tall and not function.__module__.endswith(".flat"):
        yield partial(function, x, x.t())


def sigmoid(function: Callable[..., Any], kind: str, dtype: torch.dtype, rest: list[str]) -> Iterator[Any]:
    if kind == "permuted":
        yield partial(function, empty(16, 32, 64, 128, dtype=torch.float32).permute(3, 1, 2, 0)[:, ::2])
        return
    x = empty(4096, 4096, dtype=dtype)
    yield partial(function, x)
    if function.__module__.endswith(".fast_exponential"):  # the plain kernel reads single elements of a transposed x
        yield partial(function, x.t())


def gated(function: Callable[..., Any], kind: str, dtype: torch.dtype, rest: list[str]) -> Iterator[Any]:
    M, N = map(int, rest[0].split("x"))
    operands = [empty(M, N, dtype=dtype) for name in ("a", "b", "dy") if name in signature(function).parameters]
    for activation in ("silu", "gelu_tanh"):
        yield partial(function, *operands, activation=activation)


def rope(function: Callable[..., Any], kind: str, dtype: torch.dtype, rest: list[str]) -> Iterator[Any]:
    B, S, H, H_kv, D = map(int, rest[0].split("x"))
    q, k, angles = (empty(*shape, dtype=dtype) for shape in ((B, S, H, D), (B, S, H_kv, D), (S, D // 2)))
    for layout in ("halves", "pairs"):
        yield partial(function, q, k, angles, angles, layout=layout)


def rows(function: Callable[..., Any], kind: str, dtype: torch.dtype, rest: list[str]) -> Iterator[Any]:
    M, N = map(int, rest[0].split("x"))
    vectors = {"weight", "bias"} & signature(function).parameters.keys()
    arguments = {name: empty(N, dtype=dtype) for name in vectors} | ({"eps": 1e-5} if vectors else {})
    matrices = {"residual", "dy"} & signature(function).parameters.keys()
    arguments |= {name: empty(M, N, dtype=dtype) for name in matrices}
    yield partial(function, empty(M, N, dtype=dtype), **arguments)


def quantize(function: Callable[..., Any], kind: str, dtype: torch.dtype, rest: list[str]) -> Iterator[Any]:
    M, N = map(int, rest[0].split("x"))
    names = signature(function).parameters.keys()
    operands = [empty(M, N, dtype=dtype) for name in ("a", "b", "x") if name in names]
    of_norm = {"weight": empty(N, dtype=dtype), "eps": 1e-5} if "weight" in names else {}
    for group in ("row", "128") if function.__module__.endswith(".held") else ("row", "128", "128x128"):
        for to in ("float8_e4m3fn", "int8"):
            yield partial(function, *operands, **of_norm, group=group, to=to)


def losses(function: Callable[..., Any], kind: str, dtype: torch.dtype, rest: list[str]) -> Iterator[Any]:
    T, V, *H = map(int, rest[0].split("x"))
    logits = [empty(n, *H or (V,), dtype=dtype) for n in ((T, V) if H else (T,))]
    yield partial(function, *logits, empty(T, dtype=torch.int64))


def top_k(function: Callable[..., Any], kind: str, dtype: torch.dtype, rest: list[str]) -> Iterator[Any]:
    M, N, k = map(int, rest[0].split("x"))
    yield partial(function, empty(M, N, dtype=dtype), k=k)


def sums(function: Callable[..., Any], kind: str, dtype: torch.dtype, rest: list[str]) -> Iterator[Any]:
    M, N = map(int, rest[0].split("x"))
    for axis in (None, 0, 1):
        yield partial(function, empty(M, N, dtype=dtype), axis=axis)


def matmul(function: Callable[..., Any], kind: str, dtype: torch.dtype, rest: list[str]) -> Iterator[Any]:
    layout, size, *precisions = rest
    M, N, K = (int(each) for each in (size.split("x") * 3)[:3])
    a, b = (
        empty(*shape, dtype=dtype) if letter == "n" else empty(*shape[::-1], dtype=dtype).t()
        for letter, shape in zip(layout, ((M, K), (K, N)), strict=True)
    )
    if dtype == torch.float8_e4m3fn:
        scale = empty(1, dtype=torch.float32)[0]
        for precision in precisions or ("promoted", "fast"):
            yield partial(function, a, b, scale, scale, precision=precision)
    else:
        yield partial(function, a, b, precision="tf32" if kind == "tf32" else "ieee")


def block_scaled(function: Callable[..., Any], kind: str, dtype: torch.dtype, rest: list[str]) -> Iterator[Any]:
    M, *E, K, N = map(int, rest[0].split("x"))
    N, K = (N, K) if E else (K, N)  # TxExKxN or MxNxK
    groups, sizes = -(-K // 128), [empty(*E, dtype=torch.int32)] if E else []
    scales = empty(M, groups, dtype=torch.float32), empty(*E, -(-N // 128), groups, dtype=torch.float32)
    yield partial(function, empty(M, K, dtype=dtype), scales[0], empty(*E, N, K, dtype=dtype), scales[1], *sizes)


def int4(function: Callable[..., Any], kind: str, dtype: torch.dtype, rest: list[str]) -> Iterator[Any]:
    M, N, K = map(int, rest[0].split("x"))
    groups = empty(N, K // 128, dtype=dtype), empty(N, K // 128, dtype=torch.uint8)
    weight = empty(N, K // 2, dtype=torch.uint8)
    yield partial(function, empty(M, K, dtype=dtype), weight, *groups[: 2 if "zeros" in rest else 1])


def attention(function: Callable[..., Any], kind: str, dtype: torch.dtype, rest: list[str]) -> Iterator[Any]:
    D = int(rest[0])
    if function.__module__.endswith(".gluon"):
        # More tiles than programs, the last block of keys not full. `long`: 3 consumers. `few`: a tile per program.
        module: Any = import_module(function.__module__)
        module.tile_table = lambda *_, device: empty(2, 132, dtype=torch.int32)
        heads, S = (140, 570) if "long" in rest else (2, 256) if "few" in rest else (140, 200)
        q, k = (empty(1, each, S, D, dtype=dtype) for each in (heads, heads // 2))
        yield partial(function, q, k, k, causal="causal" in rest)
        return
    q = empty(1, 4, 1 if "decode" in rest else 1024, D, dtype=dtype)
    k = empty(1, 2, 1024, D, dtype=dtype)
    scales = 3 * [empty(1, dtype=torch.float32)[0]] if dtype == torch.float8_e4m3fn else []
    window = {"window": 100} if "window" in rest else {}
    yield partial(function, q, k, k, *scales, causal="causal" in rest, **window)


def paged(function: Callable[..., Any], kind: str, dtype: torch.dtype, rest: list[str]) -> Iterator[Any]:
    float8 = dtype == torch.float8_e4m3fn
    q = empty(8, 1, 32, int(rest[0]), dtype=torch.bfloat16 if float8 else dtype)
    pages = empty(1024, 16, 8, int(rest[0]), dtype=dtype)
    scales = 2 * [empty(1, dtype=torch.float32)[0]] if float8 else []
    yield partial(function, q, pages, pages, empty(8, 64, dtype=torch.int32), empty(8, dtype=torch.int32), *scales)


def attention_grad(function: Callable[..., Any], kind: str, dtype: torch.dtype, rest: list[str]) -> Iterator[Any]:
    q, k = (empty(1, heads, 1024, int(rest[0]), dtype=dtype) for heads in (4, 2))
    scales = 4 * [empty(1, dtype=torch.float32)[0]] if dtype == torch.float8_e4m3fn else []
    yield partial(function, q, k, k, q, *scales, causal="causal" in rest, **dict.fromkeys({"window"} & {*rest}, 100))


def linear(function: Callable[..., Any], kind: str, dtype: torch.dtype, rest: list[str]) -> Iterator[Any]:
    M, N, K = (int(each) for each in (rest[0].split("x") * 3)[:3])
    x, weight, bias, dy = (empty(*shape, dtype=dtype) for shape in ((M, K), (N, K), (N,), (M, N)))
    given = (x, weight, bias, dy) if "dy" in signature(function).parameters else (x, weight, bias)
    yield partial(function, *given, precision="tf32" if kind == "tf32" else "ieee")


def conv2d(function: Callable[..., Any], kind: str, dtype: torch.dtype, rest: list[str]) -> Iterator[Any]:
    size, C, K, taps, stride = map(int, rest)
    x, weight = empty(64, size, size, C, dtype=dtype), empty(K, taps, taps, C, dtype=dtype)
    precision = "tf32" if kind == "tf32" else "ieee"
    yield partial(function, x, weight, stride=stride, padding=taps // 2, precision=precision)


def lstm(function: Callable[..., Any], kind: str, dtype: torch.dtype, rest: list[str]) -> Iterator[Any]:
    torch.zeros = lambda *shape, **options: torch.empty(*shape, **options)  # type: ignore[assignment]  # the counter
    B, H = map(int, rest[0].split("x"))
    shapes = (2, B, H), (4 * H, H), (4 * H, H), (4 * H,), (B, H), (B, H)
    yield partial(function, *(empty(*shape, dtype=dtype) for shape in shapes))


def grouped(function: Callable[..., Any], kind: str, dtype: torch.dtype, rest: list[str]) -> Iterator[Any]:
    T, E, K, N = map(int, rest[1].split("x"))
    if "dy" in signature(function).parameters:
        yield partial(function, empty(T, K, dtype=dtype), empty(T, N, dtype=dtype), empty(E, dtype=torch.int32))
        return
    weight = empty(E, K, N, dtype=dtype) if rest[0] == "nn" else empty(E, N, K, dtype=dtype).mT
    yield partial(function, empty(T, K, dtype=dtype), weight, empty(E, dtype=torch.int32))


BUILDERS: dict[str, Callable[..., Iterator[Any]]] = {
    "vector_add": vector_add,
    "matrix_add": matrix_add,
    "sigmoid": sigmoid,
    "silu_mul": gated,
    "silu_mul_grad": gated,
    "rope": rope,
    "softmax": rows,
    "rms_norm": rows,
    "add_rms_norm": rows,
    "rms_norm_grad": rows,
    "layer_norm_grad": rows,
    "layer_norm": rows,
    "cumsum": rows,
    "cross_entropy": losses,
    "linear_cross_entropy": losses,
    "sum": sums,
    "quantize": quantize,
    "top_k": top_k,
    "silu_mul_quantize": quantize,
    "rms_norm_quantize": quantize,
    "matmul": matmul,
    "block_scaled_matmul": block_scaled,
    "int4_matmul": int4,
    "grouped_block_scaled_matmul": block_scaled,
    "grouped_matmul": grouped,
    "grouped_matmul_grad": grouped,
    "linear_sigmoid": linear,
    "linear_sigmoid_grad": linear,
    "attention": attention,
    "attention_grad": attention_grad,
    "paged_attention": paged,
    "conv2d": conv2d,
    "lstm": lstm,
}


def spills_in_loops(sass: str) -> int:
    """Most accesses to local memory in one loop; spills outside loops cost nothing."""
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


def contents(cubin: bytes) -> dict[str, Any]:
    """Opcodes of the machine code with their counts, and spills; kept in the cache of builds."""
    from cuda_ref.build import cache as _cache

    def make(folder: Path) -> None:
        (folder / "contents.json").write_text(json.dumps(disassembled(cubin)))

    key = hashlib.sha256(Path(__file__).read_bytes() + cubin).hexdigest()[:32]
    found: dict[str, Any] = json.loads((_cache.entry(f"contents-{key}", make) / "contents.json").read_text())
    return found


def disassembled(cubin: bytes) -> dict[str, Any]:
    """The result of `contents`, from nvdisasm."""
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        sass = subprocess.run(
            [tools / "nvdisasm", "-c", "-ndf", file.name], capture_output=True, text=True, check=True
        ).stdout
    instructions = re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s*(?:@!?U?P\w+\s+)?([\w.]+)", sass, flags=re.MULTILINE)
    return {"instructions": Counter(instructions), "spills": spills_in_loops(sass)}


class CompilingDriver:
    """A Triton driver for compute capability `arch` that records cubins and grids, and launches nothing."""

    def __init__(self, arch: int) -> None:
        from triton.backends.compiler import GPUTarget

        self.arch = arch
        self.records: list[dict[str, Any]] = []
        self.grids: list[tuple[int, ...]] = []
        self.first_only = False
        self.tuned = 0
        target = GPUTarget("cuda", arch, 32)
        self.answers: dict[str, Callable[..., Any]] = {"get_current_target": lambda: target}

    @property
    def utils(self) -> CompilingDriver:
        return self

    def __getattr__(self, name: str) -> object:
        return self.answers.get(name, lambda *args: 0)

    def load_binary(self, name: str, cubin: bytes, shared: int, device: int) -> tuple[Any, ...]:
        self.records.append({"kernel": name, "shared": shared, **contents(cubin)})
        return "module", "function", 0, 0, 1024

    def get_device_properties(self, device: int) -> dict[str, int]:
        """Shared memory of the architecture; the rest is that of an H200."""
        clocks = {"sm_clock_rate": 1_980_000, "mem_clock_rate": 3_201_000, "mem_bus_width": 6144}
        return {"max_shared_mem": SHARED_BYTES[self.arch], "multiprocessor_count": 132, **clocks}

    def launcher_cls(self, src: object, metadata: object) -> Callable[..., None]:
        return lambda *args: self.grids.append(args[:3])

    def benchmark(self, call: Callable[[], object], quantiles: object) -> list[float]:
        """A "time" by which an autotuner chooses its first configuration."""
        if self.first_only and self.tuned:
            return [2.0, 2.0, 2.0]
        self.tuned += 1
        call()
        return [1.0, 1.0, 1.0]


def pretend_gpu(arch: int) -> CompilingDriver:
    """Makes torch and Triton take GpuTensor for a tensor of a GPU of compute capability `arch`."""
    import triton

    from triton_kernels._runtime import autotuner as _autotuner
    from triton_kernels._runtime import launch as _launch

    # A choice that an earlier run has kept would leave one configuration to compile.
    _autotuner.Autotuner._kept = lambda self, key, configs: None  # type: ignore[method-assign]
    _autotuner.Autotuner._keep = lambda self, key, configs: None  # type: ignore[method-assign]
    driver = CompilingDriver(arch)
    _autotuner.Autotuner.do_bench = property(lambda self: driver.benchmark)  # type: ignore[assignment]
    triton.runtime.driver.set_active(driver)  # type: ignore[arg-type]
    _launch.make_context_current = lambda index: None
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_name = lambda device=None: f"pretended sm_{arch}"  # type: ignore[assignment]
    torch.cuda.is_current_stream_capturing = lambda: False
    torch.cuda.get_device_capability = lambda device=None: divmod(arch, 10)  # type: ignore[assignment, return-value]
    properties = type("Properties", (), {"multi_processor_count": 132})
    torch.cuda.get_device_properties = lambda device=None: properties  # type: ignore[assignment, return-value]
    return driver


def compile_launches(arch: int, names: list[str]) -> list[dict[str, Any]]:
    """A record for each cubin that the launches of these names need."""
    real_empty = torch.empty

    def empty_on_gpu(*args: Any, **options: Any) -> torch.Tensor:
        options.pop("device", None)
        return real_empty(*args, **options).as_subclass(GpuTensor)

    driver = pretend_gpu(arch)
    for name in names:
        first, driver.first_only = len(driver.records), name.endswith(" first")
        for call in launches(name.removesuffix(" first")):
            driver.tuned = 0
            torch.empty = empty_on_gpu  # type: ignore[assignment]
            call()
            torch.empty = real_empty
        for record in driver.records[first:]:
            record["launch"] = name
    assert all(0 < grid[0] < 2**31 and max(grid[1:]) < 2**16 for grid in driver.grids), driver.grids
    return driver.records


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    print(json.dumps(compile_launches(int(sys.argv[1]), sys.argv[2:])))
