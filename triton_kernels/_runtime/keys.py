"""Makes Triton's cache keys independent of what was launched before.

A kernel's key should hold the constants (global `tl.constexpr`) of the functions that it calls. Triton 3.6 and 3.7
collect a function's constants only when they compute its own key, but read them before that. A key therefore lacks the
constants of a function that no earlier kernel has called. A process that launches kernels in another order compiles and
tunes again.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from triton.runtime import jit


def make_independent_of_order() -> None:
    """Makes Triton compute the key of a called function first, in this process, for all kernels. Idempotent."""
    update = getattr(jit.DependenciesFinder, "_update_hash", None)
    if update is None or hasattr(update, "__wrapped__"):
        return

    @wraps(update)
    def callee_first(self: Any, function: Any) -> None:
        function.cache_key  # noqa: B018  (the property finds the constants)
        update(self, function)

    jit.DependenciesFinder._update_hash = callee_first
