"""Helpers for test suites: another name for the module `kernel_suite.suite.testing`."""

import sys

from kernel_suite.suite import testing

sys.modules[__name__] = testing
