"""The command `tune`, with replies instead of a worker."""

from __future__ import annotations

import sys

import pytest
from tuned_kernels import ENTRY, H200, tuned_folder  # noqa: F401 (a fixture)

from suite import ops
from suite.cli import main as cli
from suite.core.errors import ResultsError, UsageError
from suite.core.least import Least
from suite.frameworks.triton import tuned
from suite.hardware.device import Device
from suite.implementations import builtin
from suite.implementations.implementation import Implementation
from suite.runner import tune
from suite.runner.plan import Job
from suite.worker.pool import WorkerTimeoutError
from suite.worker.protocol import Failed, TunedKernel, TuneReply, TuneRequest

pytestmark = pytest.mark.usefixtures("tuned_folder")


class FakePool:
    """Replies by implementation, or raises."""

    replies: dict[str, TuneReply | Failed | Exception] = {}  # noqa: RUF012 (set by each test)
    asked: list[TuneRequest] = []  # noqa: RUF012

    def __init__(self, device: Device) -> None:
        self.discarded = 0

    def __enter__(self) -> FakePool:
        return self

    def __exit__(self, *_: object) -> None: ...

    def ask(self, request: TuneRequest, *, timeout_s: float) -> TuneReply | Failed:
        assert isinstance(request.implementation, str)
        self.asked.append(request)
        reply = self.replies[request.implementation]
        if isinstance(reply, Exception):
            raise reply
        return reply

    def discard(self) -> None:
        self.discarded += 1


def test_lines_and_the_file_have_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    FakePool.replies = {
        "triton/pipelined": TuneReply("ok", found=(TunedKernel(ENTRY, "BLOCK=32", "BLOCK=16", 2, 0),)),
        "triton/gluon": Failed("RuntimeError: no luck", "triton/gluon"),
        "triton/persistent": WorkerTimeoutError("hangs", None),
        "triton/split": TuneReply("unsupported", "float32 only"),
    }
    monkeypatch.setattr(tune, "Pool", FakePool)
    monkeypatch.setattr(Implementation, "obstacle", lambda self, device, case=None: None)
    case = ops.get("matmul").case((64, 64, 64), "bfloat16")
    names = (*FakePool.replies, "torch")
    lines = tuple(line for line in builtin.implementations("matmul") if line.name in names)
    shown: list[tune.Line] = []
    path = tune.tune(
        [Job(ops.get("matmul"), (case,), lines)],
        H200,
        seed=0,
        timeout_s=60,
        least=Least(1.0, 7),
        on_search=shown.append,
        on_step=lambda text: None,
    )
    assert path.is_file()
    assert {request.least for request in FakePool.asked} == {Least(1.0, 7)}
    assert tuned.find(H200.name) == [ENTRY]
    texts = {line.implementation: str(line) for line in shown}
    assert texts["torch"] == "torch  nothing to tune"
    head = "M=64,N=64,K=64 bfloat16 ieee  triton"
    assert texts["triton/pipelined"] == (
        f"{head}/pipelined  ok  BLOCK=32: 2 us, 1.500 x the short list's 3 us (BLOCK=16); 9 tried, 2 failed"
    )
    assert texts["triton/gluon"] == f"{head}/gluon  error  RuntimeError: no luck"
    assert texts["triton/persistent"] == f"{head}/persistent  timeout  hangs"
    assert texts["triton/split"] == f"{head}/split  unsupported  float32 only"
    assert {line.implementation for line in shown if line.failed} == {"triton/gluon", "triton/persistent"}


def test_a_damaged_file_is_an_error_before_any_work() -> None:
    tuned.path_for(H200.name).parent.mkdir()
    tuned.path_for(H200.name).write_text("{")
    with pytest.raises(ResultsError, match="not a readable file of tuned configurations"):
        tune.tune([], H200, seed=0, timeout_s=60, on_search=lambda search: None, on_step=lambda text: None)


def test_tuning_needs_a_gpu() -> None:
    with pytest.raises(UsageError, match="tune needs an NVIDIA GPU"):
        tune.tune([], Device("cpu"), seed=0, timeout_s=60, on_search=lambda search: None, on_step=lambda text: None)


REFUSED = {
    "no gpu": (["--op", "matmul", "--device", "cpu"], "tune needs an NVIDIA GPU"),
    "operation": (["--op", "matmull", "--device", "cpu"], "unknown operation 'matmull'"),
    "implementation": (["--op", "matmul", "--impl", "fortran"], "--impl 'fortran' matches none of triton, "),
    "timeout": (["--op", "matmul", "--timeout", "0"], "--timeout 0: must lie between 1 and 1e+06 seconds"),
}


@pytest.mark.parametrize(("arguments", "complaint"), REFUSED.values(), ids=REFUSED.keys())
def test_unusable_arguments_are_one_line_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["suite", "tune", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.count("\n") == 1
    assert complaint in written.err
