"""Building a .cu: what is compiled when, what is kept, what is refused, and what is said when it fails."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from cuda_ref import _cache, _rewrite, build, compiler

ROOT = Path(__file__).resolve().parents[1]
CPU = torch.device("cpu")
needs_cxx = pytest.mark.skipif(build.missing("cpu") is not None, reason=str(build.missing("cpu")))
needs_nvcc = pytest.mark.skipif(build.missing("cuda") is not None, reason=str(build.missing("cuda")))

DOUBLED = """
#include "common.cuh"
#include "factor.cuh"
__global__ void doubled(const float* x, float* out, float offset) {
    out[threadIdx.x] = FACTOR * x[threadIdx.x] + offset;
}
extern "C" int launch_doubled(const void* x, void* out, int64_t n, float offset, cudaStream_t stream,
                              LaunchRecord* record) {
    record->set(1, n);
    doubled<<<1, n, 0, stream>>>(static_cast<const float*>(x), static_cast<float*>(out), offset);
    return cudaGetLastError();
}
"""
SMALL = (
    '#include <cuda_runtime.h>\nstruct LaunchRecord;\nextern "C" int f(cudaStream_t s, LaunchRecord* r) { return 0; }\n'
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernel-suite" / "cuda"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "factor.cuh").write_text("#pragma once\n#define FACTOR 2\n")
    (tmp_path / "doubled.cu").write_text(DOUBLED)
    return tmp_path / "doubled.cu"


class Counted:
    """A compiler that notes what it is asked to compile."""

    def __init__(self, folder: Path, real: str) -> None:
        folder.mkdir(parents=True)
        self.log, self.script = folder / "log", folder / Path(real).name.replace("c++", "g++")
        self.log.touch()
        self.script.write_text(f'#!/bin/sh\necho "$*" >> {self.log}\nexec {real} "$@"\n')
        self.script.chmod(0o755)

    @property
    def runs(self) -> int:
        return sum(" -c " in line or " -cubin " in line for line in self.log.read_text().splitlines())


@pytest.fixture
def cxx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted(tmp_path / "cxx", compiler.cxx() or "c++")
    monkeypatch.setenv("CXX", str(counted.script))
    return counted


@pytest.fixture
def nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted(tmp_path / "cuda" / "bin", compiler.nvcc() or "nvcc")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    return counted


def in_another_process(*statements: str) -> subprocess.Popen[str]:
    code = "; ".join(["from pathlib import Path", "import torch", "from cuda_ref import build", *statements])
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


# -------------------------------------------------------------------------------------------------------------- caching


@needs_cxx
def test_another_process_finds_what_one_has_built(source: Path, cxx: Counted) -> None:
    x = torch.arange(5.0)
    build.launch(source, "launch_doubled", CPU, x, out := torch.empty(5), 5, 0.5)
    assert out.tolist() == [0.5, 2.5, 4.5, 6.5, 8.5]
    assert cxx.runs == 1
    process = in_another_process(
        "x, out = torch.arange(3.0), torch.empty(3)",
        f"build.launch(Path({str(source)!r}), 'launch_doubled', x.device, x, out, 3, 1.0)",
        "import sys",
        "print(out.tolist(), 'torch.utils.cpp_extension' in sys.modules)",
    )
    printed, errors = process.communicate()
    assert printed.strip() == "[1.0, 3.0, 5.0] False", errors
    assert cxx.runs == 1


@needs_cxx
def test_it_is_built_again_exactly_when_something_changed(
    source: Path, cxx: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = shutil.copytree(build.HOST_HEADERS, tmp_path / "host")
    monkeypatch.setattr(build, "HOST_HEADERS", headers)

    def rebuilt() -> bool:
        before = cxx.runs
        build.library(source, "host")
        return cxx.runs > before

    assert rebuilt()
    assert not rebuilt()
    os.utime(source)
    (tmp_path / "unrelated.cuh").write_text("#define NOTHING")
    assert not rebuilt()
    source.write_text(DOUBLED + "// a comment\n")
    assert rebuilt()
    (tmp_path / "factor.cuh").write_text("#pragma once\n#define FACTOR 3\n")
    assert rebuilt()
    (headers / "math_constants.h").write_text((headers / "math_constants.h").read_text() + "\n")
    assert rebuilt()
    monkeypatch.setattr(compiler, "HOST_FLAGS", [*compiler.HOST_FLAGS, "-DANOTHER"])
    assert rebuilt()
    cxx.script.write_text(cxx.script.read_text() + "# a new version\n")
    assert rebuilt()
    assert not rebuilt()
    (tmp_path / "factor.cuh").write_text("#pragma once\n#define FACTOR 2\n")
    assert rebuilt()


@needs_nvcc
def test_every_architecture_is_compiled_once(source: Path, nvcc: Counted) -> None:
    for arch in ("sm_80", "sm_90a", "sm_80", "sm_90a"):
        assert "doubled" in build.compile_only(source, arch)
    assert nvcc.runs == 2
    source.write_text(DOUBLED.replace("offset;", "2 * offset;"))
    build.compile_only(source, "sm_80")
    assert nvcc.runs == 3


@needs_cxx
def test_two_processes_at_once_build_once(source: Path, cxx: Counted) -> None:
    call = f"print(build.library(Path({str(source)!r}), 'host'))"
    processes = [in_another_process(call) for _ in range(2)]
    printed = [each.communicate() for each in processes]
    assert [each.returncode for each in processes] == [0, 0], printed
    assert printed[0][0] == printed[1][0]
    assert cxx.runs == 1


@needs_cxx
def test_what_a_killed_process_left_blocks_nobody(cache: Path, source: Path, cxx: Counted) -> None:
    key = build.library(source, "host").parent.name
    _cache.discard(key)
    hold = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); "
        "print('held', flush=True); time.sleep(99)"
    )
    holder = subprocess.Popen([sys.executable, "-c", hold, str(cache / f"{key}.lock")], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    half_built = cache / ".making-abandoned"
    half_built.mkdir()
    (half_built / "lock").touch()  # torch's own, which it would wait for
    os.utime(half_built, (0, 0))
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert build.library(source, "host").exists()
    assert cxx.runs == 2
    assert not half_built.exists()


@needs_cxx
def test_a_build_that_hangs_elsewhere_is_not_waited_for_for_ever(
    cache: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = build.library(source, "host").parent.name
    _cache.discard(key)
    monkeypatch.setattr(_cache, "PATIENCE_S", 0.2)
    with _cache._held(cache / f"{key}.lock"):
        assert build.library(source, "host").exists()


@needs_cxx
def test_a_damaged_library_is_built_again(source: Path, cxx: Counted) -> None:
    build.library(source, "host").write_bytes(b"not a library")
    x = torch.ones(2)
    build.launch(source, "launch_doubled", CPU, x, out := torch.empty(2), 2, 0.0)
    assert out.tolist() == [2.0, 2.0]
    assert cxx.runs == 2


# ----------------------------------------------------------------------------------------------------- a private folder


def test_the_cache_is_private(cache: Path) -> None:
    assert _cache.root() == cache
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert stat.S_IMODE(cache.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("which", ["cuda", "kernel-suite"])
def test_a_cache_that_others_can_write_to_is_refused(cache: Path, which: str) -> None:
    _cache.root()
    (cache if which == "cuda" else cache.parent).chmod(0o777)
    with pytest.raises(build.BuildError, match=r"can be written by other users \(mode 0777\)"):
        _cache.root()


def test_a_cache_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "below"))
    with pytest.raises(build.BuildError, match="Not a directory; set XDG_CACHE_HOME"):
        _cache.root()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_cache_of_another_user_is_refused(cache: Path) -> None:
    os.chown(_cache.root(), 12345, 12345)
    with pytest.raises(build.BuildError, match=r"belongs to user 12345, not to you \(0\)"):
        _cache.root()


def test_a_link_is_no_cache(cache: Path, tmp_path: Path) -> None:
    _cache.root().rmdir()
    cache.symlink_to(tmp_path)
    with pytest.raises(build.BuildError, match="is not a folder"):
        _cache.root()


def test_nothing_is_kept_of_a_build_that_failed(cache: Path) -> None:
    def fails(folder: Path) -> None:
        (folder / "something").touch()
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        _cache.entry("key", fails)
    assert [each.name for each in cache.iterdir()] == ["key.lock"]
    assert (_cache.entry("key", lambda folder: (folder / "something").touch()) / "something").exists()


# --------------------------------------------------------------------------------------------------------------- errors


@needs_cxx
def test_what_the_cpp_compiler_says_is_what_is_reported(source: Path) -> None:
    source.write_text(DOUBLED.replace("+ offset", "+ offest"))
    with pytest.raises(build.BuildError) as caught:
        build.launch(source, "launch_doubled", CPU, torch.ones(1), torch.ones(1), 1, 0.0)
    message = str(caught.value)
    assert f"{source}:5:" in message
    assert "error: " in message
    assert "offest" in message
    assert "the C++ compiler failed for host" in message
    for noise in ("ninja", "FAILED", "-std=c++17", "[1/2]"):
        assert noise not in message
    source.write_text(DOUBLED)
    assert build.library(source, "host").exists()


@needs_nvcc
def test_what_nvcc_says_is_what_is_reported(source: Path) -> None:
    source.write_text(DOUBLED.replace("+ offset", "+ offest"))
    with pytest.raises(build.BuildError) as caught:
        build.compile_only(source, "sm_90a")
    assert "nvcc failed for sm_90a" in str(caught.value)
    assert f'{source}(5): error: identifier "offest" is undefined' in str(caught.value)


def test_a_missing_compiler_says_how_to_get_it(source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "no C++ compiler 'no-such-compiler'" in (build.missing("cpu") or "")
    with pytest.raises(build.BuildError, match=r"doubled\.cu: no C\+\+ compiler .*apt install g\+\+"):
        build.library(source, "host")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert f"no nvcc in {tmp_path}/bin" in (build.missing("cuda") or "")
    with pytest.raises(build.BuildError, match=r"no nvcc in .*install the CUDA toolkit"):
        build.compile_only(source, "sm_90a")
    monkeypatch.setattr(compiler, "search_path", lambda: str(tmp_path))
    monkeypatch.setenv("CXX", sys.executable)
    assert "pip install ninja" in (build.missing("cpu") or "")
    with pytest.raises(ValueError, match="'cuda' or 'cpu'; got 'xpu'"):
        build.missing("xpu")


@needs_cxx
def test_a_call_that_does_not_fit_the_signature(source: Path) -> None:
    x = torch.ones(2)
    with pytest.raises(TypeError, match=r"takes 4 arguments \(pointer, pointer, int64_t, float\); got 3"):
        build.launch(source, "launch_doubled", CPU, x, x, 2)
    with pytest.raises(ctypes.ArgumentError):
        build.launch(source, "launch_doubled", CPU, x, x, 2.0, 0.0)
    with pytest.raises(build.BuildError, match=r'no extern "C" int other'):
        build.launch(source, "other", CPU)
    with pytest.raises(NotImplementedError, match="got meta"):
        build.launch(source, "launch_doubled", torch.device("meta"))


@needs_cxx
def test_none_is_a_null_pointer(tmp_path: Path) -> None:
    path = tmp_path / "null.cu"
    text = SMALL.replace("f(", "f(const void* p, ").replace("return 0", "return p ? 1 : 0")
    path.write_text(text)
    build.launch(path, "f", CPU, None)
    with pytest.raises(build.CudaError, match="cudaErrorInvalidValue"):
        build.launch(path, "f", CPU, torch.ones(1))


# ----------------------------------------------------------------------------------------------------- reading the text


def test_parameters_are_read_from_the_source() -> None:
    text = """
    // extern "C" int f(int wrong, cudaStream_t s, LaunchRecord* r)
    extern "C" int f(const float* __restrict__ a, void *b /* , comment */, int64_t n,
                     const int flag, float scale, double d, cudaStream_t stream, LaunchRecord* record) { }
    extern "C" int g(int x) { }
    """
    assert _rewrite.parameters(text, "f") == ["pointer", "pointer", "int64_t", "int", "float", "double"]
    with pytest.raises(LookupError, match="must end in"):
        _rewrite.parameters(text, "g")


def test_requirements() -> None:
    assert _rewrite.requirement("// text\n// requires: sm_90a\n") == "sm_90a"
    assert _rewrite.requirement("//   // requires: sm_90a\nint x;  // requires: sm_80\n") is None
    with pytest.raises(ValueError, match="got 'hopper'"):
        _rewrite.requirement("// requires: hopper\n")
    cases = [("sm_80", None), ("sm_80", "sm_80"), ("sm_90a", "sm_80"), ("sm_121", "sm_90"), ("sm_90a", "sm_90a")]
    assert all(compiler.satisfies(arch, required) for arch, required in cases)
    assert not any(compiler.satisfies(arch, "sm_90a") for arch in ("sm_80", "sm_90", "sm_100a"))
    assert not compiler.satisfies("sm_75", "sm_80")
    assert [compiler.arch_of(8, 0), compiler.arch_of(9, 0), compiler.arch_of(12, 1)] == [
        "sm_80",
        "sm_90a",
        "sm_121a",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k<<<1, 2>>>(x);", "launch(::cuda_host::address(k), [&](auto... a) { k(a...); }, 1, 2)(x);"),
        (
            "else a::k<T, (1 > 2)><<<g(1, 2), b, s[1], t>>>(x, y);",
            "else launch(::cuda_host::address(a::k<T, (1 > 2)>), [&](auto... a) { a::k<T, (1 > 2)>(a...); }, "
            "g(1, 2), b, s[1], t)(x, y);",
        ),
        ("k<<<1, f<int>>>>(x);", "launch(::cuda_host::address(k), [&](auto... a) { k(a...); }, 1, f<int>)(x);"),
        ("// k<<<1, 2>>>(x);\n'\"'; 1'000;", "// k<<<1, 2>>>(x);\n'\"'; 1'000;"),
        ('"k<<<1, 2>>>(x)" R"(k<<<1>>>)" R"d()" k<<<)d"', '"k<<<1, 2>>>(x)" R"(k<<<1>>>)" R"d()" k<<<)d"'),
        ("x << 3 <<y; a<b<c>>();", "x << 3 <<y; a<b<c>>();"),
    ],
)
def test_launches_are_rewritten(text: str, expected: str) -> None:
    assert (
        _rewrite.to_host(text).replace("::cuda_host::launch", "launch").replace("cuda_host_argument", "a") == expected
    )


def test_an_address_is_taken_where_the_template_arguments_are_all_given() -> None:
    declared = "template <typename T, int N>\n__global__ void __launch_bounds__(256) k(T* x);\n"
    for kernel, known in [("k<float, 2>", True), ("k<float>", False), ("k", False), ("other", True)]:
        assert (f"address({kernel})" in _rewrite.to_host(f"{declared}{kernel}<<<1, 2>>>(x);")) == known
    assert "address(k<>)" in _rewrite.to_host("template <int N = 2> __global__ void k(int x); k<><<<1, 1>>>(x);")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("__shared__ float tile[32][33], sums[N < 3 ? 1 : 2];", ["tile", "sums"]),
        ("static __shared__ alignas(16) Pack<T, 8> x;", ["x"]),
        ("volatile __shared__ unsigned long long a, b[2];", ["a", "b"]),
        ("__shared__ typename Block<T, 3>::Storage storage;", ["storage"]),
    ],
)
def test_shared_variables_are_found(text: str, names: list[str]) -> None:
    rewritten = _rewrite.to_host(text)
    assert "__shared__" not in rewritten
    assert rewritten.count("static") == 1 + len(names)
    for name in names:
        assert f"enter_shared(cuda_host_block, {name});" in rewritten


def test_dynamic_shared_memory_is_a_pointer_and_lines_stay() -> None:
    text = "f();\nextern __shared__ __align__(16)\n    unsigned char raw[];\ng();"
    rewritten = _rewrite.to_host(text)
    assert "unsigned char* const raw = ::cuda_host::dynamic_shared<unsigned char>()" in rewritten
    assert rewritten.splitlines().index("g();") == text.splitlines().index("g();")


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "cuda_host").glob("*.cu")), ids=lambda path: path.stem)
def test_rewriting_keeps_every_line_where_it_is(path: Path) -> None:
    text = path.read_text()
    before, after = text.splitlines(), _rewrite.to_host(text).splitlines()
    assert len(before) == len(after)
    assert all(new == old for old, new in zip(before, after, strict=True) if old.startswith(('extern "C"', "}")))


def test_headers_are_expanded_in_place(tmp_path: Path) -> None:
    (tmp_path / "once.cuh").write_text("#pragma once\nint once;\n")
    (tmp_path / "again.cuh").write_text('#include "once.cuh"\nint again;\n')
    main = tmp_path / "main.cu"
    main.write_text(
        '#include "once.cuh"\n#include "again.cuh"\n#include "elsewhere.h"\n// #include "once.cuh"\nint main;\n'
    )
    text = _rewrite.expand(main, [])
    assert text.count("int once;") == 2  # behind a guard
    assert '#include "elsewhere.h"' in text
    assert "pragma once" not in text
    assert f'#line 4 "{main}"' not in text  # lines are counted from 1 in every file: the comment is the fourth
    assert f'#line 2 "{main}"' in text
    assert f'#line 3 "{main}"' in text
    compiled = subprocess.run(
        [compiler.cxx() or "c++", "-x", "c++", "-fsyntax-only", "-"],
        input=text.replace('#include "elsewhere.h"', "") + "\nerror",
        capture_output=True,
        text=True,
    ).stderr
    assert f"{main}:7:" in compiled
    assert "redefinition" not in compiled


# ----------------------------------------------------------------------------------------------- what nvcc says of them

REPORT = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z3addPf' for 'sm_90a'
ptxas info    : Function properties for _Z3addPf
    24 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 24 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Function properties for _Z4helpv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
"""


