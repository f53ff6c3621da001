"""An implementation as a rank calls it: its function has the group of all ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any

from suite.implementations.implementation import Implementation
from suite.problem.case import Case


@dataclass(frozen=True)
class OverRanks(Implementation):
    """`inner`, whose function is called on one rank's arrays."""

    inner: Implementation | None = None

    def load(self) -> ModuleType:
        assert self.inner is not None
        return self.inner.load()

    def function(self) -> Callable[..., Any]:
        assert self.inner is not None
        return self.adapter.over_ranks(self.inner.function())

    def config_function(self) -> Callable[..., str] | None:
        found = super().config_function()
        return None if found is None else self.adapter.over_ranks(found)

    def function_for(self, case: Case, inputs: int) -> Callable[..., Any]:
        return self.function()

    def describe_error(self, error: BaseException, device_type: str) -> str:
        assert self.inner is not None
        return self.inner.describe_error(error, device_type)

    def remarks(self) -> list[str]:
        assert self.inner is not None
        return self.inner.remarks()


def over_ranks(inner: Implementation) -> OverRanks:
    """`inner` with the group of all ranks."""
    shared = {each.name: getattr(inner, each.name) for each in fields(Implementation)}
    return OverRanks(**shared, inner=inner)
