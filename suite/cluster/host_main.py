"""Starts a Dask worker, under a nanny, for each GPU of this host: `python -m suite.cluster.host_main ADDRESS`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import platform
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack

import dask
from distributed import Nanny

from suite.cluster import dask_settings, devices
from suite.cluster.device_plugin import DevicePlugin
from suite.hardware.threads import THREAD_VARIABLES

FIXED = ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", *THREAD_VARIABLES)
"""Environment variables of a worker that Dask must not overwrite."""
DEATH_TIMEOUT_S = 300
"""Time for a worker to start, and to look for a scheduler that is not there."""


def nannies(address: str, workers: int | None, host: str | None = None) -> list[Nanny]:
    """A nanny for each device of `devices.on_this_host`. Must be called in the event loop in which they run."""
    slots = devices.on_this_host(workers)
    common = {
        "nthreads": 1,
        "silence_logs": logging.WARNING,
        "memory_limit": 0,  # the suite's own workers watch theirs
        "death_timeout": DEATH_TIMEOUT_S,
        "host": host,
        "protocol": address.partition("://")[0],
        "security": dask_settings.security(address),
    }
    return [
        Nanny(
            address,
            name=f"{platform.node()} {environment['CUDA_VISIBLE_DEVICES'] or f'cpu-{os.getpid()}-{number}'}",
            resources={model: 1},
            env={name: environment[name] for name in FIXED if name in environment},
            plugins=(DevicePlugin(environment, len(slots)),),
            **common,
        )
        for number, (model, environment) in enumerate(slots)
    ]


async def until_signal() -> None:
    """Return once the process is asked to end, so that workers leave the scheduler in order."""
    asked = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, asked.set)
    await asked.wait()


async def join(address: str, workers: int | None, host: str | None = None) -> None:
    """Run the workers of this host until all have ended, or until a signal."""
    async with AsyncExitStack() as stack:
        running = await asyncio.gather(*map(stack.enter_async_context, nannies(address, workers, host)))
        ended = asyncio.gather(*(nanny.finished() for nanny in running))
        await asyncio.wait(
            [asyncio.ensure_future(until_signal()), asyncio.ensure_future(ended)], return_when=asyncio.FIRST_COMPLETED
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Internal: started by dask ssh, srun or Kubernetes, once a host.")
    parser.add_argument("address")
    parser.add_argument("--host", help="the name or address of this host that the scheduler reaches")
    parser.add_argument("--workers", type=int, help="number of GPUs to use; without a GPU, of processes on the CPU")
    parser.add_argument("--insecure", action="store_true")
    for name in ("--nthreads", "--memory-limit"):  # dask ssh gives them; both are fixed here
        parser.add_argument(name, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    address = dask_settings.checked(given.address, insecure=given.insecure)
    dask.config.update(dask.config.config, dask_settings.settings(encrypted=not given.insecure))
    asyncio.run(join(address, given.workers, given.host))


if __name__ == "__main__":
    main()
