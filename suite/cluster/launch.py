"""Starts a cluster here, and writes commands and files that start one with tools of other hosts."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from suite.cluster import dask_settings
from suite.cluster.dask_settings import PORT
from suite.core.package import command, qualified, search_path

HOST_MAIN = qualified("suite.cluster.host_main")


def _environment() -> dict[str, str]:
    """The variables with which a process of the cluster finds the suite and the certificates."""
    folder = dask_settings.folder()
    found = {"DASK_CONFIG": str(folder / "dask.yaml"), dask_settings.FOLDER_VARIABLE: str(folder)}
    path = search_path(os.environ.get("PYTHONPATH"))
    return {**found, **({"PYTHONPATH": path} if path else {})}


def run_here(workers: int, port: int, *, insecure: bool, started: Callable[[str], None]) -> None:
    """Run a scheduler and the workers of this host, until interrupted. `started` is called with the address."""
    import dask

    dask.config.update(dask.config.config, dask_settings.settings(encrypted=not insecure))
    dask.config.set({"logging": {"distributed": "warning"}})
    asyncio.run(_run_here(workers, port, insecure=insecure, started=started))


async def _run_here(workers: int, port: int, *, insecure: bool, started: Callable[[str], None]) -> None:
    from distributed import Scheduler

    from suite.cluster.host_main import nannies, until_signal

    protocol = "tcp" if insecure else "tls"
    security = dask_settings.security(f"{protocol}://")
    async with AsyncExitStack() as stack:
        scheduler = await stack.enter_async_context(
            Scheduler(host="127.0.0.1", port=port, protocol=protocol, security=security, dashboard=False)
        )
        await asyncio.gather(*map(stack.enter_async_context, nannies(scheduler.address, workers, "127.0.0.1")))
        started(scheduler.address)
        await until_signal()


def over_ssh(hosts: Sequence[str]) -> str:
    """The command that starts a cluster on `hosts` by `dask ssh`; the first one has the scheduler."""
    words = ["env", *(f"{name}={value}" for name, value in _environment().items()), sys.executable]
    python = " ".join(map(_escaped, words))
    options = ["--scheduler-port", str(PORT), "--remote-python", python, "--remote-dask-worker", HOST_MAIN]
    return f"{shlex.join(['dask', 'ssh', *options, *hosts])}\n{_compare(hosts[0])}"


def _escaped(word: str) -> str:
    """`word` for the command of a remote host, which dask ssh puts between single quotes of a shell."""
    return re.sub(r"[^\w@%+=:,./-]", lambda found: f"\\{found[0]}", word).replace("'", "'\\''")


def _compare(scheduler: str) -> str:
    return f"# then: {command()} compare --op all --cluster tls://{scheduler}:{PORT}"


def slurm() -> str:
    """A batch script: the scheduler on the first node, and on each node a process that starts a worker for each GPU."""
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in _environment().items())
    python = shlex.quote(sys.executable)
    return f"""#!/bin/bash
#SBATCH --job-name=kernel-suite
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
{_compare("FIRST-NODE")}
{exports}
scheduler=$(hostname)
{python} -m distributed.cli.dask_scheduler --port {PORT} --no-dashboard &
srun {python} -m {HOST_MAIN} "tls://$scheduler:{PORT}"
"""


def kubernetes(image: str) -> str:
    """A manifest: a scheduler with its service, and a pod on each node with GPUs, which gets all of them."""
    tls = ", ".join(
        f"--tls-{name}, {SECRET}/{file}"
        for name, file in (("ca-file", "certificate.pem"), ("cert", "certificate.pem"), ("key", "key.pem"))
    )
    scheduler = f'distributed.cli.dask_scheduler, --port, "{PORT}", --no-dashboard, {tls}'
    return "---\n".join(
        (
            f"# kubectl create secret generic kernel-suite --from-file={dask_settings.folder()}\n{_compare(SERVICE)}\n"
            + _SERVICE.format(service=SERVICE, port=PORT),
            _PODS.format(kind="Deployment", name=SERVICE, image=image, command=scheduler, secret=SECRET),
            _PODS.format(
                kind="DaemonSet",
                name=f"{SERVICE}-workers",
                image=image,
                command=f'{HOST_MAIN}, "tls://{SERVICE}:{PORT}"',
                secret=SECRET,
            ),
        )
    )


SERVICE, SECRET = "kernel-suite", "/cluster"
_SERVICE = """\
apiVersion: v1
kind: Service
metadata: {{name: {service}}}
spec:
  selector: {{app: {service}}}
  ports: [{{port: {port}}}]
"""
_PODS = """\
apiVersion: apps/v1
kind: {kind}
metadata: {{name: {name}}}
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers:
      - name: {name}
        image: {image}
        command: [python, -m, {command}]
        env:
        - {{name: DASK_CONFIG, value: {secret}/dask.yaml}}
        - {{name: KERNEL_SUITE_CLUSTER, value: {secret}}}
        volumeMounts: [{{name: cluster, mountPath: {secret}, readOnly: true}}]
      volumes: [{{name: cluster, secret: {{secretName: kernel-suite}}}}]
"""
