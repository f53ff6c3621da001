"""tokamax, which would otherwise read its flags from the command line of the process that it is used in."""

from __future__ import annotations

import tokamax
from absl import flags

__all__ = ["tokamax"]

if not flags.FLAGS.is_parsed():
    flags.FLAGS.mark_as_parsed()
