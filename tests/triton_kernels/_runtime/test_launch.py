"""Launches from several threads, and inside a CUDA graph capture."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from triton.runtime.autotuner import Autotuner

from triton_kernels._runtime.launch import device_of, launch

HERE = Path(__file__).parents[1]


class Recorder:
    """Takes the place of a kernel, and records its arguments."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []
        self.fn = lambda number, holder: None

    def run(self, number: int, holder: dict[str, int], **_: Any) -> None:
        self.seen.append((number, holder["set to"]))


def test_a_pre_hook_gets_the_arguments_of_its_own_thread() -> None:
    def pre_hook(args: dict[str, Any]) -> None:
        time.sleep(0.001)
        args["holder"]["set to"] = args["number"]

    kernel = Recorder()
    config = triton.Config({}, pre_hook=pre_hook)
    tuner = Autotuner(kernel, ["number", "holder"], [config], [], None, None)  # type: ignore[arg-type, no-untyped-call]
    x = torch.ones(1)

    def work(first: int) -> None:
        for number in range(first, first + 10):
            with device_of(x):
                launch(tuner, (1,), number, {"set to": -1})

    threads = [threading.Thread(target=work, args=(10 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(kernel.seen) == [(number, number) for number in range(40)]


PRETENDED = """
import torch, triton_compile
driver = triton_compile.pretend_gpu(90)
real_empty = torch.empty
def empty(*args, device=None, **options):
    return real_empty(*args, **options).as_subclass(triton_compile.GpuTensor)
torch.empty = empty
"""


def on_a_pretended_gpu(program: str) -> list[str]:
    """Runs a program with compiled kernels and a driver that only counts launches. Returns the lines that it prints."""
    environment = os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": f"{HERE}:{HERE.parents[1]}"}
    command = [sys.executable, "-c", PRETENDED + program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_direct_import_finds_what_the_suite_has_tuned(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from triton_kernels._runtime import tuned as _tuned
from triton_kernels.attention import packed
_tuned.FOLDER = Path({str(tmp_path)!r})
path = _tuned.path_for(torch.cuda.get_device_name(), _tuned.version())
path.parent.mkdir()
entry = dict(
    kernel="attention.packed.packed_kernel", key=dict(HEADS=2, G=2, S_q=17, S_k=4000, D=16, CAUSAL=False, WINDOW=0),
    dtypes=["torch.float16"] * 4, config=dict(BLOCK_M=64, BLOCK_N=32, num_warps=4, num_stages=2),
    us=1.0, short_list_us=1.0, candidates=1,
)
document = dict(device=torch.cuda.get_device_name(), triton=_tuned.version(), driver="1", entries=[entry])
path.write_text(__import__("json").dumps(document))
q, k = empty(1, 4, 17, 16, dtype=torch.float16), empty(1, 2, 4000, 16, dtype=torch.float16)
packed.attention(q, k, k)
kernel = packed.packed_kernel
print(kernel.origin, kernel.best_config.kwargs["BLOCK_N"], len(driver.grids), "suite" in sys.modules)
"""
    assert on_a_pretended_gpu(program) == ["tuned 32 1 False"]


@pytest.mark.thorough
def test_attention_of_few_queries_is_not_tuned() -> None:
    program = """
from triton_kernels.attention import auto, packed
q = empty(1, 4, 1, 16, dtype=torch.float16)
for count in (2049, 2050, 4096):
    k = empty(1, 2, count, 16, dtype=torch.float16)
    auto.attention(q, k, k)
print(len(packed.packed_kernel.cache), len({record["kernel"] for record in driver.records}), len(driver.records))
"""
    assert on_a_pretended_gpu(program) == ["0 2 2"]


def test_the_first_call_inside_a_capture_is_refused_and_later_ones_run() -> None:
    program = """
from triton_kernels.matmul import matmul, matmul_kernel
from triton_kernels.vector_add import vector_add
matmul_kernel.configs = matmul_kernel.configs[:2]  # each is compiled
x, a = empty(64, dtype=torch.float16), empty(16, 16, dtype=torch.float16)
capturing = False
torch.cuda.is_current_stream_capturing = lambda: capturing
for call in (lambda: vector_add(x, x), lambda: matmul(a, a)):
    capturing, before = True, len(driver.grids)
    try:
        call()
        print("ran")
    except RuntimeError as error:
        print(error)
    assert len(driver.grids) == before
    capturing = False
    call()
    capturing, before = True, len(driver.grids)
    call()
    assert len(driver.grids) == before + 1
print("done")
"""
    lines = on_a_pretended_gpu(program)
    assert lines[-1] == "done"
    assert [line.split(":")[0] for line in lines[:2]] == ["vector_add_kernel", "matmul_kernel"]
    assert all("inside a CUDA graph capture; call it once before" in line for line in lines[:2])


@pytest.mark.slow
@pytest.mark.thorough
def test_gluon_attention_inside_a_capture() -> None:
    program = """
from triton_kernels.attention.gluon import attention
x = empty(1, 2, 256, 64, dtype=torch.float16)
capturing = True
torch.cuda.is_current_stream_capturing = lambda: capturing
try:
    attention(x, x, x)
except RuntimeError as error:
    print(error)
assert len(driver.grids) == 0
capturing = False
attention(x, x, x)
capturing = True
attention(x, x, x)
print(len(driver.grids))
"""
    refusal, launches = on_a_pretended_gpu(program)
    assert refusal.startswith("gluon_kernel: first call with these arguments inside a CUDA graph capture")
    assert launches == "2"
