"""Tests of cuda_ref/host: what a whole program does wrong outside of its kernels, and between them."""

import re
import subprocess
from pathlib import Path

import pytest

from cuda_ref.build import programs

SOURCE = Path(__file__).parent / "programs" / "faults.cu"
PLACE = r"faults.cu:\d+: "
THREAD = r"block \(0, 0, 0\), thread \(\d+, 0, 0\): " + PLACE
UNASKED = r"an error that the program did not ask for.*"
FAULTS = {
    "forgotten copy": THREAD + "reads index 0 of an allocation, which nothing has written",
    "forgotten fill": THREAD + "reads index 0 of an allocation, which nothing has written",
    "half a copy": THREAD + "reads index 25 of an allocation, which nothing has written",
    "ignored": UNASKED + THREAD + "reads index 100 of an allocation, which has 100 elements",
    "ignored threads": UNASKED + r"a block of \(2048, 1, 1\) threads",
    "ignored grid": UNASKED + r"a grid of \(0, 1, 1\) blocks",
    "ignored bytes": UNASKED + "65536 bytes of dynamic shared memory; the kernel may use 49152",
    "host reads": PLACE + "the host reads index 7 of an allocation of the device",
    "host writes": PLACE + "the host writes index 3 of an allocation of the device",
    "host pointer": "argument 1 of a launch is a variable of the host",
    "symbol as an argument": "argument 2 of a launch is the host's name of the variable variable",
    "heap pointer": THREAD + "reads 4 bytes at .*, which is no memory of the device: a pointer of the host",
    "wrong kind": r"cudaMemcpy on line \d+: its destination is no memory of the device",
    "from the device": r"cudaMemcpy on line \d+: its source is memory of the device, not of the host",
    "too long": r"its source is an allocation, which has 400 bytes; the copy takes 800 from byte 0",
    "symbol": "its destination is the variable variable: cudaMemcpyToSymbol",
    "freed twice": r"cudaFree on line \d+: the memory was freed before",
    "freed inside": r"cudaFree on line \d+: the pointer is not the one of the allocation",
    "freed host": r"cudaFree on line \d+: the pointer is none that the runtime has allocated",
    "used after free": THREAD + "reads an allocation, which was freed",
    "recursion": r"block \(0, 0, 0\), thread \(0, 0, 0\): .*its stack has no room",
}


def said(name: str) -> tuple[int, str]:
    done = subprocess.run([programs.program(SOURCE), name], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_program_is_named_and_its_status_says_so(name: str) -> None:
    status, text = said(name)
    assert re.search(FAULTS[name], text), text
    assert status != 0


@pytest.mark.slow(seconds=11)
@pytest.mark.thorough
def test_a_thread_that_waits_for_one_that_cannot_run_is_ended_and_named() -> None:
    status, text = said("endless")
    assert re.search(THREAD + "the thread has not ended after 10 s", text), text
    assert status == 3


def test_a_right_program_passes() -> None:
    assert said("right") == (0, "5\n")
