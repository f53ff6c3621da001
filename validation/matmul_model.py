"""Fits the constants of cuda_ref/matmul/_model.py or _model_tf32_float8.py to measured times of plans on a device.

python -m validation.matmul_model --fit plans.csv          # files of one precision by validation.matmul_plans
python -m validation.matmul_model --fit plans.csv --share 0.67 --seed 1      # fits part of the shapes, tests the others
python -m validation.matmul_model --fit a.csv b.csv --test c.csv             # tests the shapes of other files

The constants are printed as Python, to be written to FITTED of the model under the name of the device. The objective is
the mean logarithm of the chosen plan's time over that of the best one, plus the error of the predicted times of plans
near the best one. The fit changes one constant at a time as long as that lowers the objective. Files of several devices
are fitted together: the constants are those of the first file's device, and rates follow the others' memory and clock.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

from cuda_ref.matmul import _model as model
from cuda_ref.matmul import _model_tf32_float8 as model_tf32_float8
from cuda_ref.matmul._rates import Rates, scaled
from cuda_ref.matmul._tiles import Plan, Problem
from validation.matmul_plan_tables import Timed, mean, plan, read

Costs = model.Costs | model_tf32_float8.Costs
NEAR = 1.5
"""The error of predicted times counts for plans that take less than this multiple of the best time."""
ERROR_WEIGHT = 1.0
"""Weight in the objective of the mean squared error of logarithms of times. With 0.1, whole kernels were predicted
20% too fast."""
SOFTNESS = 0.03
"""Plans whose predicted times differ by this share count as nearly equal choices."""
SQUARES = 4
"""Weight of a shape M = N = K."""
STEPS = (1.2, 1.05)
"""Factors by which a constant is changed."""
MIN_GAIN = 1e-5
"""A constant is changed if that lowers the objective by at least this."""
TILED = ("sm_wgmma", "sm_load", "sm_odd", "wgmma_store", "wgmma_block", "beyond", "add", "request")
DEPENDS = {
    "mma": ("mma", "sm_mma"),
    "stream": ("stream",),
    "skinny": ("skinny",),
    "short": ("short",),
    "narrow": ("narrow",),
    "wgmma": ("wgmma", *TILED),
    "wgmma16": ("wgmma", *TILED),
    "fitted": ("fitted", *TILED),
}
"""Kernels of 16 bits, each with the first parts of the names of constants that only it and a few others depend on."""


class Fit:
    """Measured shapes, and the logarithms of their plans' times that the present constants predict."""

    def __init__(self, shapes: Sequence[Timed]) -> None:
        self.shapes = shapes
        self.plans = [[plan(name) for name in each.plans] for each in shapes]
        self.measured = [[math.log(us) for us in each.plans.values()] for each in shapes]
        self.predicted = [[0.0] * len(plans) for plans in self.plans]
        self.losses = [0.0] * len(shapes)
        self.rates = shapes[0].rates
        self.weights = [SQUARES if len(set(each.sizes)) == 1 else 1 for each in shapes]

    def update(self, costs: Costs, constant: str | None = None) -> float:
        """Predict the times that depend on a constant, or all, and return the objective."""
        by_rates = {each: _of_device(costs, each, self.rates) for each in {shape.rates for shape in self.shapes}}
        kernels = {kernel for kernel, names in DEPENDS.items() if constant and constant.startswith(names)}
        for i, shape in enumerate(self.shapes):
            changed = [j for j, each in enumerate(self.plans[i]) if not kernels or each.kernel in kernels]
            for j in changed:
                self.predicted[i][j] = math.log(predicted_us(self.plans[i][j], shape, by_rates[shape.rates]))
            if changed:
                self.losses[i] = self._loss(i)
        return statistics.fmean(self.losses, self.weights)

    def _loss(self, i: int) -> float:
        measured, predicted = self.measured[i], self.predicted[i]
        least, best = min(predicted), min(measured)
        weights = [math.exp((least - each) / SOFTNESS) for each in predicted]
        choice = sum(w * (m - best) for w, m in zip(weights, measured, strict=True)) / sum(weights)
        both = zip(predicted, measured, strict=True)
        return choice + ERROR_WEIGHT * statistics.fmean((p - m) ** 2 for p, m in both if m < best + math.log(NEAR))


