"""Makes Triton's cache keys independent of what was launched before.

Triton's key of a kernel holds the constants (global `tl.constexpr`) of the functions that it calls. Versions 3.6 and
3.7 read them before they compute the function's own key, which finds them. So a key lacks the constants of functions
that no earlier kernel has used, and another process, with other kernels before, compiles and tunes again.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from triton.runtime import jit


def make_independent_of_order() -> None:
    """Computes the key of a called function first, in this process, for all kernels. Later calls change nothing."""
    update = getattr(jit.DependenciesFinder, "_update_hash", None)
    if update is None or hasattr(update, "__wrapped__"):
        return

    @wraps(update)
    def callee_first(self: Any, function: Any) -> None:
        function.cache_key  # noqa: B018  (the property finds the constants)
        update(self, function)

    jit.DependenciesFinder._update_hash = callee_first