def test_resources_are_read_from_the_report() -> None:
    add, helper = compiler.parse_resources(REPORT, "sm_90a")
    assert add.function in ("add(float*)", "_Z3addPf")
    assert (add.registers, add.stack_bytes, add.spill_store_bytes, add.spill_load_bytes) == (40, 24, 8, 12)
    assert (add.spill_bytes, helper.spill_bytes) == (20, 0)


@needs_nvcc
def test_a_spill_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "greedy.cu"
    path.write_text("""
        __global__ void __launch_bounds__(1024) greedy(float* x) {
            float v[200];
            for (int i = 0; i < 200; i++) v[i] = x[i * 1024];
            __syncthreads();
            for (int i = 0; i < 200; i++) x[i * 1024] = v[i] * v[199 - i];
        }
    """)
    (found,) = build.resources(path, "sm_90a")
    assert found.function == "greedy(float*)"
    assert found.registers == 64
    assert found.spill_bytes > 0 or found.stack_bytes > 0


ARCHS = ["sm_80", "sm_90a", "newest"]
SOURCES = sorted(each.stem for each in (ROOT / "cuda_ref").glob("*.cu"))


@needs_nvcc
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", SOURCES)
def test_no_kernel_spills(name: str, arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the user's own cache, as compiling takes seconds
    if arch == "newest":
        arch = build.newest_arch()
    if not build.supports(name, arch):
        pytest.skip(f"{name}.cu needs {build.requires(name)}")
    found = build.resources(name, arch)
    assert found
    assert [each for each in found if each.spill_bytes or each.stack_bytes] == []


# ------------------------------------------------------------------------------------------------------------- on a GPU


@pytest.mark.gpu
def test_a_launch_goes_to_the_current_stream(source: Path) -> None:
    device = torch.device("cuda")
    x, out = torch.ones(8, device=device), torch.zeros(8, device=device)
    build.launch(source, "launch_doubled", device, x, out, 8, 0.0)
    assert out.tolist() == [2.0] * 8
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # fails for work on any other stream
        build.launch(source, "launch_doubled", device, x, out, 8, 5.0)
    x.fill_(3)
    graph.replay()
    assert out.tolist() == [11.0] * 8


@pytest.mark.gpu
def test_a_call_costs_microseconds(source: Path) -> None:
    x = torch.ones(8, device="cuda")
    costs = []
    for _ in range(20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(100):
            build.launch(source, "launch_doubled", x.device, x, x, 8, 0.0)
        costs.append((time.perf_counter() - start) / 100)
    assert sorted(costs)[10] < 10e-6


@pytest.mark.gpu
def test_a_refused_launch_says_what_was_asked_for(source: Path) -> None:
    x = torch.ones(8, device="cuda")
    with pytest.raises(
        build.CudaError, match=r"launch_doubled in doubled\.cu: cudaErrorInvalidValue.*block \(2000, 1, 1\)"
    ):
        build.launch(source, "launch_doubled", x.device, x, x, 2000, 0.0)
    torch.cuda.synchronize()
