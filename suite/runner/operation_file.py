"""Loads the operation that a user's file defines, in a worker that describes it and then ends."""

from __future__ import annotations

from pathlib import Path

from suite import custom
from suite.core.errors import UsageError
from suite.custom.file import source_of
from suite.hardware.device import Device
from suite.problem.operation import Operation
from suite.problem.source import Kind
from suite.processes.limits import FIRST_CALL_S
from suite.worker.pool import Pool, WorkerDiedError
from suite.worker.protocol import DescribeRequest, Failed


def load_operation(
    path: Path,
    kind: Kind,
    device: Device,
    shapes: tuple[str, ...] = (),
    dtypes: tuple[str, ...] = (),
    timeout_s: float = FIRST_CALL_S,
) -> Operation:
    """The operation of a file, with descriptions of its cases in `shapes` and `dtypes`, or in the file's own.

    Raises `UsageError`, which names the line, for a file that cannot be used.
    """
    source = source_of(path, kind)
    with Pool(device, times=False) as pool:
        try:
            reply = pool.ask(DescribeRequest(source, shapes, dtypes), timeout_s=timeout_s)
        except WorkerDiedError as error:
            raise UsageError(f"--{kind} {path}: {error}") from None
    if isinstance(reply, Failed):
        raise UsageError(f"--{kind} {path}: {reply.reason}")
    op = custom.from_description(source, reply.about)
    if not shapes and not reply.about.defaults:
        example = ",".join(f"{dim}=512" for dim in op.dims)
        raise UsageError(f"--{kind} {path}: it has no shapes = [...], so that --shape is needed, e.g. {example}")
    return op
