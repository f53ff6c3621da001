"""Calls from Python: what is plain is accepted, and anything else is refused in Python's words."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer

import suite
from suite import api
from suite.cli.main import app
from suite.core.errors import UsageError
from suite.runner.python_words import WORDS, translated

CUBE = ["M=64,N=64,K=64"]


def labels(*args: Any, **given: Any) -> list[str]:
    """The sizes of the cases of a call, which runs on the CPU."""
    return list(dict.fromkeys(case.label.split(",layout")[0] for case in suite.cases(*args, device="cpu", **given)))


@pytest.mark.parametrize(
    "given",
    [
        {"shapes": (64, 64, 64)},
        {"shapes": [64, 64, 64]},
        {"shapes": [(64, 64, 64)]},
        {"shapes": 64},
        {"shapes": [64]},
        {"shapes": np.int64(64)},
        {"shapes": torch.Size((64, 64, 64))},
        {"shapes": {"M": 64, "N": 64, "K": 64}},
        {"shapes": "M=N=K=64"},
        {"shape": (64, 64, 64)},
        {"sizes": 64},
    ],
    ids=str,
)
def test_one_size_can_be_given_in_many_ways(given: dict[str, Any]) -> None:
    assert labels("matmul", **given) == CUBE


def test_several_sizes() -> None:
    assert labels("vector_add", shapes=[10, 20]) == labels("vector_add", shape=[(10,), "N=20"]) == ["N=10", "N=20"]
    assert labels("matmul", shapes=[64, 32]) == [*CUBE, "M=32,N=32,K=32"]
    assert labels("matmul", shapes=[64, (1, 2, 3)]) == [*CUBE, "M=1,N=2,K=3"]


@pytest.mark.parametrize(
    "dtype",
    [torch.float16, "torch.float16", "fp16", "float16", np.float16, np.dtype("float16"), [torch.float16], ("fp16",)],
    ids=str,
)
def test_a_dtype_is_a_name_or_an_object(dtype: Any) -> None:
    for name in ("dtype", "dtypes"):
        assert {case.dtype for case in suite.cases("vector_add", shapes=8, device="cpu", **{name: dtype})} == {
            "float16"
        }


def test_other_arguments_that_are_plain() -> None:
    given = suite.cases("vector_add,sigmoid", dtypes="fp32,fp16", device=torch.device("cpu"))
    assert {case.operation for case in given} == {"vector_add", "sigmoid"}
    assert {case.dtype for case in given} == {"float32", "float16"}
    assert suite.check(torch.add, "vector_add", shape=10, dtype=torch.float16, device="cpu").agrees
    assert labels("sum", shapes=(2, 3), axis=0) == labels("sum", shapes=(2, 3), axis="0") == ["M=2,N=3,axis=0"]


def add(a: Any, b: Any) -> Any:
    return a + b


REFUSED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = {
    "report": (suite.report, (3,), {}, "runs: 3 is no result; give a frame of suite.compare, a folder or a table"),
    "nothing": (suite.report, ([],), {}, "report: got no results"),
    "formats": (suite.report, ("x",), {"format": 3}, "formats: 3 is neither a text nor a list"),
    "size": (suite.compare, ("matmul",), {"shapes": (64, 64)}, "size (64, 64): matmul has 3 dimensions"),
    "size of lstm": (suite.compare, ("lstm",), {"shapes": 64}, "size 64: lstm has 4 dimensions: T, B, I, H; give a"),
    "size text": (suite.compare, ("matmul",), {"shape": "M=1"}, "shapes 'M=1': missing N, K; matmul takes e.g. M=512"),
    "size kind": (suite.compare, ("matmul",), {"shapes": [1.5]}, "size 1.5: is neither whole numbers nor a text"),
    "dtype": (suite.compare, ("matmul",), {"dtype": 3}, "dtypes: 3 is no dtype; give a name such as 'float16'"),
    "dtype name": (suite.compare, ("matmul",), {"dtypes": "fp61"}, "dtypes: unknown 'fp61'; valid are float32"),
    "operation": (suite.compare, (3,), {}, "operation: 3 is neither a text nor a list"),
    "unknown operation": (suite.compare, ("softmaxx",), {}, "did you mean softmax?"),
    "argument": (suite.compare, ("matmul",), {"implemntations": "x"}, "compare has no argument 'implemntations'; did"),
    "twice": (suite.compare, ("matmul",), {"shape": 1, "shapes": 2}, "compare: shapes is given under two names"),
    "option": (suite.compare, ("matmul",), {"causal": True}, "causal is not an option of matmul"),
    "option value": (suite.compare, ("matmul",), {"layout": 1.5}, "layout: 1.5 is neither a text nor True or False"),
    "implementation": (suite.compare, ("matmul",), {"implementations": "trton"}, "implementations 'trton' matches no"),
    "exclude": (suite.compare, ("matmul",), {"exclude": "x"}, "exclude 'x' matches none of"),
    "files": (suite.compare, ("matmul",), {"files": "gone.py"}, "files gone.py: there is no such file"),
    "inputs": (suite.compare, ("matmul",), {"inputs": "none,nan"}, "inputs none runs the default inputs alone; leave"),
    "device": (suite.compare, ("matmul",), {"device": "gpu"}, "device: unknown 'gpu'; valid are cpu, cuda, cuda:INDEX"),
    "too large": (suite.compare, ("matmul",), {"shapes": 9999999}, "GiB: give smaller sizes"),
    "one size": (suite.check, (add, "vector_add"), {"case": "N=1,2"}, "size N=1,2: stands for 2 sizes; give one"),
    "one case": (suite.check, (add, "matmul"), {"shape": "M=1"}, "size 'M=1': missing N, K"),
    "one dtype": (suite.check, (add, "matmul", 8), {"dtypes": "fp61"}, "dtype: unknown 'fp61'"),
    "function": (suite.check, ("add", "vector_add", 8), {}, "function: 'add' cannot be called; give a function"),
    "timed": (suite.time, (None, "vector_add", 8), {}, "function: None cannot be called; give a function"),
    "beside": (suite.time, (add, "vector_add", 8), {"beside": "troch"}, "did you mean torch?"),
    "framework": (suite.check, (add, "vector_add", 8), {"framework": "pytorch"}, "did you mean torch?"),
}  # fmt: skip


@pytest.mark.parametrize(("function", "args", "given", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_anything_else_is_one_sentence_in_pythons_words(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    given: dict[str, Any],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api, "_rows", lambda *_: pytest.fail("something ran"))
    device = {"device": "cpu"} if function is not suite.report else {}
    with pytest.raises(UsageError) as caught:
        function(*args, **(device | given))
    assert message in str(caught.value)
    assert "--" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_with_results_is_refused_and_replaced_if_forced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vector_add.csv").write_text("mine", encoding="utf-8")
    monkeypatch.setattr("suite.runner.compare.compare", lambda *_, **__: [])
    with pytest.raises(UsageError, match=r"vector_add\.csv exists and .* with out=\.\.\., or force=True"):
        suite.compare("vector_add", shapes=8, device="cpu", out=tmp_path)
    suite.compare("vector_add", shapes=8, device="cpu", out=tmp_path, force=True)


def test_every_option_of_the_command_line_has_words_for_python() -> None:
    """They name arguments of `suite.compare` or `suite.report`, where these have one."""
    arguments = {*inspect.signature(suite.compare).parameters, *inspect.signature(suite.report).parameters}
    command = typer.main.get_command(app).commands["compare"]  # type: ignore[attr-defined]
    flags = [flag for each in command.params for flag in each.opts if flag.startswith("--")]
    assert len(flags) > 30
    for flag in flags:
        assert re.fullmatch(r"[a-z_]+(=True|=False|=\.\.\.)?", translated(flag)), flag
    assert {words.partition("=")[0] for words in WORDS.values()} <= arguments
    assert translated("--causal/--no-causal and --no-time") == "causal and timed=False"


def test_a_misspelt_function_is_near_a_right_one() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'comapre'.*; did you mean compare\?"):
        _ = suite.comapre  # type: ignore[attr-defined]
