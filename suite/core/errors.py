"""What can go wrong, as types: the command line turns each into one line and an exit status."""


class SuiteError(Exception):
    """Base of every error this package raises on purpose."""


class UsageError(SuiteError):
    """Arguments that cannot be used. Says what was given and what is valid; exit status 2, before any work."""


class ResultsError(SuiteError):
    """A results folder that cannot be read or written. What was there stays as it was."""


class WorkerError(SuiteError):
    """A worker process that died, hung or answered out of turn."""
