"""Workers of a simulated cluster. A task sleeps and returns synthetic rows.

`python -m validation.simulation.host ADDRESS WORKERS` starts them.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from pathlib import Path

from suite.cluster import host_main
from suite.cluster.device_plugin import DevicePlugin
from suite.cluster.messages import Finished, Setup, Task
from suite.results.row import Row

CASE_S = 0.5
"""Time of a simulated case, at most."""
PIDS = "KERNEL_SUITE_SIMULATED_PIDS"
"""The environment variable with the folder in which each worker notes its process."""


class Simulated(DevicePlugin):
    """A device whose tasks sleep and return synthetic rows."""

    def setup(self, worker: object) -> None:
        super().setup(worker)
        Path(os.environ[PIDS], str(os.getpid())).touch()

    def run(self, setup: Setup, task: Task) -> Finished:
        time.sleep(random.uniform(0.0, CASE_S))
        case = task.case
        names = [each for each in task.implementations if isinstance(each, str)]
        rows = [Row(case.operation, case.label, case.dtype, case.precision, name, device="cpu") for name in names]
        return Finished(task.number, tuple(rows))


def main() -> None:
    from validation.simulation.host import Simulated as Importable  # a worker imports it by this name

    address, workers = sys.argv[1:]
    host_main.DevicePlugin = Importable
    asyncio.run(host_main.join(address, int(workers), "127.0.0.1"))


if __name__ == "__main__":
    main()
