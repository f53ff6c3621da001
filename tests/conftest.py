"""Selects the device of the tests: an NVIDIA GPU if torch sees one, else the CPU, with Triton interpreted."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from quick import QuickTier
from thinning import repeats

from suite.frameworks.jax import ADAPTER as JAX
from suite.hardware.device import Device
from suite.hardware.host import CACHE_VARIABLE

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job ignores it, and so would its processes
    signal.signal(signal.SIGINT, signal.default_int_handler)

DRIVERS = ("/dev/nvidiactl", "/dev/dxg")
"""Device files of NVIDIA GPUs, on Linux and in Windows' subsystem for Linux."""
SLOW_S = 10.0
"""Tests that take longer are to be marked `slow`."""
TIMES_SLOW = 10
"""The limit of a test that is marked `slow` is so many times its `seconds`, those of an idle machine, if that is longer
than the limit of other tests. On a busy machine tests take several times as long."""
LAST = 1500
"""Fast tests that run after the slow ones."""


def _gpu_name() -> str | None:
    """From another process: Triton, which torch may import, reads TRITON_INTERPRET when it is first imported.

    Where there is no driver, nobody has to be asked.
    """
    if not any(map(os.path.exists, DRIVERS)):
        return None
    code = "import torch; print(torch.cuda.get_device_name(0) if torch.cuda.is_available() else '')"
    return (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stdout.strip() or None
    )


def _gpu_count() -> int:
    import torch

    return torch.cuda.device_count() if GPU else 0


GPU = os.environ.get("SUITE_TEST_GPU")
if GPU is None:
    GPU = os.environ["SUITE_TEST_GPU"] = _gpu_name() or ""  # inherited by the processes of pytest-xdist
if not GPU:
    os.environ["TRITON_INTERPRET"] = "1"
    # Most of a test of JAX is compilation.
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")
    JAX.prepare(Device("cpu"))  # its cache, before a test imports jax
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"  # JAX returns memory that the next test may need
# A cold cache is emptied before each sample. A virtual machine may report its host's, 30 times as large.
os.environ.setdefault(CACHE_VARIABLE, str(16 << 20))


@pytest.fixture(scope="session")
def device() -> str:
    """The kind of device that the tests run on."""
    return "cuda" if GPU else "cpu"


@pytest.fixture(scope="session")
def where(device: str) -> Device:
    """The device that the tests run on, after every framework has been prepared for it."""
    from suite import frameworks

    found = Device("cpu", name="CPU")
    if device == "cuda":
        import torch

        found = Device("cuda", 0, torch.cuda.get_device_name(0), torch.cuda.get_device_capability(0))
    for name in frameworks.names():
        frameworks.get(name).prepare(found)
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="a sample of the tests, in about a minute; see quick.py")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", None):  # pytest-xdist will start a process for each core
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # a plugin imports numpy there before this file is read
    if config.getoption("quick"):
        config.pluginmanager.register(QuickTier())


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> Iterator[int]:
    """One process more than cores: a fifth of the time of all tests is waiting for processes that they start."""
    return (yield) + (not GPU and not config.getoption("quick"))


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Names the tests that take long and are not marked `slow`."""
    passed = terminalreporter.stats.get("passed", [])
    long = [report for report in passed if report.duration > SLOW_S and "slow" not in report.keywords]
    for report in sorted(long, key=lambda report: -report.duration):
        terminalreporter.write_line(f"not marked slow: {report.duration:.1f} s {report.nodeid}")


def pytest_collection() -> None:
    """Collect no garbage while the tests are imported: it takes a quarter of that time and finds little."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep the two million objects that tests import out of every garbage collection, and collect less often: there is
    little garbage.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _leave_out_repeated_skips(config, items)
    for item in items:
        if item.get_closest_marker("gpu") and not GPU:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU that torch can use"))
        if item.get_closest_marker("two_gpus") and _gpu_count() < 2:
            item.add_marker(pytest.mark.skip(reason="needs two NVIDIA GPUs that torch can use"))
    _allow_slow_ones_more_time(config, items)
    items[:] = _ordered(items)


def _allow_slow_ones_more_time(config: pytest.Config, items: list[pytest.Item]) -> None:
    usual_s = config.getoption("timeout")
    for item in items if usual_s else []:
        if TIMES_SLOW * _slow_s(item) > usual_s and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TIMES_SLOW * _slow_s(item)))


def _leave_out_repeated_skips(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a GPU one parameter set of each function says why the others, thousands in all, would be skipped."""
    repeated = {*repeats([item for item in items if item.get_closest_marker("gpu")])} if not GPU else set()
    if repeated:
        config.hook.pytest_deselected(items=[*repeated])
        items[:] = [item for item in items if item not in repeated]


def _ordered(items: list[pytest.Item]) -> list[pytest.Item]:
    """Fast tests first; then slow ones, the longest first; then LAST fast ones, so that all processes end together."""
    slow = sorted((item for item in items if _slow_s(item)), key=_slow_s, reverse=True)
    fast = [item for item in items if not _slow_s(item)]
    last = [item for item in fast if not item.get_closest_marker("thorough")][-LAST:]
    after = set(last)
    return [*(item for item in fast if item not in after), *slow, *last]


def _slow_s(item: pytest.Item) -> float:
    """The seconds of a test that is marked `slow`, else 0."""
    slow = item.get_closest_marker("slow")
    return 0.0 if slow is None else float(slow.kwargs.get("seconds", 1.0))
