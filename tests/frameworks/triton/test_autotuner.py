"""The suite's handling of autotuners: sources of configurations, and questions without answers."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
from tuned_kernels import ENTRY, H200, THREE, call, fake_module, tuned_folder, write_tuned  # noqa: F401 (a fixture)

from suite.frameworks.triton import ADAPTER
from triton_kernels._runtime import tuned as _tuned

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("tuned_folder")


def test_the_row_names_the_configuration_and_its_source() -> None:
    write_tuned(replace(ENTRY, dtypes=THREE))
    module = fake_module()
    assert ADAPTER.configuration(module) == ""
    call(module, 64)
    assert ADAPTER.configuration(module) == "BLOCK=32, num_warps=8, num_stages=3 (tuned)"
    call(module, 65)
    assert ADAPTER.configuration(module) == "BLOCK=16, num_warps=4, num_stages=3 (autotuned)"
    later = fake_module()
    call(later, 65)
    assert ADAPTER.configuration(later) == "BLOCK=16, num_warps=4, num_stages=3 (autotuned earlier)"


def test_a_damaged_file_is_not_used_and_the_row_says_why() -> None:
    write_tuned()
    _tuned.path_for(H200.name, "3.6.0").write_text("{")
    module = fake_module()
    assert call(module, 64)["BLOCK"] == 16
    text = ADAPTER.configuration(module)
    assert "(autotuned; tuned configurations not used: " in text
    assert "triton-3.6.0.json: not a readable file" in text


def test_a_search_asks_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    from suite.frameworks.triton import autotuner

    write_tuned(replace(ENTRY, dtypes=THREE))
    module = fake_module()
    call(module, 64)
    with autotuner.emptied_caches([module.kernel]):
        (launch,) = autotuner.launches([module.kernel], lambda: module.vector_add(*[_ones()] * 2))
        assert launch.kernel.cache[launch.key].kwargs == {"BLOCK": 16}
        assert [each.kwargs["BLOCK"] for each in launch.candidates(module.tuning_space)] == [16, 64, 32, 128, 256, 512]
    assert call(module, 64)["BLOCK"] == 32


def _ones() -> object:
    import torch

    return torch.ones(64)


def test_new_questions_can_be_answered_as_in_the_last_launch_without_timing() -> None:
    write_tuned(replace(ENTRY, dtypes=THREE))
    module = fake_module()
    call(module, 65)
    launched = len(module.kernel.fn.launched)
    with ADAPTER.without_tuning(module):
        assert call(module, 100)["BLOCK"] == 16, "that of 65, which was autotuned"
        assert call(module, 101)["BLOCK"] == 16
    assert len(module.kernel.fn.launched) == launched + 2, "each call is one launch"
    assert call(module, 64)["BLOCK"] == 32, "afterwards it is tuned as before"


def test_kernels_of_imported_functions_keep_their_configuration_too(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = fake_module()
    kernels.vector_add.__module__ = kernels.__name__
    monkeypatch.setitem(sys.modules, kernels.__name__, kernels)
    operation = ModuleType("triton_kernels.fake_operation")
    operation.vector_add = kernels.vector_add  # type: ignore[attr-defined]
    call(kernels, 65)
    launched = len(kernels.kernel.fn.launched)
    with ADAPTER.without_tuning(operation):
        operation.vector_add(_ones(), _ones())
    assert len(kernels.kernel.fn.launched) == launched + 1
    assert ADAPTER.configuration(operation) == "", "a row names the configurations of its own kernels"


def test_a_kernel_that_was_not_launched_yet_is_tuned() -> None:
    module = fake_module()
    with ADAPTER.without_tuning(module):
        call(module, 100)
    assert len(module.kernel.fn.launched) == 3


def test_values_of_a_key_become_json_scalars() -> None:
    from triton.experimental.gluon import language as gl

    from suite.frameworks.triton import autotuner

    kernel = SimpleNamespace(keys=["M", "ROWS", "DTYPE"])
    values, dtypes = autotuner.named(kernel, (64, True, gl.float16, "torch.float16", "torch.int32"))
    assert values == {"M": 64, "ROWS": True, "DTYPE": "fp16"}
    assert dtypes == ("torch.float16", "torch.int32")
