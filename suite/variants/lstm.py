"""Variants of lstm: gates in another order or left out, a state that is not carried over, the bias, other digits, and
layers with the operands or results of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import torch

from suite import ops
from suite.numerics.bounds import MARGIN, limit
from suite.ops.lstm import by_layer, layers_of
from suite.problem.case import Case
from suite.problem.variant import Inputs, Part, Variant
from suite.variants._blocks import SIZES
from suite.variants._rounding import coarser_formats, rounded, sixteen_bit_formats

MAX_PRODUCTS = 2**25
"""Largest number of terms of the products with inputs and h; every variant computes all of them again."""
MAX_SUMS = 2**12
"""Largest number of additions of a simulated sum."""
GATES = "ifgo"

Gates = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""The values i, f, g and o of a step, before or after sigmoid and tanh."""
Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Recurrence:
    """All steps of all layers in float64, with the change that a mistake makes.

    x: operand. w_ih: input weights of each layer. w_hh, bias, h0, c0: operands, with an axis of layers. order: places
    of i, f, g and o in the weights. product: computes h w^T. tanh, tanh_of_c: are applied to g and to c. gates: changes
    the gates of a step, given those of the step before. kept: changes c as it is stored. seen: returns the h that a
    step reads, from h, the h before it, and whether the step is the last. carried: c is carried over. extra_steps:
    repetitions of the last step. read: changes the inputs of each layer.
    """

    x: torch.Tensor
    w_ih: Sequence[torch.Tensor]
    w_hh: torch.Tensor
    bias: torch.Tensor
    h0: torch.Tensor
    c0: torch.Tensor
    dtype: str
    order: Sequence[int] = (0, 1, 2, 3)
    product: Product = lambda h, w: h @ w.T
    tanh: Callable[[torch.Tensor], torch.Tensor] = torch.tanh
    tanh_of_c: Callable[[torch.Tensor], torch.Tensor] = torch.tanh
    gates: Callable[[Gates, Gates | None], Gates] = lambda gates, _: gates
    kept: Callable[[torch.Tensor], torch.Tensor] = lambda c: c
    seen: Callable[[torch.Tensor, torch.Tensor, bool], torch.Tensor] = lambda h, before, is_last: h
    carried: bool = True
    extra_steps: int = 0
    late: tuple[int, int] = (0, 0)
    """Delay of the returned h and c, in steps."""
    read: Callable[[torch.Tensor], torch.Tensor] = lambda x: x
    below: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = lambda y, h0: y
    """The input of the next layer, from y and h0 of this one."""
    handed_on: bool = False
    """Whether the last state of a layer is the first of the next."""
    returned: Callable[[Sequence[torch.Tensor]], torch.Tensor] = lambda layers: layers[-1]
    """The returned y, from those of all layers."""
    order_of_states: Callable[[torch.Tensor], torch.Tensor] = lambda states: states
    """Changes the returned h and c."""

    def run(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return y (T, B, H), h and c (layers, B, H)."""
        x, outputs, states = self.x, list[torch.Tensor](), list[tuple[torch.Tensor, torch.Tensor]]()
        for layer in range(len(self.w_ih)):
            first = states[-1] if self.handed_on and states else (self.h0[layer], self.c0[layer])
            y, *state = self.run_layer(self.read(x), self.w_ih[layer], self.w_hh[layer], self.bias[layer], *first)
            outputs.append(y)
            states.append((state[0], state[1]))
            x = self.below(y, self.h0[layer])
        h, c = (self.order_of_states(torch.stack(each)) for each in zip(*states, strict=True))
        return self.returned(outputs), h, c

    def run_layer(
        self,
        x: torch.Tensor,
        w_ih: torch.Tensor,
        w_hh: torch.Tensor,
        bias: torch.Tensor,
        h0: torch.Tensor,
        c0: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return y (T, B, H), h and c (B, H). h is rounded like the results, since the next step reads it there."""
        inputs = x @ w_ih.T + bias
        steps = [*range(len(x)), *[len(x) - 1] * self.extra_steps]
        states, before = [(h0, c0)], None
        for at, step in enumerate(steps):
            h, c = states[-1]
            seen = self.seen(h, states[max(0, at - 1)][0], at == len(x) - 1)
            z = (inputs[step] + self.product(seen, w_hh)).chunk(4, dim=1)
            i, f, g, o = (z[place] for place in self.order)
            now = (i.sigmoid(), f.sigmoid(), self.tanh(g), o.sigmoid())
            i, f, g, o = self.gates(now, before)
            c = self.kept(f * (c if self.carried else 0.0) + i * g)
            h = o * self.tanh_of_c(c)
            states.append((h if self.dtype == "float32" else rounded(h, self.dtype), c))
            before = now
        y = torch.stack([h for h, _ in states[1 : len(x) + 1]]) if len(x) else x.new_zeros(0)
        last = len(states) - 1
        h, c = (states[max(0, last - late)][which] for which, late in enumerate(self.late))
        return y, h, c


def variants(inputs: Inputs, case: Case, part: Part) -> Iterator[Variant]:
    t, b, inner, h = case.shape
    layers = layers_of(case)
    if not 0 < t * b * 4 * h * (inner + h + 2 * h * (layers - 1)) <= MAX_PRODUCTS:
        return
    w_ih, *others = zip(*by_layer(tuple(each.double() for each in inputs[1:])), strict=True)
    w_hh, bias, h0, c0 = map(torch.stack, others)
    right = Recurrence(inputs[0].double(), w_ih, w_hh, bias, h0, c0, case.dtype)
    errors = _errors(inputs, case)
    for mistake, changed in _mistakes(right, case):
        value = torch.cat([each.flatten() for each in changed.run()])
        yield Variant(mistake, value[part], limit(errors, value, case.dtype)[part])


def _errors(inputs: Inputs, case: Case) -> torch.Tensor:
    """Return the error that each result may have before it is rounded: the largest of the right results of its step."""
    t, b, _, h = case.shape
    states = t + 2 * layers_of(case)
    found = torch.zeros(states * b * h, dtype=torch.float64, device=inputs[0].device)
    for truth in ops.get("lstm").truth(inputs, case):
        rounding = limit(0.0, truth.value, case.dtype)
        found[truth.index] = (truth.limit - rounding).nan_to_num(0.0, 0.0) / MARGIN
    step_errors = found.view(states, b * h).amax(dim=1, keepdim=True)
    return step_errors.expand(-1, b * h).flatten()


def _mistakes(right: Recurrence, case: Case) -> Iterator[tuple[str, Recurrence]]:
    yield from _digits(right, case)
    yield from _operands(right)
    yield from _gates(right)
    yield from _stale(right, case)
    yield from _layers(right)
    for order in permutations(range(4)):
        if order != (0, 1, 2, 3):
            names = ", ".join(GATES[order.index(place)] for place in range(4))
            yield f"gates were in the order {names}, not i, f, g, o", replace(right, order=order)


def _operands(right: Recurrence) -> Iterator[tuple[str, Recurrence]]:
    """Mistakes with the state, the bias and the steps."""
    zero = torch.zeros_like(right.h0)
    yield "c was not carried over", replace(right, carried=False)
    yield "h was not carried over", replace(right, seen=lambda h, before, is_last: torch.zeros_like(h))
    yield "h0 was taken for 0", replace(right, h0=zero)
    yield "c0 was taken for 0", replace(right, c0=zero)
    yield "h0 and c0 were taken for 0", replace(right, h0=zero, c0=zero)
    yield "the bias was left out", replace(right, bias=torch.zeros_like(right.bias))
    yield "the bias was added twice", replace(right, bias=2.0 * right.bias)
    yield "the steps were in reverse", replace(right, x=right.x.flip(0))
    yield "the returned state was of one step too many", replace(right, extra_steps=1)
    yield "the returned h was of the step before", replace(right, late=(1, 0))
    yield "the returned c was of the step before", replace(right, late=(0, 1))


def _layers(right: Recurrence) -> Iterator[tuple[str, Recurrence]]:
    """Mistakes with the operands and the results of several layers."""
    count = len(right.w_ih)
    if count < 2:
        return
    first = {name: getattr(right, name)[:1].expand_as(getattr(right, name)) for name in ("w_hh", "bias", "h0", "c0")}
    for name, changed in first.items():
        yield f"all layers had {name} of the first", replace(right, **{name: changed})
    yield "all layers had h0 and c0 of the first", replace(right, h0=first["h0"], c0=first["c0"])
    if count > 2:
        upper = [right.w_ih[0], *[right.w_ih[1]] * (count - 1)]
        yield "all upper layers had the input weights of the second", replace(right, w_ih=upper)
    if right.w_ih[0].shape == right.w_ih[1].shape:
        yield "all layers had the input weights of the first", replace(right, w_ih=[right.w_ih[0]] * count)
    yield "h0 and c0 were those of the layers in reverse", replace(right, h0=right.h0.flip(0), c0=right.c0.flip(0))
    yield "each layer began with the last state of the one before", replace(right, handed_on=True)
    yield "each layer read the steps before of the one below", replace(right, below=_late)
    yield "y was that of the first layer", replace(right, returned=lambda layers: layers[0])
    yield "y was that of the layer before the last", replace(right, returned=lambda layers: layers[-2])
    yield "the returned h and c were those of the layers in reverse", replace(right, order_of_states=_reversed)
    yield "the returned h and c were those of the last layer", replace(right, order_of_states=_last)


def _late(y: torch.Tensor, h0: torch.Tensor) -> torch.Tensor:
    return torch.cat([h0[None], y[:-1]])


def _reversed(states: torch.Tensor) -> torch.Tensor:
    return states.flip(0)


def _last(states: torch.Tensor) -> torch.Tensor:
    return states[-1:].expand_as(states)


def _gates(right: Recurrence) -> Iterator[tuple[str, Recurrence]]:
    yield "h was sigmoid(o) c, without tanh", replace(right, tanh_of_c=lambda c: c)
    yield "g was not tanh(g)", replace(right, tanh=lambda g: g)
    yield "g was sigmoid(g)", replace(right, tanh=torch.sigmoid)
    for place, name in ((0, "input"), (1, "forget"), (3, "output")):
        yield f"the {name} gate was left out", replace(right, gates=_omitted_gate(place))
        yield f"the {name} gate was of the step before", replace(right, gates=_previous_gate(place))
    yield "tanh was (e^2x - 1) / (e^2x + 1) and overflowed", replace(right, tanh=_quotient, tanh_of_c=_quotient)


def _omitted_gate(place: int) -> Callable[[Gates, Gates | None], Gates]:
    def change(gates: Gates, _: Gates | None) -> Gates:
        i, f, g, o = (torch.ones_like(gate) if at == place else gate for at, gate in enumerate(gates))
        return i, f, g, o

    return change


def _previous_gate(place: int) -> Callable[[Gates, Gates | None], Gates]:
    def change(gates: Gates, before: Gates | None) -> Gates:
        i, f, g, o = (before[at] if before and at == place else gate for at, gate in enumerate(gates))
        return i, f, g, o

    return change


def _quotient(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(2.0 * x.float())
    return ((e - 1.0) / (e + 1.0)).double()


def _digits(right: Recurrence, case: Case) -> Iterator[tuple[str, Recurrence]]:
    """Intermediate roundings."""
    for kind in (*coarser_formats(case.dtype), *(("tf32",) if case.dtype == "float32" else ())):
        rounded_h = replace(right, w_hh=rounded(right.w_hh, kind), product=_rounded_product(kind))
        yield f"factors of the products with h were rounded to {kind}", rounded_h
        both = replace(rounded_h, read=_rounding(kind), w_ih=[rounded(each, kind) for each in right.w_ih])
        yield f"factors of all products were rounded to {kind}", both
    for kind in sixteen_bit_formats(case.dtype):
        yield f"c was rounded to {kind} in every step", replace(right, kept=_rounding(kind))
        if case["T"] * case["H"] <= MAX_SUMS:
            yield f"products with h were rounded and added in {kind}", replace(right, product=_added(kind, kind))
            yield f"the sum of products with h was rounded to {kind}", replace(right, product=_added(kind, "float32"))


def _rounding(kind: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: rounded(x, kind)


def _rounded_product(kind: str) -> Product:
    return lambda h, w: rounded(h, kind) @ w.T


def _added(kind: str, product_kind: str) -> Product:
    def change(h: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(len(h), len(w), dtype=torch.float64, device=h.device)
        for k in range(h.shape[1]):
            total = rounded(total + rounded(h[:, k : k + 1] * w[:, k], product_kind), kind)
        return total

    return change


def _stale(right: Recurrence, case: Case) -> Iterator[tuple[str, Recurrence]]:
    """Units of h from the step before, as without a barrier."""
    for size in SIZES:
        if size < case["H"]:
            units = f"{size} units" if size > 1 else "unit"
            where = f"the last {units} of h {'were' if size > 1 else 'was'} of the step before"
            yield where, replace(right, seen=_stale_units(size, in_all=True))
            yield f"in the last step {where}", replace(right, seen=_stale_units(size, in_all=False))


def _stale_units(size: int, *, in_all: bool) -> Callable[[torch.Tensor, torch.Tensor, bool], torch.Tensor]:
    def change(h: torch.Tensor, before: torch.Tensor, is_last: bool) -> torch.Tensor:
        return torch.cat([h[:, :-size], before[:, -size:]], dim=1) if in_all or is_last else h

    return change
