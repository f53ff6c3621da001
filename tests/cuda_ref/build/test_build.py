"""Building and launching a .cu: what is rebuilt when, concurrent and killed builds, and error messages."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from cuda_ref import build
from cuda_ref.build import cache as _cache
from cuda_ref.build import compiler, libraries

ROOT = Path(__file__).resolve().parents[3]
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
TINY = '#include "factor.cuh"\nint factor() { return FACTOR; }\n'
"""For tests that launch nothing: without the headers of CUDA a build takes a quarter of the time."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for one test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernel-suite" / "cuda"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "factor.cuh").write_text("#pragma once\n#define FACTOR 2\n")
    (tmp_path / "doubled.cu").write_text(DOUBLED)
    return tmp_path / "doubled.cu"


@pytest.fixture
def tiny(source: Path) -> Path:
    source.write_text(TINY)
    return source


class CountedCompiler:
    """A wrapper of a compiler that counts its compilations."""

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
def cxx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountedCompiler:
    counted = CountedCompiler(tmp_path / "cxx", compiler.cxx() or "c++")
    monkeypatch.setenv("CXX", str(counted.script))
    return counted


@pytest.fixture
def nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountedCompiler:
    counted = CountedCompiler(tmp_path / "cuda" / "bin", compiler.nvcc() or "nvcc")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    return counted


