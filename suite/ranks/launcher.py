"""Inside the process that starts the ranks: `python -m suite.ranks.launcher`, by torch.distributed.run as a library.

The elastic agent forks one process a rank, gives them a rendezvous, and ends all of them once one has failed. The
failures then go to stdout as JSON, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from suite.hardware.device import Device
from suite.processes.codec import from_json
from suite.processes.preload import preload
from suite.processes.startup import set_up
from suite.ranks.process import FAILURES

MONITOR_S, SHUTDOWN_S = 0.2, 2
"""Period at which the agent looks after the ranks, and the time that it gives them to end."""


def _import_others() -> None:
    import torch.distributed.launcher.api  # noqa: F401

    from suite.ranks import rank_main  # noqa: F401


def launch(device: Device, channels: list[int], stacks: list[int]) -> int:
    """Run one rank for each channel, until all have ended. Returns the exit status."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from suite.ranks import rank_main

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=len(channels),
        run_id=str(os.getpid()),
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        max_restarts=0,
        monitor_interval=MONITOR_S,
        start_method="fork",
    )
    try:
        elastic_launch(config, rank_main.run)(device, channels, stacks)
    except ChildFailedError as error:
        ends = {rank: (failure.exitcode, str(failure.message)) for rank, failure in error.failures.items()}
        print(f"\n{FAILURES}{json.dumps(ends)}", flush=True)
        return 1
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description="Internal: started by suite/ranks/process.py.")
    parser.add_argument("--device", required=True)
    for name in ("--stacks", "--lifeline"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--channels", type=json.loads, required=True)
    parser.add_argument("--rank-stacks", type=json.loads, required=True)
    arguments = parser.parse_args()
    set_up(arguments.stacks, arguments.lifeline)
    os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = str(SHUTDOWN_S)
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # a process that has asked CUDA itself cannot fork users of it
    device = from_json(Device, json.loads(arguments.device), "--device")
    preload(device, _import_others)
    sys.exit(launch(device, arguments.channels, arguments.rank_stacks))


if __name__ == "__main__":
    main()
