"""Where the tests run: on an NVIDIA GPU if torch sees one, else on the CPU with Triton interpreted and JAX told so."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from suite.hardware.device import Device


def _gpu_name() -> str | None:
    """Asked of a process of its own: Triton reads TRITON_INTERPRET when it is first imported, perhaps by torch."""
    code = "import torch; print(torch.cuda.get_device_name(0) if torch.cuda.is_available() else '')"
    return (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stdout.strip() or None
    )


GPU = os.environ.get("SUITE_TEST_GPU")
if GPU is None:
    GPU = os.environ["SUITE_TEST_GPU"] = _gpu_name() or ""  # workers of pytest-xdist inherit the answer
if not GPU:
    os.environ["TRITON_INTERPRET"] = "1"
    os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"  # JAX keeps no memory that the next test may need
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # a worker for each core already; more threads wait for each other


@pytest.fixture(scope="session")
def device() -> str:
    """The kind of device that the tests run on."""
    return "cuda" if GPU else "cpu"


@pytest.fixture(scope="session")
def where(device: str) -> Device:
    """The device that the tests run on, of which every framework has been told."""
    from suite import frameworks
    from suite.hardware.device import Device

    found = Device("cpu", name="CPU")
    if device == "cuda":
        import torch

        found = Device("cuda", 0, torch.cuda.get_device_name(0), torch.cuda.get_device_capability(0))
    for name in frameworks.names():
        frameworks.get(name).prepare(found)
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu") and not GPU:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU that torch can use"))
    items.sort(key=lambda item: bool(item.get_closest_marker("slow")))  # fast ones first