def _of_device(costs: Costs, rates: Rates, fitted: Rates) -> Costs:
    """Return a device's constants from those that are fitted to another one."""
    if rates.name == fitted.name:
        return costs
    return scaled(costs, Rates(rates.name, rates.clock / fitted.clock, rates.dram / fitted.dram))


def predicted_us(plan: Plan, shape: Timed, costs: Costs) -> float:
    """Return the time of a plan that these constants predict."""
    if isinstance(shape.x, Problem):
        assert isinstance(costs, model.Costs)
        return model.predicted_us(plan, shape.x, costs)
    assert isinstance(costs, model_tf32_float8.Costs)
    return model_tf32_float8.predicted_us(plan, shape.x, costs, model.costs_of(shape.rates))


def fit(shapes: Sequence[Timed], costs: Costs, seconds: float) -> Costs:
    """Return constants with a lower objective, found by changing one constant at a time."""
    begin, state = time.monotonic(), Fit(shapes)
    least = state.update(costs)
    for step in STEPS:
        improved = True
        while improved and time.monotonic() - begin < seconds:
            improved = False
            for name in costs._fields:
                for factor in (step, 1 / step):
                    changed = costs._replace(**{name: getattr(costs, name) * factor})
                    found = state.update(changed, name)
                    if found < least - MIN_GAIN:
                        costs, least, improved = changed, found, True
                        break
                    state.update(costs, name)
            print(f"# factor {step}: objective {least:.5f}", flush=True)
    return costs


def quality(shapes: Sequence[Timed], costs: Costs, fitted: Rates) -> str:
    """Format the best plan's time over the one chosen by constants of the device `fitted`: geometric mean and worst."""
    ratios = []
    for each in shapes:
        times = {name: predicted_us(plan(name), each, _of_device(costs, each.rates, fitted)) for name in each.plans}
        ratios.append(each.best_ratio(min(times, key=times.__getitem__)))
    return f"{len(ratios)} shapes: chosen plan, of the best: geometric mean {mean(ratios):.4f}, worst {min(ratios):.3f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", type=Path, nargs="+", required=True, help="files of validation.matmul_plans")
    parser.add_argument("--test", type=Path, nargs="+", default=[], help="further files, which are tested only")
    parser.add_argument("--share", type=float, default=1.0, help="share of the shapes that is fitted (1)")
    parser.add_argument("--seed", type=int, default=1, help="of the shapes that are fitted (1)")
    parser.add_argument("--seconds", type=float, default=600, help="no new round begins after this time (600)")
    given = parser.parse_args()
    shapes = [each for path in given.fit for each in read(path) if len(each.plans) > 1]
    if len({getattr(each.x, "kernel", None) for each in shapes}) != 1:
        parser.error("the files must have shapes of one of 16 bits, tf32 and float8")
    x, rates = shapes[0].x, shapes[0].rates
    random.Random(given.seed).shuffle(shapes)
    fitted, tested = shapes[: round(given.share * len(shapes))], shapes[round(given.share * len(shapes)) :]
    tested += [each for path in given.test for each in read(path) if len(each.plans) > 1]
    before = model.costs_of(rates) if isinstance(x, Problem) else model_tf32_float8.costs_of(rates)[x.kernel]
    costs = fit(fitted, before, given.seconds)
    for title, some in (("fitted", fitted), ("tested", tested)):
        if some:
            print(
                f"# {title}, before: {quality(some, before, rates)}\n# {title}, after:  {quality(some, costs, rates)}"
            )
    constants = ", ".join(f"{name}={value:.4g}" for name, value in costs._asdict().items())
    print(f'"{rates.name}": Costs(\n{textwrap.indent(textwrap.fill(constants, 112), " " * 8)},\n    ),')
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
