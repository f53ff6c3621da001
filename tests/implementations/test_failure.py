"""The one line that a row shows of an exception."""

from __future__ import annotations

from suite.implementations import failure


def test_an_exception_becomes_one_line_with_what_one_can_act_on() -> None:
    class OutOfMemoryError(RuntimeError): ...

    error = OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 200.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 138.00 "
        "GiB is free. Including non-PyTorch memory, this process has 1 GiB. If reserved but unallocated memory is ..."
    )
    assert failure.describe(error, "cuda") == (
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 200.00 GiB. "
        "GPU 0 has a total capacity of 139.80 GiB of which 138.00 GiB is free."
    )
    illegal = RuntimeError(
        "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported\n..."
    )
    assert failure.describe(illegal, "cuda") == (
        "RuntimeError: CUDA error: an illegal memory access was encountered; "
        "this ruins the process's CUDA context, so that its worker was replaced"
    )
    assert "GiB of host memory are free" in failure.describe(MemoryError(), "cuda")
    assert failure.describe(ValueError("x" * 9999), "cpu") == f"ValueError: {'x' * 488}..."
