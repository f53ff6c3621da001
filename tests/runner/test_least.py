"""`--min-time` and `--samples` reach every request that times something."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from scripted_worker import AGREES, H200, ScriptedPool, time_of

from suite import ops
from suite.cli import compare as command
from suite.cli import main as cli
from suite.core.least import Least
from suite.implementations.identity import ExternalReference
from suite.runner.device_run import DeviceRun
from suite.runner.options import Options

LEAST = Least(2.0, 50)


def test_implementations_of_the_tree(compare: Any) -> None:
    asked: list[Any] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "check":
            return AGREES
        asked.append(request["least"])
        return {"timings": {name: time_of(100.0) for name in request["implementations"]}}

    compare(answer, least=LEAST, repeat=2)
    assert asked == [{"time_s": 2.0, "samples": 50}] * 2


def test_files_of_the_user() -> None:
    pool: Any = ScriptedPool(H200)
    run = DeviceRun(pool, Options(H200, least=LEAST), {}, interpreted_too=False)
    reference = ExternalReference("with/mine", "/home/me/mine.py", "torch", True, "0123456789ab", 7)
    case = ops.get("vector_add").case((64,), "float32")
    assert run._external_request(case, reference, None).least == LEAST


def test_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Options] = []
    monkeypatch.setattr(command, "run_comparison", lambda selection, own, options, *_, **__: seen.append(options))
    arguments = ["compare", "--op", "vector_add", "--device", "cpu", "--min-time", "2", "--samples", "50"]
    monkeypatch.setattr("sys.argv", ["suite", *arguments])
    with pytest.raises(SystemExit):
        cli.main()
    assert seen == [replace(seen[0], least=LEAST)]
    assert seen[0].least == LEAST


@pytest.mark.parametrize("arguments", [["--samples", "-1"], ["--min-time", "-1"], ["--min-time", "inf"]])
def test_what_makes_no_sense_is_refused(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["suite", "compare", "--op", "vector_add", "--device", "cpu", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