def in_another_process(*statements: str) -> subprocess.Popen[str]:
    code = "; ".join(["from pathlib import Path", "import torch", "from cuda_ref import build", *statements])
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@needs_cxx
@pytest.mark.thorough
def test_another_process_uses_the_cached_library(source: Path, cxx: CountedCompiler) -> None:
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
def test_a_library_is_rebuilt_exactly_when_something_changed(
    tiny: Path, cxx: CountedCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = shutil.copytree(build.HOST_HEADERS, tmp_path / "host")
    monkeypatch.setattr(libraries, "HOST_HEADERS", headers)

    def rebuilt() -> bool:
        before = cxx.runs
        build.library(tiny, "host")
        return cxx.runs > before

    assert rebuilt()
    assert not rebuilt()
    os.utime(tiny)
    (tmp_path / "unrelated.cuh").write_text("#define NOTHING")
    assert not rebuilt()
    tiny.write_text(TINY + "// a comment\n")
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
def test_every_architecture_is_compiled_once(source: Path, nvcc: CountedCompiler) -> None:
    for arch in ("sm_80", "sm_90a", "sm_80", "sm_90a"):
        assert "doubled" in build.compile_only(source, arch)
    assert nvcc.runs == 2
    source.write_text(DOUBLED.replace("offset;", "2 * offset;"))
    build.compile_only(source, "sm_80")
    assert nvcc.runs == 3


@needs_cxx
def test_two_processes_at_once_build_once(tiny: Path, cxx: CountedCompiler) -> None:
    call = f"print(build.library(Path({str(tiny)!r}), 'host'))"
    processes = [in_another_process(call) for _ in range(2)]
    printed = [each.communicate() for each in processes]
    assert [each.returncode for each in processes] == [0, 0], printed
    assert printed[0][0] == printed[1][0]
    assert cxx.runs == 1


@needs_cxx
def test_a_killed_build_blocks_no_other_one(cache: Path, tiny: Path, cxx: CountedCompiler) -> None:
    key = build.library(tiny, "host").parent.name
    _cache.discard(key)
    hold = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); "
        "print('held', flush=True); time.sleep(99)"
    )
    holder = subprocess.Popen([sys.executable, "-c", hold, str(cache / f"{key}.lock")], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    half_built = cache / ".building-abandoned"
    half_built.mkdir()
    (half_built / "lock").touch()  # torch waits for its own lock file
    os.utime(half_built, (0, 0))
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert build.library(tiny, "host").exists()
    assert cxx.runs == 2
    assert not half_built.exists()


@needs_cxx
def test_the_wait_for_a_hung_build_has_a_limit(cache: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = build.library(tiny, "host").parent.name
    _cache.discard(key)
    monkeypatch.setattr(_cache, "LOCK_TIMEOUT_S", 0.2)
    with _cache._locked(cache / f"{key}.lock"):
        assert build.library(tiny, "host").exists()


@needs_cxx
def test_a_damaged_library_is_rebuilt(source: Path, cxx: CountedCompiler) -> None:
    build.library(source, "host").write_bytes(b"not a library")
    x = torch.ones(2)
    build.launch(source, "launch_doubled", CPU, x, out := torch.empty(2), 2, 0.0)
    assert out.tolist() == [2.0, 2.0]
    assert cxx.runs == 2


@needs_cxx
@pytest.mark.thorough
def test_a_truncated_library_is_rebuilt(source: Path, cxx: CountedCompiler) -> None:
    """Its pages beyond the end are a bus error when they are read. In a process of its own: the tests outlive that."""
    os.truncate(build.library(source, "host"), 4096)
    process = in_another_process(
        "x, out = torch.ones(3), torch.empty(3)",
        f"build.launch(Path({str(source)!r}), 'launch_doubled', x.device, x, out, 3, 1.0)",
        "print(out.tolist())",
    )
    printed, errors = process.communicate()
    assert (process.returncode, printed.strip()) == (0, "[3.0, 3.0, 3.0]"), errors
    assert cxx.runs == 2


@needs_cxx
def test_the_compiler_may_have_a_launcher_and_options(
    tiny: Path, cxx: CountedCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = tmp_path / "launcher"
    launcher.write_text('#!/bin/sh\nexec "$@"\n')
    launcher.chmod(0o755)
    keys = set()
    for number, given in enumerate((f"{launcher} {cxx.script}", f"{launcher} '{cxx.script}' -DMORE=1"), 1):
        monkeypatch.setenv("CXX", given)
        assert build.missing("cpu") is None
        keys.add(build.library(tiny, "host").parent.name)
        assert (len(keys), cxx.runs) == (number, number)
    assert "-DMORE=1" in cxx.log.read_text().splitlines()[-1]
    monkeypatch.setenv("CXX", f"no-such-launcher {cxx.script}")
    assert "no C++ compiler 'no-such-launcher" in (build.missing("cpu") or "")


# errors


@needs_cxx
def test_errors_of_the_cpp_compiler_are_reported(source: Path) -> None:
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
def test_errors_of_nvcc_are_reported(source: Path) -> None:
    source.write_text(DOUBLED.replace("+ offset", "+ offest"))
    with pytest.raises(build.BuildError) as caught:
        build.compile_only(source, "sm_90a")
    assert "nvcc failed for sm_90a" in str(caught.value)
    assert f'{source}(5): error: identifier "offest" is undefined' in str(caught.value)


def test_a_missing_compiler_is_reported_with_its_installation(
    source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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
def test_a_call_must_match_the_signature(source: Path) -> None:
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
def test_none_is_passed_as_a_null_pointer(tmp_path: Path) -> None:
    path = tmp_path / "null.cu"
    text = SMALL.replace("f(", "f(const void* p, ").replace("return 0", "return p ? 1 : 0")
    path.write_text(text)
    build.launch(path, "f", CPU, None)
    with pytest.raises(build.CudaError, match="cudaErrorInvalidValue"):
        build.launch(path, "f", CPU, torch.ones(1))


# on a GPU


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
def test_a_call_takes_microseconds(source: Path) -> None:
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
def test_the_error_of_a_refused_launch_has_its_configuration(source: Path) -> None:
    x = torch.ones(8, device="cuda")
    with pytest.raises(
        build.CudaError, match=r"launch_doubled in doubled\.cu: cudaErrorInvalidValue.*block \(2000, 1, 1\)"
    ):
        build.launch(source, "launch_doubled", x.device, x, x, 2000, 0.0)
    torch.cuda.synchronize()


def test_copies_of_the_tree_share_what_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The paths in #line directives are no part of a result's key."""

    def key() -> str:
        return libraries.key_of("matmul", "sm_90a", [f'#line 1 "{libraries.HERE}/matmul.cu"'])

    before = key()
    monkeypatch.setattr(libraries, "HERE", tmp_path / libraries.HERE.name)
    assert key() == before
