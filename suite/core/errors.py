"""The errors that this package raises on purpose. The command line prints each as one line and sets an exit status."""


class SuiteError(Exception):
    """Base class of the package's own errors."""


class UsageError(SuiteError):
    """Arguments that cannot be used. The message has the valid ones; the exit status is 2, before any work."""


class DisagreementError(SuiteError):
    """A function that was to be timed gives wrong results. The message has the case and the error."""


class ResultsError(SuiteError):
    """A results folder or file that cannot be read or written. Its contents are unchanged."""


class WorkerError(SuiteError):
    """A worker process that died, hung or broke the protocol."""
