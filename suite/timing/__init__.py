"""How long a call keeps the device busy, measured the same way for every framework.

    from suite.timing import Call, measure
    calls = [Call("torch", issue, wait, vendor=True), Call("triton", issue, wait)]
    timings = measure(calls, device=torch.device("cuda"))

One case's calls are timed together. In every round each call takes one sample, in shuffled order, so that clocks,
heat and other tenants of the machine touch all calls alike, and a ratio is formed only of samples from one round. On
a GPU a sample is read from CUPTI's activity records: what the device itself says it ran, and when, whatever framework
or host thread launched it (`recorder_cupti.py`). Sampling ends when the 95% interval of every median is narrow
enough, or when the budget is spent (`stats.py`, `sampling.py`). What the recorder cannot vouch for is an error, never
a number.
"""

from suite.timing.intervals import Activity, NoRecorderError, RecorderError, union_ns
from suite.timing.result import Timing
from suite.timing.sampling import Call, measure
from suite.timing.stats import median, median_interval, paired_ratio
from suite.timing.transfers import transfers

__all__ = [
    "Activity",
    "Call",
    "NoRecorderError",
    "RecorderError",
    "Timing",
    "measure",
    "median",
    "median_interval",
    "paired_ratio",
    "transfers",
    "union_ns",
]
