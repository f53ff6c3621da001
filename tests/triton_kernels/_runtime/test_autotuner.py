"""The kernels' own autotuner: tuned configurations, kept choices, other versions of Triton."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tuned_kernels import ENTRY, THREE, call, fake_module, tuned_folder, write_tuned  # noqa: F401 (a fixture)

from triton_kernels._runtime import autotuner as _autotuner

pytestmark = pytest.mark.usefixtures("tuned_folder")
HERE = replace(ENTRY, dtypes=THREE)


def test_a_tuned_configuration_is_used_without_timing_and_with_its_hook() -> None:
    write_tuned(HERE)
    hooked: list[Any] = []
    module = fake_module(hook=lambda args: hooked.append(args["BLOCK"]))
    assert call(module, 64) == {"MODE": "up", "BLOCK": 32, "num_warps": 8, "num_ctas": 1, "num_stages": 3}
    assert len(module.kernel.fn.launched) == 1
    assert hooked == [32]
    assert call(module, 64)["BLOCK"] == 32
    assert module.kernel.origin == "tuned"


@pytest.mark.parametrize(("N", "dtype"), [(65, torch.float32), (64, torch.float16)], ids=["size", "dtype"])
def test_other_questions_are_left_to_the_short_list(N: int, dtype: torch.dtype) -> None:
    write_tuned(HERE)
    module = fake_module()
    assert call(module, N, dtype)["BLOCK"] == 16
    assert len(module.kernel.fn.launched) == 3
    assert module.kernel.origin == "autotuned"


@pytest.mark.parametrize("hook", [None, lambda args: None], ids=["plain", "with a pre-hook"])
def test_a_later_process_does_not_time_again(hook: Any) -> None:
    assert call(fake_module(hook=hook), 64)["BLOCK"] == 16
    later = fake_module(hook=hook)
    assert call(later, 64)["BLOCK"] == 16
    assert len(later.kernel.fn.launched) == 1
    assert later.kernel.origin == "autotuned earlier"
    assert later.kernel.cache[next(iter(later.kernel.cache))].pre_hook is hook


OTHERS = {
    "source": lambda kernel, patch: setattr(kernel.fn, "cache_key", "other"),
    "device": lambda kernel, patch: patch.setattr(torch.cuda, "get_device_name", lambda device=None: "NVIDIA L4"),
    "version of Triton": lambda kernel, patch: patch.setattr(_autotuner._tuned, "version", lambda: "3.7.1"),
    "short list": lambda kernel, patch: kernel.configs.pop(0),
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS.keys())
def test_a_choice_is_of_one_source_device_version_and_list(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    call(fake_module(), 64)
    later = fake_module()
    later.kernel.configs.append(replace_block(later.kernel.configs[0], 8))  # not a list of one, which is not timed
    call(later, 64)
    later = fake_module()
    later.kernel.configs.append(replace_block(later.kernel.configs[0], 8))
    change(later.kernel, monkeypatch)
    call(later, 64)
    assert len(later.kernel.fn.launched) > 1
    assert later.kernel.origin == "autotuned"


def replace_block(config: Any, block: int) -> Any:
    return type(config)({"BLOCK": block}, num_warps=config.num_warps, num_stages=config.num_stages)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"config": {"BLOCK": 7}}', '{"config": 1}', "\udc80"])
def test_a_damaged_choice_is_ignored_and_replaced(tuned_folder: Path, text: str) -> None:  # noqa: F811
    call(fake_module(), 64)
    (kept,) = tuned_folder.rglob(_autotuner.CHOICE)
    kept.write_bytes(text.encode("utf-8", "surrogateescape"))
    module = fake_module()
    assert call(module, 64)["BLOCK"] == 16
    assert len(module.kernel.fn.launched) == 3
    later = fake_module()
    call(later, 64)
    assert later.kernel.origin == "autotuned earlier"


def test_a_cache_that_cannot_be_written_costs_the_memory_alone(tuned_folder: Path) -> None:  # noqa: F811
    (tuned_folder / "cache").write_text("a file in place of the folder")
    for _ in range(2):
        module = fake_module()
        assert call(module, 64)["BLOCK"] == 16
        assert len(module.kernel.fn.launched) == 3


def test_what_was_tuned_for_another_version_is_timed_against_the_short_list() -> None:
    small = replace(HERE, config={"BLOCK": 8, "num_warps": 8, "num_stages": 3})
    write_tuned(small, version="3.5.0")
    write_tuned(HERE, version="3.7.1")
    module = fake_module()
    assert call(module, 64)["BLOCK"] == 8
    assert [each["BLOCK"] for each in module.kernel.fn.launched] == [16, 64, 8, 32, 8]
    assert module.kernel.origin == "autotuned"
    write_tuned(HERE)
    assert call(fake_module(), 64)["BLOCK"] == 32, "this version's own file comes first"


def test_what_was_tuned_for_another_version_may_fail() -> None:
    write_tuned(replace(HERE, config={"BLOCK": 8, "num_warps": 8, "num_stages": 3}), version="3.5.0")
    module = fake_module({8: "does not launch"})
    assert call(module, 64)["BLOCK"] == 16
    with pytest.raises(RuntimeError, match="does not launch"):
        call(fake_module({16: "does not launch"}), 64)


UNUSABLE = {
    "other name": ({"BLOCK_N": 32, "num_warps": 8, "num_stages": 3}, "a configuration has BLOCK_N, num_warps"),
    "no warps": ({"BLOCK": 32, "num_stages": 3}, "this kernel's have BLOCK, num_warps, num_stages"),
    "a text": ({"BLOCK": "32", "num_warps": 8, "num_stages": 3}, "BLOCK='32' in a configuration: must be of type int"),
    "true": ({"BLOCK": 32, "num_warps": True, "num_stages": 3}, "num_warps=True in a configuration: must be of type"),
    "nothing": ({}, "a configuration has nothing"),
}


@pytest.mark.parametrize(("config", "reason"), UNUSABLE.values(), ids=UNUSABLE.keys())
@pytest.mark.parametrize("version", ["3.6.0", "3.5.0"])
def test_a_configuration_that_does_not_fit_the_kernel_is_not_used(
    config: dict[str, Any], reason: str, version: str
) -> None:
    write_tuned(replace(HERE, config=config), version=version)
    module = fake_module()
    assert call(module, 64)["BLOCK"] == 16
    assert reason in module.kernel.fault
