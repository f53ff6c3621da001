"""Imports tokamax with its flags at their defaults. Otherwise tokamax parses the command line of the process."""

from __future__ import annotations

import tokamax
from absl import flags

__all__ = ["tokamax"]

if not flags.FLAGS.is_parsed():
    flags.FLAGS.mark_as_parsed()
