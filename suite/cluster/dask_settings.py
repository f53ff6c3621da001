"""Settings of Dask distributed: encryption with certificates of our own, and one case at a time on a worker."""

from __future__ import annotations

import json
import os
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.core.errors import UsageError
from suite.core.files import write_atomically
from suite.core.package import install_command
from suite.core.text import one_line

if TYPE_CHECKING:
    from distributed import Security

FOLDER_VARIABLE = "KERNEL_SUITE_CLUSTER"
"""The environment variable with another folder of certificates."""
PORT = 8786
DAYS = 365
"""Days for which a certificate is valid."""
RENEW_S = 7 * 86400
"""A certificate that is valid for less is replaced when a cluster starts."""


def require() -> None:
    """Raise `UsageError` if Dask distributed is not installed."""
    if find_spec("distributed") is None:
        raise UsageError(f"dask and distributed not installed: {install_command('cluster', 'constraints.txt')}")


def folder() -> Path:
    """The folder of the certificate, its key and `dask.yaml`. All hosts of a cluster need it."""
    return Path(os.environ.get(FOLDER_VARIABLE) or Path.home() / ".kernel-suite" / "cluster")


def make_certificate() -> Path:
    """Make the certificate, its key and `dask.yaml` in `folder()`, unless there is a valid one. Returns the folder.

    The certificate is self-signed and the same on all hosts: access to the key is access to the cluster.
    """
    where = folder()
    certificate, key = where / "certificate.pem", where / "key.pem"
    if not (key.exists() and _openssl("x509", "-checkend", str(RENEW_S), "-noout", "-in", str(certificate)) == 0):
        where.mkdir(parents=True, exist_ok=True, mode=0o700)
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc")
        kind = ("-x509", "-days", str(DAYS), "-subj", "/CN=kernel-suite")
        if _openssl("req", *kind, *curve, "-keyout", str(key), "-out", str(certificate)) != 0:
            raise UsageError(f"openssl could not make a certificate in {where}")
        key.chmod(0o600)
    write_atomically(where / "dask.yaml", json.dumps(settings(encrypted=True), indent=2) + "\n")  # JSON is YAML too
    return where


def _openssl(*arguments: str) -> int:
    try:
        return subprocess.run(["openssl", *arguments], capture_output=True, check=False).returncode
    except FileNotFoundError:
        raise UsageError("openssl is not on PATH: it makes the certificates; install it, or give --insecure") from None


def settings(*, encrypted: bool) -> dict[str, Any]:
    """Dask's configuration for schedulers and workers."""
    certificate, key = str(folder() / "certificate.pem"), str(folder() / "key.pem")
    role = {"cert": certificate, "key": key}
    roles = {"ca-file": certificate, "client": role, "scheduler": role, "worker": role}
    return {
        "distributed": {
            "comm": {"require-encryption": encrypted, **({"tls": roles} if encrypted else {})},
            "scheduler": {
                "allowed-failures": 0,  # the run itself counts how often a case is lost
                "worker-saturation": 1.0,
                "work-stealing": False,
                "http": {"routes": []},  # its pages have no TLS
            },
            "worker": {
                "http": {"routes": []},
                "profile": {"enabled": False},  # a sampling thread would disturb times
            },
        }
    }


def checked(address: str, *, insecure: bool) -> str:
    """A scheduler's address with its protocol. Raises `UsageError` for one without TLS, unless `insecure`."""
    protocol, _, place = address.rpartition("://")
    protocol = protocol or ("tcp" if insecure else "tls")
    if protocol not in ("tls", "tcp") or not re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+):\d{1,5}", place):
        raise UsageError(f"--cluster {address}: must be tls://HOST:PORT, as `cluster start` prints it")
    if protocol == "tcp" and not insecure:
        raise UsageError(
            f"--cluster {address}: without TLS, whoever reaches the port runs programs as you; "
            "give a tls:// address, or --insecure"
        )
    return f"{protocol}://{place}"


def security(address: str) -> Security | None:
    """The certificate for an address with TLS; None for one without. Raises `UsageError` if there is none."""
    from distributed import Security

    if not address.startswith("tls://"):
        return None
    where = folder()
    certificate, key = str(where / "certificate.pem"), str(where / "key.pem")
    for path in (certificate, key):
        if not os.access(path, os.R_OK):
            raise UsageError(
                f"{one_line(path)} cannot be read: copy the folder that `cluster start` has made, or name it in "
                f"{FOLDER_VARIABLE}"
            )
    roles = {f"tls_{role}_{kind}": path for role in ("client", "scheduler", "worker")
             for kind, path in (("cert", certificate), ("key", key))}  # fmt: skip
    return Security(require_encryption=True, tls_ca_file=certificate, **roles)
