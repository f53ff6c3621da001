"""Tuned configurations: the file that keeps them, their way into autotuners, and the search, with clocks that are not
clocks and kernels that compute on the host."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from suite import backends, cli, ops, protocol, tune, tuned
from suite.backends.triton import Triton
from suite.device import Device
from suite.errors import ResultsError, SuiteError, UsageError
from suite.isolate import Pool, WorkerDiedError, WorkerTimeoutError
from suite.select import Job

pytest.importorskip("triton")
H200 = Device("cuda", 0, "NVIDIA H200", (9, 0))
ENTRY = tuned.Entry(
    kernel="fake.kernel",
    key={"N": 64, "MODE": "up"},
    dtypes=("torch.float32",),
    config={"BLOCK": 32, "num_warps": 8, "num_stages": 3},
    us=2.0,
    short_list_us=3.0,
    candidates=9,
)
HEAD = {"device": H200.name, "version": "3.6.0", "driver": "580.1"}


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No test reads or writes the tree's own file, or asks Triton's cache, which wants kernels of source code."""
    monkeypatch.setattr(tuned, "FOLDER", tmp_path)
    monkeypatch.setenv("TRITON_CACHE_AUTOTUNING", "0")
    return tmp_path


# The file.


def test_what_is_written_is_read_and_is_sorted_one_entry_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a" / "t.json"
    entries = [replace(ENTRY, key={"N": n, "MODE": None}) for n in (1024, 64, 512)]
    tuned.write(path, entries, **HEAD)
    assert [entry.key["N"] for entry in tuned.read(path, H200.name, "3.6.0")] == [64, 512, 1024]
    lines = path.read_text().splitlines()
    assert lines[1:4] == [' "device": "NVIDIA H200",', ' "triton": "3.6.0",', ' "driver": "580.1",']
    assert [json.loads(line.strip().rstrip(","))["key"]["N"] for line in lines if '"kernel"' in line] == [64, 512, 1024]
    assert tuned.read(tmp_path / "absent.json", H200.name, "3.6.0") == []


def test_an_answer_replaces_the_earlier_one_and_the_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "version", lambda: "3.6.0")
    other = replace(ENTRY, dtypes=("torch.float16",))
    tuned.keep([ENTRY, other], H200.name, "1")
    tuned.keep([replace(ENTRY, us=1.0)], H200.name, "2")
    assert {entry.dtypes: entry.us for entry in tuned.find(H200.name)} == {ENTRY.dtypes: 1.0, other.dtypes: 2.0}
    assert tuned.path_for(H200.name).relative_to(tuned.FOLDER).as_posix() == "nvidia-h200/triton-3.6.0.json"
    assert tuned.find("NVIDIA L4") == [], "another device has another file"
    monkeypatch.setattr(tuned, "version", lambda: "3.7.1")
    assert tuned.find(H200.name) == [], "so has another version"


def _document(**changes: Any) -> dict[str, Any]:
    return {"device": H200.name, "triton": "3.6.0", "driver": "1", "entries": [asdict(ENTRY)], **changes}


