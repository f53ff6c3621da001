"""Reads the device's properties, peaks and present state. Imports no framework and creates no CUDA context."""

from suite.hardware.datasheet import Peaks, link_limit, peaks
from suite.hardware.device import device_slug, memory_bytes
from suite.hardware.environment import environment_record
from suite.hardware.host import cpu_cache_bytes, cpu_facts, free_host_bytes
from suite.hardware.measured_peaks import limit, limit_at_clock
from suite.hardware.monitor import (
    IDLE,
    SLOWDOWNS,
    State,
    clock_reasons,
    devices,
    energy_mj,
    nvml,
    nvml_handle,
    nvml_problem,
    state,
    uuid,
)
from suite.hardware.threads import blas_threads_set, native_threads, native_threads_set, thread_settings

__all__ = [
    "IDLE",
    "SLOWDOWNS",
    "Peaks",
    "State",
    "blas_threads_set",
    "clock_reasons",
    "cpu_cache_bytes",
    "cpu_facts",
    "device_slug",
    "devices",
    "energy_mj",
    "environment_record",
    "free_host_bytes",
    "limit",
    "limit_at_clock",
    "link_limit",
    "memory_bytes",
    "native_threads",
    "native_threads_set",
    "nvml",
    "nvml_handle",
    "nvml_problem",
    "peaks",
    "state",
    "thread_settings",
    "uuid",
]
