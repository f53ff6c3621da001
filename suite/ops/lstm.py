"""lstm: layers of LSTM cells over T time steps, with one bias each; returns the last layer's outputs and all states."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from suite.numerics.bounds import EXP_ULPS, MMA_DEPTH, deviations, limit, sum_shift, sum_variance
from suite.numerics.formats import DOUBLE, DTYPES, half_smallest, is_narrow, unit_roundoff, working
from suite.numerics.noise import Noise, sample
from suite.problem import family, numbers, outputs
from suite.problem.blocks import rows_per_block
from suite.problem.case import Case
from suite.problem.family import Family
from suite.problem.operation import Operation
from suite.problem.option import Option
from suite.problem.shape import Shape
from suite.problem.telling_case import TellingCase
from suite.problem.truth import Truth

ODD = (3, 5, 8, 24)
"""Sizes of most families."""
ACTIVATION = 2.0 * (EXP_ULPS * 2.0 + 4.0) / math.sqrt(3.0)
"""Standard deviation of a sigmoid or tanh that is computed by an exponential, in units of u.

A sum with 1, a quotient, its doubling and another sum follow the exponential. Fast instructions for the argument and
the quotient have as much error again. The sum of the largest errors is divided by sqrt(3).
"""


@dataclass
class State:
    """c and h = o tanh(c) of a step, (B, H) float64, with standard deviations of their errors.

    The roundings of a step are independent of each other and of all earlier ones, so their variances add up. Errors
    from the step before may depend on each other, and those of h on those of c, so their deviations add up. In a
    product with h, each term has another column of the weights, so variances add up there.
    """

    h: torch.Tensor
    c: torch.Tensor
    h_error: torch.Tensor
    c_error: torch.Tensor


class Cell:
    """A layer's weights and their squares, float64, for the values and errors of steps."""

    def __init__(self, w_ih: torch.Tensor, w_hh: torch.Tensor, bias: torch.Tensor, dtype: str) -> None:
        self.input_weights, self.weights, self.bias = w_ih.double().T, w_hh.double().T, bias.double()
        self.input_squares, self.squares = self.input_weights.square(), self.weights.square()
        self.terms, self.dtype = len(self.input_weights) + len(self.weights) + 1, dtype
        self.depth = MMA_DEPTH.get(dtype)

    def inputs(self, x: torch.Tensor, error: torch.Tensor | None) -> Iterator[tuple[torch.Tensor, ...]]:
        """Multiply some steps of x (T, B, I), float64, by w_ih; yield the arguments of `step`.

        error: standard deviations of the errors of x, the results of a layer below. None: x is exact.
        """
        products, spread = x @ self.input_weights, x.square() @ self.input_squares + self.bias.square()
        new = old = torch.zeros((), dtype=torch.float64, device=x.device).expand(products.shape)
        if error is not None:
            new = rounding_variance(x, self.dtype) @ self.input_squares if is_narrow(self.dtype) else new
            old = error.square() @ self.input_squares
        return zip(products, spread, new, old, strict=True)

    def steps(
        self, state: State, x: torch.Tensor, error: torch.Tensor | None
    ) -> tuple[State, torch.Tensor, torch.Tensor]:
        """Compute some steps: the last state, h of all, and the standard deviations of its errors."""
        values, errors = [], []
        for inputs in self.inputs(x, error):
            state = self.step(state, *inputs)
            values.append(state.h)
            errors.append(state.h_error)
        return state, torch.stack(values), torch.stack(errors)

    def step(
        self, before: State, inputs: torch.Tensor, spread: torch.Tensor, new: torch.Tensor, old: torch.Tensor
    ) -> State:
        """Compute the next state. inputs (B, 4H): x w_ih^T; spread: the sum of squares of its terms and of the bias.

        new, old: variances that the products have from the rounding of x, and from its errors.
        """
        u, bias = unit_roundoff(working(self.dtype)), self.bias
        z = inputs + bias + before.h @ self.weights
        spread_squared = spread + before.h.square() @ self.squares
        fresh = sum_variance(z, spread_squared, self.terms, self.depth, None, self.dtype) + new
        if is_narrow(self.dtype):  # h as a factor; x w_ih^T, its sum with the bias, and z in memory
            fresh += rounding_variance(before.h, self.dtype) @ self.squares
            for stored in (inputs, inputs + bias, z):
                fresh += rounding_variance(stored, self.dtype)
        carried = (before.h_error.square() @ self.squares + old).sqrt_() + sum_shift(z, self.terms, self.depth)
        (new_i, new_f, new_g, new_o), (old_i, old_f, old_g, old_o) = (
            each.chunk(4, dim=1) for each in (fresh.sqrt_(), carried)
        )
        i, f, g, o = z.chunk(4, dim=1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = f * before.c + i * g
        by_i, by_f = g.abs() * i * (1 - i), before.c.abs() * f * (1 - f)
        by_g, by_o = i * (1 - g.square()), c.tanh().abs() * o * (1 - o)
        own = ACTIVATION * u * (g.abs() + before.c.abs() + i) + u * (2 * (f * before.c).abs() + 2 * (i * g).abs())
        new = scaled_error(by_i, new_i) + scaled_error(by_f, new_f) + scaled_error(by_g, new_g) + own
        kept = f * before.c_error + scaled_error(by_i, old_i) + scaled_error(by_f, old_f) + scaled_error(by_g, old_g)
        c_error = (new.square() + kept.square()).sqrt_()
        squashed = c.tanh()
        h, by_c = o * squashed, o * (1 - squashed.square())
        own = ACTIVATION * u * (squashed.abs() + o) + u * h.abs()
        new, kept = scaled_error(by_o, new_o) + own, scaled_error(by_o, old_o) + scaled_error(by_c, c_error)
        h_error = (new.square() + kept.square()).sqrt_()
        return State(h, c, h_error, c_error)


def state_truth(begin: int, value: torch.Tensor, error: torch.Tensor, many: float, case: Case) -> Truth:
    """Return the truth of states, which begin at `begin` in the joined results. error: standard deviations.

    In 16 bits averages have a bound too. The errors of a unit may last for all steps; those of different units come
    from different roundings. Errors that float32 arithmetic alone causes may have one sign; they are at most a part
    `unit_roundoff("float32") / unit_roundoff(dtype)` of the others, so `many` of them count as systematic.
    """
    value, error = value.reshape(-1), error.reshape(-1)
    index, bound = (slice(begin, begin + len(value)),), limit(error * many, value, case.dtype)
    if not is_narrow(case.dtype):
        return Truth(index, value, bound)
    at = sample((len(value),), value.device)
    share = many * unit_roundoff("float32") / unit_roundoff(case.dtype)
    return Truth(index, value, bound, Noise(error[at] * share, error[at].square(), case["B"] * case["H"]))


def scaled_error(slope: torch.Tensor, error: torch.Tensor) -> torch.Tensor:
    """Return slope * error. A slope of 0, where the gate is saturated, cancels even an infinite error."""
    return torch.where(slope == 0.0, 0.0, slope * error)


def rounding_variance(value: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the variance of rounding a number to 16 bits."""
    return (value.abs() * unit_roundoff(dtype)).clamp_(min=half_smallest(dtype)).square_().div_(3.0)


def drawn(
    *, recurrent: float = 1.0, inner: float = 1.0, forget: float = 0.0, change: float = 0.0, state: float = 1.0
) -> numbers.Values:
    """Draw normal numbers; weights times a factor over the square root of their columns.

    forget, change: are added to the biases of f and g.
    """

    def values(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
        x, w_ih, w_hh, b, h0, c0, *upper = (numbers.normals(shape, case, source).double() for shape in shapes)
        size = case["H"]
        w_ih *= inner / math.sqrt(max(case["I"], 1))
        for w in upper:
            w *= inner / math.sqrt(max(size, 1))
        w_hh *= recurrent / math.sqrt(max(size, 1))
        b[..., size : 2 * size] += forget
        b[..., 2 * size : 3 * size] += change
        h0 *= state
        c0 *= state
        return tuple(each.to(numbers.dtype_of(case)) for each in (x, w_ih, w_hh, b, h0, c0, *upper))

    return values


def one_nan(shapes: tuple[Shape, ...], case: Case, source: torch.Generator) -> tuple[torch.Tensor, ...]:
    """A NaN in the input of one step and one row of the batch, which makes the row NaN from there on."""
    values = drawn()(shapes, case, source)
    at = tuple(numbers.index_below(size, source) for size in shapes[0])
    numbers.put(values[0], math.nan, at)
    return values


class Lstm(Operation):
    rank = 60
    group = "products"
    name = "lstm"
    formula = "i, f, g, o = x[t] W_ih^T + h W_hh^T + bias; c = s(f) c + s(i) tanh(g); y[t] = h = s(o) tanh(c)"
    dtypes_beyond = (DOUBLE,)
    dims = ("T", "B", "I", "H")
    options = (Option("layers", ("1", "2", "3", "4"), "number of stacked layers"),)
    outputs = ("y", "h", "c")
    sweep = tuple((128, b, 1024, 1024) for b in (1, 4, 16, 64, 256))
    telling = (
        TellingCase("tensor_cores", (2, 18, 24, 40)),
        TellingCase("tensor_cores_of_layers", (2, 18, 24, 40), options={"layers": "2"}, first=False),
        TellingCase("nan_between_layers", (3, 5, 8, 24), "nan@6", {"layers": "3"}, first=False),
    )
    # Infinite weights times y of the layer below: its rounding may decide its sign, and so whether a sum is NaN.
    telling_left_out: tuple[str, ...] = ("infinity@6",)
    sizes: ClassVar[Mapping[str, tuple[int, ...]]] = {
        "T": (1, 3),
        "B": (1, 3, 17, 33),
        "I": (1, 31, 64, 257),
        "H": (1, 31, 64, 257),
    }
    large = (
        TellingCase("large", (3, 4, 520, 520)),
        TellingCase("long", (200, 2, 8, 16)),
    )
    ragged: ClassVar[tuple[Shape, ...]] = ((3, 1, 1, 1), (0, 2, 3, 4), (2, 17, 9, 40), (1, 3, 5, 130))
    weights = (1, 2, 3, 6)
    families: ClassVar = {
        "normal": Family("normal numbers, weights over the square root of their columns; default sizes", drawn()),
        "sizes": Family("sizes of one, primes, one below and one above a tile", drawn(), shapes=ragged),
        "layers": Family("several layers of cells", drawn(), shapes=(ODD,), options={"layers": ("2", "3")}),
        "empty": Family("an empty batch, no units: an empty result", drawn(), shapes=((3, 0, 5, 8), (3, 2, 5, 0))),
        "remembers": Family(
            "large biases of f and g: c grows with each step", drawn(forget=7.0, change=3.0), shapes=((16, 2, 8, 16),)
        ),
        "saturated": Family("gates of 0 and 1, and tanh of -1 and 1", drawn(inner=30.0), shapes=(ODD,)),
        "large_state": Family("h0 and c0 far above 1", drawn(state=20.0), shapes=(ODD,)),
        "strong": Family("recurrent weights large enough for an error to grow", drawn(recurrent=3.0), shapes=(ODD,)),
        "range": family.spread(ODD, 20, -20, -20, 0, 20, 20, values=drawn()),
        "strided": family.strided_views(ODD),
        "nan": Family("NaN in one place; only what depends on it may be NaN", one_nan, shapes=(ODD,)),
    }

    def default_cases(self, device_type: str) -> list[Case]:
        """Cases on a GPU: a single sequence, batches of long and short sequences in bfloat16; other types."""
        if device_type != "cuda":
            return [self.case((4, 6, 16, 24), dtype) for dtype in DTYPES]
        cases = [self.case(shape, "bfloat16") for shape in ((512, 1, 1024, 1024), (256, 64, 1024, 1024))]
        cases += [self.case((128, 256, 512, 512), "bfloat16"), self.case((256, 64, 1024, 1024), "float16")]
        return [*cases, self.case((512, 1, 1024, 1024), "float32")]

    def telling_cases(
        self, dtype: str, precision: str, *, first: bool = False, device_type: str = "cpu"
    ) -> dict[str, Case]:
        """Return the telling cases, in 16 bits without `saturated`: cuDNN's arithmetic exceeds its bound on a GPU.

        The odd sizes of `saturated_odd` stay.
        """
        found = super().telling_cases(dtype, precision, first=first, device_type=device_type)
        return {name: case for name, case in found.items() if name != "saturated" or not is_narrow(dtype)}

    def random_shape(self, size: Callable[[], int]) -> Shape:
        """Return a shape with few steps, since they are interpreted one after the other."""
        return (size() % 4, size() % 24, size(), size())

    def operands(self, case: Case) -> tuple[Shape, ...]:
        """Return the shapes of one layer; of several, those of all layers, and the input weights of the upper ones."""
        t, b, i, h = case.shape
        layers = layers_of(case)
        each = (layers,) if layers > 1 else ()
        upper = ((layers - 1, 4 * h, h),) if layers > 1 else ()
        return ((t, b, i), (4 * h, i), (*each, 4 * h, h), (*each, 4 * h), (*each, b, h), (*each, b, h), *upper)

    def output_shapes(self, case: Case) -> tuple[Shape, ...]:
        t, b, _, h = case.shape
        state = self.operands(case)[4]
        return ((t, b, h), state, state)

    def output_shape(self, case: Case) -> Shape:
        return outputs.flat_shape(self.output_shapes(case))

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[Truth]:
        """Yield y in pieces of some time steps, then h and c of each layer."""
        t, b, _, h = case.shape
        y_start, h_start, c_start = outputs.starts(self.output_shapes(case))
        many, size = deviations(self.output_shape(case)[0]), b * h
        cells = [Cell(w_ih, w_hh, bias, case.dtype) for w_ih, w_hh, bias, _, _ in by_layer(inputs[1:])]
        zero = inputs[0].new_zeros(b, h, dtype=torch.float64)
        states = [State(h0.double(), c0.double(), zero, zero) for *_, h0, c0 in by_layer(inputs[1:])]
        together = rows_per_block(4 * size, 4) if size else 1
        for start in range(0, t if size else 0, together):
            y, error = inputs[0][start : start + together].double(), None
            for layer, cell in enumerate(cells):
                states[layer], y, error = cell.steps(states[layer], y, error)
            yield state_truth(y_start + start * size, y, error, many, case)
        for layer, state in enumerate(states):
            yield state_truth(h_start + layer * size, state.h, state.h_error, many, case)
            yield state_truth(c_start + layer * size, state.c, state.c_error, many, case)

    def flops(self, case: Case) -> int:
        """Count two products for each step, and nine operations for each unit; an exponential counts as one."""
        t, b, inner, h = case.shape
        columns = inner + h + (layers_of(case) - 1) * 2 * h
        return t * b * h * (8 * columns + (4 * 2 + 9) * layers_of(case))

    def workspace_bytes(self, case: Case) -> int:
        """Count the weights and their squares, and pieces of inputs and sums in float64."""
        t, b, inner, h = case.shape
        layers = layers_of(case)
        columns = inner + h + (layers - 1) * 2 * h
        steps = min(t, rows_per_block(4 * b * h, 4)) if b * h else 0
        piece = 2 * inner + 12 * h + (14 * h if layers > 1 else 0)
        return 8 * (16 * h * columns + steps * b * piece + 40 * layers * b * h)


def layers_of(case: Case) -> int:
    return int(case.option("layers", "1"))


def by_layer(operands: tuple[torch.Tensor, ...]) -> list[tuple[torch.Tensor, ...]]:
    """Return w_ih, w_hh, bias, h0 and c0 of each layer, from the operands after x."""
    w_ih, w_hh, bias, h0, c0, *upper = operands
    return list(zip((w_ih, *upper[0]), w_hh, bias, h0, c0, strict=True)) if upper else [operands]


OP = Lstm()
