"""A Dask cluster as the submitting host sees it: its devices, and those of the one model that a run uses."""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from suite.cluster import dask_settings
from suite.cluster.messages import WorkerDescription, decode
from suite.core.errors import UsageError
from suite.core.text import one_line
from suite.hardware.device import Device, device_slug
from suite.hardware.environment import command_line
from suite.results.resume import code_digest

if TYPE_CHECKING:
    from distributed import Client

CONNECT_S = 10
"""Time to connect to a scheduler."""


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """A client of the scheduler at `address`. Raises `UsageError` if it cannot be reached."""
    from distributed import Client

    for name in ("distributed", "distributed.client", "tornado.application", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # rows report lost workers and connections
    try:
        client = Client(address, security=dask_settings.security(address), timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"--cluster {address}: no scheduler could be reached: {one_line(str(error))}") from error
    try:
        yield client
    finally:
        client.close(timeout=1)


def describe_workers(
    client: Client, code: str, workers: Sequence[str] | None = None
) -> dict[str, WorkerDescription | str]:
    """Each worker's description, by its address, or the reason why it takes no cases.

    A worker that is ending has no entry. `code` is the digest of the code of this host.
    """
    from suite.cluster import device_plugin

    found: Mapping[str, Any] = client.run(device_plugin.describe, workers=workers, on_error="return")
    return {address: _checked(text, code) for address, text in found.items() if not isinstance(text, OSError)}


def _checked(text: object, own: str) -> WorkerDescription | str:
    if not isinstance(text, str):
        return f"a worker was not started by `cluster start`: {one_line(repr(text))}"
    found = decode(text)
    assert isinstance(found, WorkerDescription)
    return found if found.code == own else f"{found.host} has different code of the suite or of a kernel"


@dataclass(frozen=True)
class Survey:
    """The devices of one model in the cluster at `address`."""

    address: str
    device: Device
    memory_bytes: int | None
    """The smallest free memory of the devices."""
    environment: dict[str, Any]
    """The environment record of one of them."""
    devices: int
    hosts: int


def survey(address: str, model: str | None, commit: str) -> Survey:
    """The devices of one model in the cluster at `address`. `model` is the value of `--device`; None: the only model.

    Raises `UsageError` if there are no such devices, or several models.
    """
    from suite.cluster import device_plugin

    with connected(address) as client:
        if client.run_on_scheduler(device_plugin.allowed_failures) != 0:
            settings = dask_settings.folder() / "dask.yaml"
            raise UsageError(f"--cluster {address}: its scheduler must be started with DASK_CONFIG={settings}")
        everything = describe_workers(client, code_digest())
        fit = {worker: found for worker, found in everything.items() if isinstance(found, WorkerDescription)}
        if not fit:
            reasons = "; ".join(dict.fromkeys(each for each in everything.values() if isinstance(each, str)))
            raise UsageError(f"--cluster {address}: it has no device for this run: {reasons or 'no worker has joined'}")
        chosen = {worker: found for worker, found in fit.items() if _named(found.device, model)}
        if len({found.device.name for found in chosen.values()}) != 1:
            counts = Counter(device_slug(found.device.name) for found in fit.values())
            there = ", ".join(f"{name} ({number})" for name, number in counts.items())
            raise UsageError(f"--cluster {address}: name one model by --device; there are {there}")
        worker, found = next(iter(chosen.items()))
        memory = min((each.memory_bytes for each in chosen.values() if each.memory_bytes is not None), default=None)
        record = json.loads(client.run(device_plugin.environment, commit, workers=[worker])[worker])
    on = len({each.host for each in chosen.values()})
    return Survey(
        address, found.device, memory, {**record, "command": command_line(sys.argv)}, devices=len(chosen), hosts=on
    )


def _named(device: Device, model: str | None) -> bool:
    return model is None or model == device.type or device_slug(model) == device_slug(device.name)
