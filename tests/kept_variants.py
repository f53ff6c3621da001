"""Keeps the variants of an operation's file while tests judge many wrong results of the same inputs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant, Variants

KEPT = 4
"""Inputs whose variants are kept: the two draws of two problems."""


class KeptVariants:
    """Variants that are computed when they are first asked for, and then kept."""

    def __init__(self, source: Iterator[Variant]) -> None:
        self.source, self.found = source, list[Variant]()

    def __iter__(self) -> Iterator[Variant]:
        yield from self.found
        for variant in self.source:
            self.found.append(variant)
            yield variant


def keeping(find: Callable[[str], Variants | None]) -> Callable[[str], Variants | None]:
    """`variants.find`, whose functions give the same variants again for the same tensors, case and part."""
    kept: OrderedDict[object, tuple[Inputs, KeptVariants]] = OrderedDict()

    def find_kept(operation: str) -> Variants | None:
        compute = find(operation)

        def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
            key = case, tuple(map(id, inputs)), tuple((each.start, each.stop) for each in part)
            if key not in kept:
                assert compute is not None
                kept[key] = inputs, KeptVariants(compute(inputs, case, part))  # the tensors, whose ids are the key
            kept.move_to_end(key)
            if len(kept) > KEPT:
                kept.popitem(last=False)
            return iter(kept[key][1])

        return None if compute is None else variants

    return find_kept
