"""Rows say what they ran: the kernels recorded on a GPU are those that `config` names, over a grid of shapes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from triton.runtime.errors import OutOfResources

from cuda_ref import build
from suite import ops
from suite.core.paths import ROOT
from suite.implementations import builtin
from suite.implementations.implementation import Implementation
from suite.problem.case import Case

FRAMEWORKS, DTYPES = ("triton", "cuda"), ("bfloat16", "float32")
SHAPES: dict[str, list[tuple[int, ...]]] = {
    "matrix_add": [(64, 64), (1000, 1003), (3, 20000)],
    "sigmoid": [(100000,)],
    "softmax": [(64, 512), (64, 40000), (3, 200000)],
    "sum": [(64, 512), (3, 200000), (30000, 7)],
    "matmul": [(512, 512, 512), (4096, 4096, 512), (3, 5, 700), (16, 4096, 4096), (1, 300, 40000), (9000, 24, 96),
               (1000, 1001, 999), (64, 64, 32768), (2000, 7, 31)],
    "block_scaled_matmul": [(512, 512, 512), (16, 4096, 4096), (4096, 4096, 512), (100, 300, 40000), (1000, 1001, 999)],
    "int4_matmul": [(1, 4096, 4096), (32, 1024, 8192), (17, 1000, 999), (512, 512, 512), (300, 1000, 4096)],
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


def ours(operation: str) -> list[Implementation]:
    """The implementations of our own kernels."""
    return [
        each
        for each in builtin.implementations(operation)
        if each.framework in FRAMEWORKS and each.vendor is None and each.peer is None
    ]


def steps(config: str) -> list[str]:
    """The words that name kernels: `pad; parts count=4; BLOCK_M=64, ... (tuned)` gives pad and parts."""
    return [step.split()[0] for step in config.split(";") if step.strip() and "=" not in step.split()[0]]


HELPERS = {"copy_pitched": "copied", "pad": "copied", "transpose": "copied", "add_parts": "parts="}
"""Kernels that `config` may name by a word of a step: `wgmma 64x128 parts=4 (b copied)`."""


def unexplained(config: str, ran: Sequence[str]) -> list[str]:
    """Names that stand either in `config` or among the kernels that ran, but not in both."""
    named = steps(config)
    helpers = [kernel for kernel, word in HELPERS.items() if word in config]
    return [word for word in named if not any(word in name for name in ran)] + [
        name for name in ran if not any(word in name for word in (*named, *helpers))
    ]


def test_a_step_without_its_kernel_is_seen() -> None:
    config = "pad; parts count=4; BLOCK_M=64, num_warps=4 (tuned)"
    assert unexplained(config, ["pad_kernel", "parts_matmul_kernel"]) == []
    assert unexplained(config, ["pad_kernel", "matmul_kernel"]) == ["parts", "matmul_kernel"]


def kernels(call: Callable[[], object]) -> list[str]:
    """The names of the kernels of a call, without copies and fills of memory and torch's own."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    names = [each.name for each in profiler.events() if each.device_type == torch.autograd.DeviceType.CUDA]
    return [name for name in names if not re.match(r"Memset|Memcpy|void at::|at::|ProfilerStep|Activity Buffer", name)]


def kernels_of_warm_call(call: Callable[[], object]) -> list[str]:
    """The names of the kernels of the second call: the first may tune and compile."""
    call()
    torch.cuda.synchronize()
    return kernels(call)


def source(module: str) -> str:
    """The text of a module and of the CUDA source called like it, with the headers that this includes."""
    path = ROOT / module.replace(".", "/")
    package = path / "__init__.py"
    files = [package, path / f"{path.name}.cu"] if package.is_file() else [path.with_suffix(e) for e in (".py", ".cu")]
    text = "".join(each.read_text(encoding="utf-8") for each in files if each.is_file())
    headers = [build.HERE / name for name in re.findall(r'#include "([^"]+)"', text)]
    return text + "".join(each.read_text(encoding="utf-8") for each in headers if each.is_file())


def own_kernels(module: str) -> str:
    """The text that may define the kernels of a line without a `config`: its own, and that of the lines it imports."""
    text = source(module)
    imported = re.findall(r"^from ([a-z_0-9.]+) import", text, re.MULTILINE)
    return text + "".join(map(source, (name for name in imported if "._" not in name)))


@pytest.mark.gpu
@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", SHAPES)
def test_rows_name_the_kernels_that_run(operation: str, dtype: str) -> None:
    """Lines without a `config` run kernels of their own files, and of the lines that they import."""
    wrong = {}
    tuned: set[str] = set()
    for case in cases(operation, dtype):
        op = ops.operation(case)
        inputs, arguments = op.make_inputs(case, 0, torch.device("cuda")), op.arguments(case)
        for each in ours(operation):
            call = partial(each.function(), *inputs, **arguments)
            known = each.name in tuned
            try:
                with each.adapter.without_tuning(each.load()) if known else nullcontext():
                    ran = kernels_of_warm_call(call)
            except NotImplementedError:
                continue
            except OutOfResources:  # the configuration of a smaller head dimension needs more shared memory in this one
                ran = kernels_of_warm_call(call)
            tuned.add(each.name)
            if hasattr(each.load(), "config"):
                found = unexplained(config := each.configuration(inputs, arguments), ran)
            else:
                config, text = "", own_kernels(each.module)
                found = [name for name in ran if function_name(name) not in text]
            if found:
                wrong[each.name, case.label] = (config, ran, found)
    assert wrong == {}


def function_name(kernel: str) -> str:
    """`void clear<float>(float*, long)` is `clear`."""
    return re.sub(r"[<(].*", "", kernel).split()[-1]


def cases(operation: str, dtype: str) -> Iterator[Case]:
    """Each shape, float32 in tf32 where that exists, with the first and the last of the options."""
    op = ops.get(operation)
    dtype = dtype if dtype in op.dtypes else op.dtypes[0]
    every = {option.name: option.values for option in op.options if not option.beyond}
    options = list(op.option_combinations(dtype, every))
    for shape in SHAPES[operation]:
        for chosen in options if len(options) == 1 else (options[0], options[-1]):
            yield op.case(shape, dtype, op.precisions(dtype)[-1], **chosen)


def test_every_operation_with_a_chooser_is_in_the_grid() -> None:
    """tests/ranks has the choosers of operations over several processes."""
    choosers = {name for name in ops.alone() for each in builtin.implementations(name) if each.name.endswith("/auto")}
    assert choosers <= SHAPES.keys()
