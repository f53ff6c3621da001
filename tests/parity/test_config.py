"""Rows say what they ran: the kernels recorded on a GPU are those that `config` names, over a grid of shapes."""

from __future__ import annotations

import re
from typing import Any

import pytest

import suite
from suite import ops
from suite.implementations import builtin
from suite.implementations.implementation import Implementation

FRAMEWORKS = ("triton", "cuda")
SHAPES: dict[str, list[tuple[int, ...]]] = {
    "matmul": [(512, 512, 512), (4096, 4096, 512), (3, 5, 700), (16, 4096, 4096), (1, 300, 40000), (9000, 24, 96),
               (1000, 1001, 999), (64, 64, 32768), (2000, 7, 31)],
    "linear_sigmoid": [(512, 512, 512), (16, 4096, 4096), (1000, 1000, 999), (4096, 4096, 512)],
    "linear_sigmoid_grad": [(512, 512, 512), (64, 1024, 512), (300, 200, 104)],
    "attention": [(2, 4, 4, 512, 512, 64), (1, 8, 2, 1, 4096, 128), (1, 2, 2, 300, 300, 256),
                  (4, 8, 8, 1024, 1024, 128)],
    "attention_grad": [(1, 4, 4, 512, 512, 64), (1, 2, 1, 300, 300, 128)],
    "multi_head_attention": [(2, 300, 256, 4), (4, 1024, 512, 8)],
    "conv2d": [(8, 28, 28, 64, 64, 3, 3, 1, 1), (8, 56, 56, 3, 64, 7, 7, 2, 3), (8, 14, 14, 256, 256, 1, 1, 1, 0)],
    "lstm": [(8, 64, 256, 256), (8, 1, 512, 1024)],
}  # fmt: skip
"""Small, large, thin, long and odd problems: those among which a chooser must differ."""


def ours(operation: str) -> list[str]:
    """The implementations of our own kernels."""
    found: list[Implementation] = [
        each
        for each in builtin.implementations(operation)
        if each.framework in FRAMEWORKS and each.vendor is None and each.peer is None
    ]
    return [each.name for each in found]


def steps(config: str) -> list[str]:
    """The words that name kernels: `pad; parts count=4; BLOCK_M=64, ... (tuned)` gives pad and parts."""
    return [step.split()[0] for step in config.split(";") if step.strip() and "=" not in step.split()[0]]


def kernels(text: str) -> list[str]:
    """Names of the kernels of a row, without counts, sizes, copies and fills of memory."""
    names = [re.sub(r"^\d+ x ", "", each.strip()) for each in text.split(";")]
    return [name.split(" [")[0] for name in names if name and not name.startswith(("memset", "memcpy", "void at::"))]


def unexplained(row: dict[str, Any]) -> list[str]:
    """What `config` and the recorded kernels of a row do not have in common."""
    named, ran = steps(row["config"]), kernels(row["kernels_run"])
    return [word for word in named if not any(word in name for name in ran)] + [
        name for name in ran if not any(word in name for word in named)
    ]


def test_a_step_without_its_kernel_is_seen() -> None:
    row = {"config": "pad; parts count=4; BLOCK_M=64, num_warps=4 (tuned)", "kernels_run": ""}
    row["kernels_run"] = "2 x pad_kernel [8 x 128]; parts_matmul_kernel [64 x 128]; memset"
    assert unexplained(row) == []
    assert unexplained({**row, "kernels_run": "pad_kernel [8 x 128]; matmul_kernel [64 x 128]"}) == [
        "parts",
        "matmul_kernel",
    ]


@pytest.mark.gpu
@pytest.mark.slow(120)
@pytest.mark.parametrize("operation", SHAPES)
def test_rows_name_the_kernels_that_run(operation: str) -> None:
    frame = suite.compare(
        operation,
        shapes=SHAPES[operation],
        dtypes=["bfloat16", "float32"],
        implementations=ours(operation),
        inputs="none",
    )
    timed = [row for row in frame.to_dict("records") if row["status"] == "ok" and row["kernels_run"]]
    assert timed
    exporting = {each.name for each in builtin.implementations(operation) if "\ndef config(" in source(each)}
    wrong: dict[Any, Any] = {}
    single: dict[tuple[str, str], set[frozenset[str]]] = {}
    for row in timed:
        name, dtype = row["implementation"], row["dtype"]
        if name not in exporting:
            single.setdefault((name, dtype), set()).add(frozenset(map(function_name, kernels(row["kernels_run"]))))
        elif found := unexplained(row):
            wrong[name, row["case"], dtype] = (row["config"], row["kernels_run"], found)
    assert wrong == {}
    assert {line: ran for line, ran in single.items() if len(ran) > 1} == {}, (
        "kernels differ, and config does not say so"
    )


def function_name(kernel: str) -> str:
    """A kernel's name without template arguments."""
    return re.sub(r"<.*", "", kernel)


def source(implementation: Implementation) -> str:
    variant = implementation.name.partition("/")[2]
    return builtin.files(implementation.framework, implementation.operation)[variant].read_text(encoding="utf-8")


def test_every_operation_with_a_chooser_is_in_the_grid() -> None:
    choosers = {name for name in ops.names() for each in builtin.implementations(name) if each.name.endswith("/auto")}
    assert choosers <= SHAPES.keys()
