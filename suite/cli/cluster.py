"""`python -m suite cluster start`: starts a Dask cluster for `compare --cluster`, or prints how to start one."""

from __future__ import annotations

from typing import Annotated

import typer

from suite.cli.messages import say
from suite.cli.options import InsecureOption, split
from suite.core.errors import UsageError

app = typer.Typer(help="Start hosts that share the cases of `compare --cluster`.", no_args_is_help=True)


@app.callback()
def cluster() -> None:
    """Start hosts that share the cases of `compare --cluster`."""


@app.command("start")
def start(
    local: Annotated[
        int | None,
        typer.Option(
            "--local", metavar="N", help="Run a cluster here: on N GPUs, or N processes on the CPU.", min=1, max=1024
        ),
    ] = None,
    hosts: Annotated[
        list[str] | None,
        typer.Option("--hosts", metavar="H1,H2", help="Print the command of `dask ssh`; H1 has the scheduler."),
    ] = None,
    slurm: Annotated[bool, typer.Option("--slurm", help="Print a batch script for sbatch.")] = False,
    kubernetes: Annotated[
        str, typer.Option("--kubernetes-manifest", metavar="IMAGE", help="Print a manifest for this container image.")
    ] = "",
    port: Annotated[
        int,
        typer.Option("--port", metavar="N", help="Port of the scheduler of --local; 0: a free one.", min=0, max=65535),
    ] = 0,
    insecure: InsecureOption = False,
) -> None:
    """Make the certificates, then run a cluster here, or print the command or file that starts one with other tools.

    All hosts need the suite at the same path and the folder of the certificates: ~/.kernel-suite/cluster, or the one
    that KERNEL_SUITE_CLUSTER names.
    """
    given = [local is not None, bool(hosts), slurm, bool(kubernetes)]
    if sum(given) != 1:
        raise UsageError("cluster start needs one of --local N, --hosts H1,H2, --slurm and --kubernetes-manifest IMAGE")
    if insecure and local is None:
        raise UsageError("--insecure is for --local only: other hosts are reached over a network")
    from suite.cluster import dask_settings, launch

    dask_settings.require()
    if not insecure:
        folder = dask_settings.make_certificate()
        say(f"certificate and key: {folder}; whoever has the key can run programs on the cluster")
    if local is not None:
        launch.run_here(local, port, insecure=insecure, started=lambda address: print(address, flush=True))
    else:
        print(launch.over_ssh(split(hosts)) if hosts else launch.slurm() if slurm else launch.kubernetes(kubernetes))
