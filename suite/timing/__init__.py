"""Device time, latency, dispatch time and sustained time of calls, measured the same way for every framework.

    from suite.timing import Call, measure
    calls = [Call("torch", issue, wait, vendor=True), Call("triton", issue, wait)]
    timings = measure(calls, device=torch.device("cuda"))

The calls of one case are timed together. In every round each call contributes one sample, in shuffled order: clocks,
heat and other users of the machine then affect all calls alike, and a ratio is formed only of samples of the same
round. On a GPU the device time of a sample comes from CUPTI's activity records, whichever framework or host thread
launched the work (`recorder_cupti.py`); on a CPU it is wall time. A call is sampled until the 95% confidence interval
of its median is narrow enough or its own budget is spent (`stats.py`, `sampling.py`). An inconsistent record raises
`RecorderError`; it never becomes a number.
"""

from suite.timing.call import Call
from suite.timing.inputs import Inputs
from suite.timing.intervals import Activity, NoRecorderError, RecorderError, union_ns
from suite.timing.result import Timing
from suite.timing.sampling import measure
from suite.timing.stats import median, median_interval, paired_ratio
from suite.timing.transfers import transfers

__all__ = [
    "Activity",
    "Call",
    "Inputs",
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
