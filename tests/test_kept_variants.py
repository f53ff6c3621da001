"""Variants that tests keep: the same as those of the operation's file, and each computed once for the same inputs."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from kept_variants import KEPT, keeping

from suite import ops
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant


def test_each_variant_is_computed_once_for_the_same_inputs_and_part() -> None:
    computed: list[str] = []

    def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
        for name in ("first", "second"):
            computed.append(name)
            yield Variant(name, inputs[0][part], inputs[0][part])

    find = keeping(lambda operation: variants if operation == "sigmoid" else None)
    assert find("softmax") is None
    kept, case, part = find("sigmoid"), ops.get("sigmoid").case((8,)), (slice(0, 8),)
    assert kept is not None
    inputs = (torch.zeros(8),)
    assert next(iter(kept(inputs, case, part))).mistake == "first"
    assert computed == ["first"], "no more than is asked for"
    for _ in range(2):
        assert [each.mistake for each in kept(inputs, case, part)] == ["first", "second"]
    assert computed == ["first", "second"]
    list(kept(inputs, case, (slice(0, 4),)))
    others = [(torch.ones(8),) for _ in range(KEPT)]
    for other in others:
        assert next(iter(kept(other, case, part))).value[0] == 1.0
    before = len(computed)
    list(kept(inputs, case, part))
    assert len(computed) == before + 2, "only the latest are kept"
