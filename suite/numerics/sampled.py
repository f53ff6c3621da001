"""The results of a piece of the truth that statistics read."""

SAMPLE = 2**16
"""Their number, if the piece has as many: enough to average errors to 1/256."""
STATISTICS_BYTES = 2 * SAMPLE * 20 * 8
"""Most memory that the statistics take: 20 float64 arrays of at most twice as many results."""
