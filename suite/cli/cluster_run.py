"""Checks the options of `compare --cluster`, finds its devices, and drops the jobs that it cannot run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from suite.cli.parameters import Parameters
from suite.core.errors import UsageError
from suite.runner.options import Options

if TYPE_CHECKING:
    from collections.abc import Callable

    from suite.cluster.hosts import Survey
    from suite.runner.plan import Job

HERE = ("gpus", "reference", "kernelbench", "gpumode", "once", "profile", "dump")
"""Options that concern devices, processes or files of this host."""


def surveyed(parameters: Parameters) -> Survey | None:
    """The devices of `--cluster`; None without it. Raises `UsageError` for options that do not go with it."""
    if not parameters["cluster"]:
        if parameters["insecure"]:
            raise UsageError("--insecure needs --cluster")
        return None
    if given := [name for name in HERE if parameters.get(name)]:
        raise UsageError(f"--cluster: leave out --{given[0]}, which applies to this host only")
    from suite.cluster import dask_settings, hosts

    dask_settings.require()
    address = dask_settings.checked(parameters["cluster"], insecure=parameters["insecure"])
    return hosts.survey(address, parameters["device"], parameters["commit"])


def for_cluster(
    jobs: Sequence[Job], options: Options, survey: Survey, remark: Callable[[str], None]
) -> tuple[list[Job], Options]:
    """The jobs that a cluster can run, and options for them. Raises `UsageError` if no job is left."""
    if survey.devices > survey.hosts and options.device.type == "cpu" and options.timed:
        raise UsageError("--cluster: processes that share a host's cores disturb each other's times; add --no-time")
    if options.host is not None:
        remark("--cluster: implementations on the CPU are left out")
    left = [job for job in jobs if not job.op.over_ranks]
    if dropped := [job.op.name for job in jobs if job.op.over_ranks]:
        text = f"{', '.join(dropped)} needs the GPUs of one host: run it there with --gpus"
        if not left:
            raise UsageError(f"--cluster: {text}")
        remark(f"--cluster: {text}")
    return left, replace(options, host=None)
