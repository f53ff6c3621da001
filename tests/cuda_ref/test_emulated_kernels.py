"""The files from which an emulated kernel for Hopper is built."""

from __future__ import annotations

from emulated_kernels import EMULATED, KERNELS, emulated_files

from cuda_ref import build


def test_a_kernel_has_the_files_that_it_includes_and_no_others() -> None:
    """A change of one kernel builds no other again."""
    files = emulated_files("int4_matmul/few.cu")
    assert {"int4_matmul/few.cu", "int4_matmul/few.cuh"} < {*files}
    assert not [name for name in files if name.startswith("attention")]
    together = {name for kernel in KERNELS if kernel.endswith(".cu") for name in emulated_files(kernel)}
    assert {*KERNELS} <= together


def test_emulated_headers_take_the_place_of_those_of_hopper() -> None:
    found = emulated_files("attention/wgmma.cu")["hopper/tma.cuh"].splitlines()
    emulated, real = ((folder / "hopper/tma.cuh").read_text().splitlines() for folder in (EMULATED, build.HERE))
    assert found[0] == emulated[0] != real[0]
