"""Ranks as a pool of one worker: they are replaced together when one of them dies, hangs or fails alone."""

from __future__ import annotations

from suite.hardware.device import Device
from suite.implementations.identity import ExternalReference
from suite.ranks import devices
from suite.ranks.process import RanksProcess
from suite.worker.pool import Pool
from suite.worker.protocol import Request, TimeRequest


class RanksPool(Pool):
    """`ranks` processes, the first on `device`, with the requests of a worker.

    A user's file runs inside the ranks. It gets ranks of its own.
    """

    def __init__(self, device: Device, ranks: int, memory_bytes: int | None = None) -> None:
        super().__init__(device, memory_bytes=memory_bytes)
        self.ranks = ranks
        self.network = devices.network(device)
        self._external: ExternalReference | None = None

    def start(self) -> RanksProcess:
        """New processes, which the caller closes."""
        environment = devices.environment(self.device, self.ranks)
        return RanksProcess(self.device, self.ranks, environment, self._memory_bytes)

    def make_ready(self, request: Request) -> None:
        """End the ranks if another user's file has run in them, or is to run."""
        reference = None if isinstance(request, TimeRequest) else request.implementation
        external = reference if isinstance(reference, ExternalReference) else None
        if external != self._external:
            self.discard()
        self._external = external
