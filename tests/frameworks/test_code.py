"""The code of compiled kernels, by framework."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cuda_ref import build


def test_files_of_triton_are_named_for_the_kernels() -> None:
    from suite.frameworks.triton import code

    first = SimpleNamespace(name="add", asm={"ttir": "module", "ptx": ".version", "sass": "EXIT", "cubin": b""})
    second = SimpleNamespace(name="add", asm={"ptx": ".version 2", "sass": "EXIT"})
    assert code.texts([first, second], ["ttir", "ptx"]) == {
        "add.ttir": "module",
        "add.ptx": ".version",
        "add.2.ptx": ".version 2",
    }


@pytest.mark.skipif(build.missing("cuda") is not None, reason=str(build.missing("cuda")))
def test_a_cuda_source_has_ptx_without_a_gpu() -> None:
    text = build.ptx("vector_add/vector_add", "sm_90a")
    assert ".target sm_90a" in text
    assert "ld.global" in text
