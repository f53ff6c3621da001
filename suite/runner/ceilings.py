"""The measured peaks of the device of a run. They are measured again when a row is faster than they allow."""

from __future__ import annotations

import json
from collections.abc import Callable

from suite import hardware
from suite.core.errors import ResultsError, WorkerError
from suite.hardware import measured_peaks
from suite.worker.pool import Pool
from suite.worker.protocol import Failed, PeaksRequest


class Ceilings:
    """The peaks in the device's file of limits. Raises `ResultsError` if the file is damaged."""

    def __init__(self, pool: Pool) -> None:
        self._pool, self._device = pool, pool.device
        self.peaks = measured_peaks.find(self._device.results_folder, self._device.name)
        self._measured = False

    def measure_again(self, timeout_s: float, on_step: Callable[[str], None]) -> bool:
        """Measure the peaks again, once in a run, and keep them in the file. True if there are other peaks now.

        If they are not stable, or cannot be measured, the old ones stay; a row that exceeds them has no distance to the
        limit (`results/rates.py`).
        """
        if self._measured:
            return False
        self._measured = True
        on_step(f"a row is faster than {measured_peaks.FILE} allows: measuring the limits of {self._device.name} again")
        environment = hardware.environment_record(self._device.type, self._device.index)
        try:
            reply = self._pool.ask(PeaksRequest(self._device.name), timeout_s=timeout_s)
        except WorkerError as error:
            reply = Failed(str(error), None)
        if isinstance(reply, Failed):
            on_step(f"the limits stay as they were, and are not used for that row: {reply.reason}")
            return False
        contents = {**json.loads(reply.contents), "date_utc": environment["date_utc"], "environment": environment}
        self.peaks = measured_peaks.peaks_of(contents, measured_peaks.FILE)
        try:
            measured_peaks.write(self._device.results_folder / measured_peaks.FILE, contents)
        except ResultsError as error:
            on_step(f"the new limits are not kept: {error}")
        return True
