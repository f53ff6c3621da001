"""Worker processes: whatever an implementation does to its process becomes an answer, and the next is not touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from suite import ops
from suite.device import Device
from suite.isolate import Pool, WorkerDiedError, WorkerTimeoutError

CASE = ops.get("vector_add").case((100,))
FAULTS = {
    "right": "return a + b",
    "wrong": "return a - b",
    "raises": "raise RuntimeError('no luck\\ntoday')",
    "unsupported": "raise NotImplementedError('only on Tuesdays')",
    "segfault": "import ctypes; ctypes.string_at(0)",
    "kills_itself": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "exits": "import os; print('last words', flush=True); os._exit(3)",
    "prints": 'print(\'{"event": "done", "status": "ok"}\'); return a - b',
    "hangs": "import time; time.sleep(600)",
    "returns_nothing": "return None",
}


@pytest.fixture(scope="module")
def framework(tmp_path_factory: pytest.TempPathFactory) -> str:
    """PYTHONPATH of a sitecustomize that adds implementations `torch/<fault>` of vector_add to the worker."""
    folder = tmp_path_factory.mktemp("faults")
    for name, body in FAULTS.items():
        (folder / f"fault_{name}.py").write_text(f"def vector_add(a, b):\n    {body}\n", encoding="utf-8")
    (folder / "sitecustomize.py").write_text(
        "import dataclasses, suite.backends as backends\n"
        "real = backends.implementations\n"
        f"names = {list(FAULTS)}\n"
        "def implementations(operation):\n"
        "    plain = next(i for i in real(operation) if i.name == 'torch')\n"
        "    added = [dataclasses.replace(plain, name='torch/' + n, module='fault_' + n) for n in names]\n"
        "    return real(operation) + added\n"
        "backends.implementations = implementations\n",
        encoding="utf-8",
    )
    return str(folder)


@pytest.fixture
def pool(framework: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    import os

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([framework, str(Path(__file__).resolve().parents[1])]))
    with Pool(Device("cpu", name="CPU")) as pool:
        yield pool


def ask(pool: Pool, fault: str, timeout_s: float = 60.0) -> dict[str, object]:
    request = {"do": "check", "case": CASE.to_json(), "implementation": f"torch/{fault}", "seed": 0}
    return pool.ask(request, timeout_s=timeout_s)


def test_python_faults_are_answers_and_the_worker_is_reused(pool: Pool) -> None:
    assert ask(pool, "right")["status"] == "ok"
    assert ask(pool, "wrong")["status"] == "wrong"
    raised = ask(pool, "raises")
    assert raised["status"] == "error"
    assert raised["reason"] == "RuntimeError: no luck today (fault_raises.py:2)"
    assert ask(pool, "unsupported") == {"status": "unsupported", "reason": "only on Tuesdays"}
    assert ask(pool, "prints")["status"] == "wrong", "what a kernel prints is never taken for an answer"
    assert "is a NoneType" in str(ask(pool, "returns_nothing")["reason"])
    assert ask(pool, "right")["status"] == "ok"


@pytest.mark.parametrize(
    ("fault", "message"),
    [("segfault", "SIGSEGV"), ("kills_itself", "SIGKILL"), ("exits", "exit status 3: last words")],
)
def test_a_process_that_dies_is_reported_and_replaced(pool: Pool, fault: str, message: str) -> None:
    with pytest.raises(WorkerDiedError, match=message) as caught:
        ask(pool, fault)
    assert caught.value.last_started == f"torch/{fault}"
    assert ask(pool, "right")["status"] == "ok"


def test_a_process_that_hangs_is_stopped_and_replaced(pool: Pool) -> None:
    ask(pool, "right")
    with pytest.raises(WorkerTimeoutError, match="within 1 s"):
        ask(pool, "hangs", timeout_s=1.0)
    assert ask(pool, "right")["status"] == "ok"
