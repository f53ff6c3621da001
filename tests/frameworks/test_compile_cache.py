"""Rows record whether XLA's programs came from its cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite.frameworks.jax import ADAPTER as JAX
from suite.frameworks.torch import ADAPTER as TORCH


@pytest.mark.parametrize(
    ("events", "outcome"),
    [([], ""), (["cache_hits"], "hit"), (["cache_misses"], "miss"), (["cache_hits", "cache_misses"], "miss")],
    ids=["no cache", "hit", "miss", "one of two"],
)
def test_the_outcome_follows_from_jax_events_until_it_is_asked_for(events: list[str], outcome: str) -> None:
    from jax import monitoring

    found = JAX.watch_cache()
    for event in events:
        monitoring.record_event(f"/jax/compilation_cache/{event}")
    assert found() == outcome
    monitoring.record_event("/jax/compilation_cache/cache_misses")
    assert JAX.watch_cache()() == TORCH.watch_cache()() == ""


def test_a_program_is_a_miss_at_first_and_then_a_hit(tmp_path: Path) -> None:
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    changed = {"jax_compilation_cache_dir": str(tmp_path), "jax_persistent_cache_min_compile_time_secs": 0.0}
    before = {name: getattr(jax.config, name) for name in changed}
    outcomes = []
    try:
        for name, value in changed.items():
            jax.config.update(name, value)
        for _ in range(2):
            compilation_cache.reset_cache()
            jax.clear_caches()
            found = JAX.watch_cache()
            jax.jit(lambda x: x * 3 + 17)(1.0).block_until_ready()
            outcomes.append(found())
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
    assert outcomes == ["miss", "hit"]
