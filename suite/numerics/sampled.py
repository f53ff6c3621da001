"""The sample of a piece of the truth that statistics read."""

SAMPLE = 2**16
"""Size of the sample, or the whole of a smaller piece: enough to average errors to 1/256."""
STATISTICS_BYTES = 2 * SAMPLE * 20 * 8
"""Most memory that the statistics take: 20 float64 arrays of at most 2 SAMPLE results."""