DAMAGED = {
    "empty": "",
    "not json": "{",
    "a list": "[]",
    "deep": "[" * 100_000,
    "another field": json.dumps(_document(date="today")),
    "entries no list": json.dumps(_document(entries={})),
    "entry no dict": json.dumps(_document(entries=[1])),
    "entry of other fields": json.dumps(_document(entries=[{**asdict(ENTRY), "speed": 1}])),
    "kernel no text": json.dumps(_document(entries=[{**asdict(ENTRY), "kernel": 1}])),
    "key nested": json.dumps(_document(entries=[{**asdict(ENTRY), "key": {"N": [1]}}])),
    "config a list": json.dumps(_document(entries=[{**asdict(ENTRY), "config": [1]}])),
    "dtypes a text": json.dumps(_document(entries=[{**asdict(ENTRY), "dtypes": "torch.float32"}])),
    "no time": json.dumps(_document(entries=[{**asdict(ENTRY), "us": None}])),
    "infinite time": json.dumps(_document(entries=[{**asdict(ENTRY), "us": float("inf")}])),
    "true candidates": json.dumps(_document(entries=[{**asdict(ENTRY), "candidates": True}])),
    "answered twice": json.dumps(_document(entries=[asdict(ENTRY), asdict(ENTRY)])),
    "another device": json.dumps(_document(device="NVIDIA L4")),
    "another version": json.dumps(_document(triton="3.5.0")),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(ResultsError, match=r"t\.json: .*remove it") as caught:
        tuned.read(path, H200.name, "3.6.0")
    assert "\n" not in str(caught.value)


# Autotuners. A kernel here is what an Autotuner needs of a kernel, and computes sums on the host.


class Kernel:
    """`out = a + b` in Python; `launched` has the parameters of each launch."""

    arg_names = ("a", "b", "out", "N", "MODE", "BLOCK")

    def __init__(self, faults: dict[int, str]) -> None:
        self.faults, self.launched = faults, list[dict[str, Any]]()

    fn = staticmethod(lambda: None)

    def run(self, a: Any, b: Any, out: Any, N: int, *, grid: Any, warmup: bool, **parameters: Any) -> None:
        fault = self.faults.get(parameters["BLOCK"])
        if fault == "does not compile":
            raise RuntimeError(fault)
        if warmup:
            return
        if fault == "does not launch":
            raise RuntimeError(fault)
        self.launched.append(parameters)
        out.copy_(a - b if fault == "wrong" else a + b)


def fake_module(faults: dict[int, str] | None = None, hook: Callable[[Any], None] | None = None) -> ModuleType:
    """A module like those of triton_kernels: `vector_add`, an autotuned `kernel`, a `tuning_space`."""
    import triton

    module = ModuleType("triton_kernels.fake")

    def config(BLOCK: int) -> triton.Config:
        return triton.Config({"BLOCK": BLOCK}, num_warps=4, num_stages=3, pre_hook=hook)

    tuner = triton.autotune(
        [config(16), config(64)], key=["N", "MODE"], do_bench=lambda call, quantiles: (call(), [1.0, 1.0, 1.0])[1]
    )(Kernel(faults or {}))

    def vector_add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(a)
        if a.numel():
            tuner[(1,)](a, b, out, a.numel(), MODE="up")
        return out

    def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
        assert (args["N"], constants) == (args["a"].numel(), {"MODE": "up"})
        return [config(block) for block in (16, 32, 128, 256, 512)]

    vars(module).update(kernel=tuner, vector_add=vector_add, tuning_space=tuning_space)
    return module


def call(module: ModuleType, N: int, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """The parameters with which one call launched in the end."""
    a = torch.ones(N, dtype=dtype)
    assert torch.equal(module.vector_add(a, a), a + a)
    return module.kernel.fn.launched[-1]


def equipped(monkeypatch: pytest.MonkeyPatch, module: ModuleType, *entries: tuned.Entry) -> Triton:
    """A backend on an H200 whose file has these entries, and the module given them."""
    monkeypatch.setattr(tuned, "version", lambda: "3.6.0")
    monkeypatch.setattr("suite.backends._caches.use", lambda caches: None)
    for name in ("TRITON_INTERPRET", "TRITON_CACHE_AUTOTUNING"):
        monkeypatch.setenv(name, "0")  # which restores what prepare() changes
    if entries:
        tuned.keep(entries, H200.name, "1")
    backend = Triton()
    backend.prepare(H200)
    backend.equip(module)
    return backend


THREE = ("torch.float32",) * 3


def test_a_tuned_configuration_is_used_without_trying_any_and_with_its_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    hooked: list[Any] = []
    module = fake_module(hook=lambda args: hooked.append(args["BLOCK"]))
    backend = equipped(monkeypatch, module, replace(ENTRY, dtypes=THREE))
    assert backend.configuration(module) == ""
    assert call(module, 64) == {"MODE": "up", "BLOCK": 32, "num_warps": 8, "num_ctas": 1, "num_stages": 3}
    assert len(module.kernel.fn.launched) == 1
    assert hooked == [32]
    assert backend.configuration(module) == "BLOCK=32, num_warps=8, num_stages=3 (tuned)"
    backend.equip(module)  # as every load does
    assert call(module, 64)["BLOCK"] == 32


@pytest.mark.parametrize(("N", "dtype"), [(65, torch.float32), (64, torch.float16)])
def test_other_questions_are_left_to_the_short_list(
    monkeypatch: pytest.MonkeyPatch, N: int, dtype: torch.dtype
) -> None:
    module = fake_module()
    backend = equipped(monkeypatch, module, replace(ENTRY, dtypes=THREE))
    assert call(module, N, dtype)["BLOCK"] == 16
    assert len(module.kernel.fn.launched) == 3
    assert backend.configuration(module) == "BLOCK=16, num_warps=4, num_stages=3 (autotuned)"


UNUSABLE = {
    "other name": ({"BLOCK_N": 32, "num_warps": 8, "num_stages": 3}, "a configuration has BLOCK_N, num_warps"),
    "no warps": ({"BLOCK": 32, "num_stages": 3}, "this kernel's have BLOCK, num_warps, num_stages"),
    "a text": ({"BLOCK": "32", "num_warps": 8, "num_stages": 3}, "BLOCK='32' in a configuration: must be of type int"),
    "true": ({"BLOCK": 32, "num_warps": True, "num_stages": 3}, "num_warps=True in a configuration: must be of type"),
    "nothing": ({}, "a configuration has nothing"),
}


@pytest.mark.parametrize(("config", "reason"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_configuration_that_does_not_fit_the_kernel_is_not_used_and_the_row_says_why(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], reason: str
) -> None:
    module = fake_module()
    backend = equipped(monkeypatch, module, replace(ENTRY, dtypes=THREE, config=config))
    assert call(module, 64)["BLOCK"] == 16
    assert "(autotuned; tuned configurations not used: " in backend.configuration(module)
    assert reason in backend.configuration(module)


def test_a_damaged_file_is_not_used_and_the_row_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "version", lambda: "3.6.0")
    tuned.path_for(H200.name).parent.mkdir()
    tuned.path_for(H200.name).write_text("{")
    module = fake_module()
    backend = equipped(monkeypatch, module)
    assert call(module, 64)["BLOCK"] == 16
    assert "(autotuned; tuned configurations not used: " in backend.configuration(module)
    assert "triton-3.6.0.json: not a readable file" in backend.configuration(module)


def test_a_key_is_named_in_what_json_has_words_for() -> None:
    from triton.experimental.gluon import language as gl

    from suite.backends import _autotuner

    kernel = SimpleNamespace(keys=["M", "ROWS", "DTYPE"])
    values, dtypes = _autotuner.named(kernel, (64, True, gl.float16, "torch.float16", "torch.int32"))
    assert values == {"M": 64, "ROWS": True, "DTYPE": "fp16"}
    assert dtypes == ("torch.float16", "torch.int32")


def test_loading_an_implementation_equips_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    equipped: list[str] = []
    monkeypatch.setattr(backends.base.Backend, "equip", lambda self, module: equipped.append(module.__name__))
    (line,) = (line for line in backends.implementations("vector_add") if line.name == "numpy")
    line.load()
    assert equipped == [line.module]


# The search.


def race(times: dict[str, float], *, failing: str = "", wrong: str = "") -> tuple[Any, list[list[str]]]:
    """A race from "a", and who took part in each measurement."""
    from suite import search

    rounds: list[list[str]] = []

    def measure(names: Sequence[str], budget_s: float) -> dict[str, float]:
        rounds.append(list(names))
        return {name: times[name] for name in names}

    outcome = search.race(
        list(times),
        "a",
        look=lambda name: None if name in failing else times[name],
        measure=measure,
        judge=lambda name: "value: off" if name in wrong else "",
    )
    return outcome, rounds


def test_the_fastest_wins_and_the_slow_leave_early_but_for_the_one_to_beat() -> None:
    outcome, rounds = race({"a": 2000.0, "b": 1000.0, "c": 1340.0, "d": 1400.0, "e": 1050.0})
    assert (outcome.best, outcome.us, outcome.first_us, outcome.candidates) == ("b", 1000.0, 2000.0, 5)
    assert rounds == [["a", "b", "c", "e"], ["a", "b", "e"]]


def test_what_fails_is_counted_and_what_is_wrong_does_not_win() -> None:
    outcome, _ = race({"a": 104.0, "b": 101.0, "c": 100.0, "d": 90.0}, failing="d", wrong="c")
    assert (outcome.best, outcome.failed, outcome.wrong, outcome.candidates) == ("b", 1, 1, 4)


def test_nothing_wins_where_all_are_wrong_or_the_one_to_beat_fails() -> None:
    with pytest.raises(SuiteError, match="none of the 2 fastest configurations agrees: value: off"):
        race({"a": 1.0, "b": 1.0}, wrong="ab")
    with pytest.raises(SuiteError, match="cannot be launched again"):
        race({"a": 1.0, "b": 1.0}, failing="a")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Larger blocks are faster. The names of what was measured last."""
    from suite import search, timing

    measured: list[str] = []

    def measure(calls: Sequence[timing.Call], **options: Any) -> dict[str, Any]:
        measured[:] = [each.name for each in calls]
        for each in calls:
            options["on_progress"](each.name)
            each.run()
        times = {name: 1000 - 0.1 * int(name.split(",")[0].split("=")[1]) for name in measured}
        return {name: SimpleNamespace(device_us=us) for name, us in times.items()}

    monkeypatch.setattr(timing, "measure", measure)
    monkeypatch.setattr(search, "HOST_US", 1e9)  # a busy host is no reason to lose a candidate
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    return measured


def find(module: ModuleType, announce: Callable[[str], None] = lambda phase: None, N: int = 64) -> list[Any]:
    from suite.examine import Problem
    from suite.search import Search

    line = SimpleNamespace(
        backend=backends.backend("torch"),
        deterministic=True,
        load=lambda: module,
        function=lambda: module.vector_add,
    )
    problem = Problem(ops.get("vector_add").case((N,)), 0, torch.device("cpu"))
    return Search(line, problem, torch.device("cpu"), 0, announce).run()  # type: ignore[arg-type]


def test_a_search_finds_the_fastest_that_launches_and_agrees(clock: list[str]) -> None:
    module = fake_module({512: "does not compile", 256: "does not launch", 128: "wrong"})
    before = module.kernel.cache
    phases: list[str] = []
    (found,) = find(module, phases.append)
    assert found.entry.config == {"BLOCK": 64, "num_warps": 4, "num_stages": 3}
    assert (found.entry.kernel, found.entry.key, found.entry.dtypes) == ("fake.kernel", {"N": 64, "MODE": "up"}, THREE)
    assert (found.entry.us, found.entry.short_list_us, found.entry.candidates) == (993.6, 998.4, 6)
    assert (found.short_list, found.failed, found.wrong) == ("BLOCK=16, num_warps=4, num_stages=3", 2, 1)
    assert module.kernel.cache is before, "it forgets what it knew only while it searches"
    assert "run" not in vars(module.kernel)
    assert f"{protocol.TIMED_CALL} of BLOCK=64, num_warps=4, num_stages=3" in phases
    assert phases[0] == protocol.FIRST_CALL


def test_what_was_found_is_what_a_later_process_uses(clock: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = find(fake_module())
    reply = json.loads(json.dumps(asdict(found)))
    module = fake_module()
    equipped(monkeypatch, module, tuned.entry(reply["entry"]))
    assert call(module, 64)["BLOCK"] == 512


def test_a_call_that_asks_no_autotuner_finds_nothing(clock: list[str]) -> None:
    assert find(fake_module(), N=0) == []


def test_a_configuration_that_breaks_the_device_ends_the_search_by_name(
    clock: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(device: Any = None) -> None:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", broken)
    with pytest.raises(SuiteError, match="BLOCK=128, num_warps=4, num_stages=3: does not launch"):
        find(fake_module({128: "does not launch"}))


def test_a_worker_answers_for_what_has_no_autotuner_here_and_for_what_does_not_cover_a_case() -> None:
    case = ops.get("matmul").case((16, 16, 16), "float32").to_json()
    with Pool(Device("cpu", name="CPU")) as pool:
        replies = [
            pool.ask({"do": "tune", "case": case, "implementation": name, "seed": 0}, timeout_s=60.0)
            for name in ("torch", "triton/persistent")
        ]
    assert replies[0] == {"status": "ok", "found": []}
    assert replies[1]["status"] == "unsupported"


# The command.


class FakePool:
    """Answers, by implementation, instead of a worker."""

    answers: dict[str, Any] = {}  # noqa: RUF012 (set by each test)

    def __init__(self, device: Device) -> None:
        self.discarded = 0

    def __enter__(self) -> FakePool:
        return self

    def __exit__(self, *_: object) -> None: ...

    def ask(self, request: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        assert request["do"] == "tune"
        answer = self.answers[request["implementation"]]
        if isinstance(answer, Exception):
            raise answer
        reply: dict[str, Any] = json.loads(json.dumps(answer))
        return reply

    def discard(self) -> None:
        self.discarded += 1


def test_lines_and_the_file_tell_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"entry": asdict(ENTRY), "config": "BLOCK=32", "short_list": "BLOCK=16", "failed": 2, "wrong": 0}
    FakePool.answers = {
        "triton": {"status": "ok", "found": [found]},
        "triton/gluon": {"status": "error", "reason": "RuntimeError: no luck", "failed": "triton/gluon"},
        "triton/persistent": WorkerTimeoutError("hangs", None),
        "triton/split": {"status": "unsupported", "reason": "float32 only"},
    }
    monkeypatch.setattr(tune, "Pool", FakePool)
    monkeypatch.setattr(backends.Implementation, "obstacle", lambda self, device, case=None: None)
    case = ops.get("matmul").case((64, 64, 64), "bfloat16")
    names = (*FakePool.answers, "torch")
    lines = tuple(line for line in backends.implementations("matmul") if line.name in names)
    told: list[tune.Line] = []
    path = tune.tune(
        [Job(ops.get("matmul"), (case,), lines)],
        H200,
        seed=0,
        timeout_s=60,
        on_line=told.append,
        on_step=lambda text: None,
    )
    assert path.is_file()
    assert tuned.find(H200.name) == [ENTRY]
    texts = {line.implementation: str(line) for line in told}
    assert texts["torch"] == "torch  nothing to tune"
    head = "M=64,N=64,K=64 bfloat16 ieee  triton"
    assert texts["triton"] == (
        f"{head}  ok  BLOCK=32: 2 us, 1.500 x the short list's 3 us (BLOCK=16); 9 tried, 2 failed"
    )
    assert texts["triton/gluon"] == f"{head}/gluon  error  RuntimeError: no luck"
    assert texts["triton/persistent"] == f"{head}/persistent  timeout  hangs"
    assert texts["triton/split"] == f"{head}/split  unsupported  float32 only"
    assert {line.implementation for line in told if line.failed} == {"triton/gluon", "triton/persistent"}
    assert issubclass(WorkerTimeoutError, WorkerDiedError)


def test_a_damaged_file_is_met_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "version", lambda: "3.6.0")
    tuned.path_for(H200.name).parent.mkdir()
    tuned.path_for(H200.name).write_text("{")
    with pytest.raises(ResultsError, match="not a readable file of tuned configurations"):
        tune.tune([], H200, seed=0, timeout_s=60, on_line=lambda line: None, on_step=lambda text: None)


def test_tuning_needs_a_gpu() -> None:
    with pytest.raises(UsageError, match="tune needs an NVIDIA GPU"):
        tune.tune([], Device("cpu"), seed=0, timeout_s=60, on_line=lambda line: None, on_step=lambda text: None)


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
