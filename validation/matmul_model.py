"""Fits the constants of cuda_ref/matmul/_model.py to measured times of plans, for the device that has measured them.

python -m validation.matmul_model --fit plans.csv          # files that validation.matmul_plans has written
python -m validation.matmul_model --fit plans.csv --share 0.67 --seed 1      # fits part of the shapes, tests the others

The constants are printed as Python, to be written to FITTED of _model.py under the name of the device. The fit lowers
the loss of the choice (the mean logarithm of the chosen plan's time over that of the best one), and slightly the error
of predicted times of plans near the best one. It changes one constant at a time as long as that lowers the objective.
"""

from __future__ import annotations

import argparse
import math
import operator
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from cuda_ref.matmul._model import FITTED, Costs, predicted_us
from validation.matmul_plans import Timed, plan, read

NEAR = 1.5
"""The error of plans whose time is below this multiple of the best one counts."""
ERROR_WEIGHT = 0.1
"""Weight of the mean squared error of logarithms of times, beside the loss of the choice."""
SOFTNESS = 0.03
"""Plans whose predicted times differ by this share count as nearly equal choices."""
SQUARES = 4
"""Weight of a shape M = N = K."""
STEPS = (1.2, 1.05)
"""Factors by which a constant is changed."""
ONLY = {
    "mma": ("mma", "sm_mma"),
    "stream": ("stream",),
    "skinny": ("skinny",),
    "short": ("short",),
    "narrow": ("narrow",),
    "wgmma": ("wgmma", "sm_wgmma", "sm_odd", "beyond", "add", "request", "sm_load"),
    "fitted": ("fitted", "wgmma_store", "sm_wgmma", "sm_odd", "beyond", "add", "request", "sm_load"),
}
"""Kernels, and how the names of constants begin that only these kernels depend on."""


class Fit:
    """Measured shapes, and the logarithms of their plans' times that the present constants predict."""

    def __init__(self, shapes: Sequence[Timed], costs: Costs) -> None:
        self.shapes = shapes
        self.plans = [[plan(name) for name in each.plans] for each in shapes]
        self.measured = [[math.log(us) for us in each.plans.values()] for each in shapes]
        self.predicted: list[list[float]] = [[0.0] * len(plans) for plans in self.plans]
        self.losses = [0.0] * len(shapes)
        self.weights = [SQUARES if each.x.M == each.x.N == each.x.K else 1 for each in shapes]
        self.update(costs, None)

    def update(self, costs: Costs, constant: str | None) -> float:
        """Predicts again what depends on a constant, or all; returns the objective."""
        kernels = {kernel for kernel, names in ONLY.items() if constant and constant.startswith(names)}
        if "wgmma" in kernels:
            kernels.add("wgmma16")
        for i, shape in enumerate(self.shapes):
            changed = [j for j, each in enumerate(self.plans[i]) if not kernels or each.kernel in kernels]
            for j in changed:
                self.predicted[i][j] = math.log(predicted_us(self.plans[i][j], shape.x, costs))
            if changed:
                self.losses[i] = self._loss(i)
        return sum(map(operator.mul, self.losses, self.weights)) / sum(self.weights)

    def _loss(self, i: int) -> float:
        measured, predicted = self.measured[i], self.predicted[i]
        least, best = min(predicted), min(measured)
        weights = [math.exp((least - each) / SOFTNESS) for each in predicted]
        choice = sum(w * (m - best) for w, m in zip(weights, measured, strict=True)) / sum(weights)
        errors = [
            (p - m) ** 2 for p, m in zip(predicted, measured, strict=True) if m < best + math.log(NEAR)
        ]  # fmt: skip
        return choice + ERROR_WEIGHT * statistics.fmean(errors)


def fit(shapes: Sequence[Timed], costs: Costs, seconds: float) -> Costs:
    """Constants with a lower objective, by a search along one constant at a time."""
    begin, state = time.monotonic(), Fit(shapes, costs)
    least = state.update(costs, None)
    for step in STEPS:
        improved = True
        while improved and time.monotonic() - begin < seconds:
            improved = False
            for name in Costs._fields:
                for factor in (step, 1 / step):
                    changed = costs._replace(**{name: getattr(costs, name) * factor})
                    found = state.update(changed, name)
                    if found < least - 1e-5:
                        costs, least, improved = changed, found, True
                        break
                    state.update(costs, name)
            print(f"# factor {step}: objective {least:.5f}", flush=True)
    return costs


def quality(shapes: Sequence[Timed], costs: Costs) -> str:
    """The best plan's time over the chosen plan's: geometric mean and worst."""
    ratios = []
    for each in shapes:
        chosen = min(each.plans, key=lambda name: predicted_us(plan(name), each.x, costs))  # noqa: B023
        ratios.append(min(each.plans.values()) / each.plans[chosen])
    mean = math.exp(statistics.fmean(math.log(each) for each in ratios))
    return f"{len(ratios)} shapes: chosen plan, of the best: geometric mean {mean:.4f}, worst {min(ratios):.3f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", type=Path, nargs="+", required=True, help="files of validation.matmul_plans")
    parser.add_argument("--share", type=float, default=1.0, help="share of the shapes that is fitted (1)")
    parser.add_argument("--seed", type=int, default=1, help="of the shapes that are fitted (1)")
    parser.add_argument("--seconds", type=float, default=600, help="no new round begins after this time (600)")
    parser.add_argument("--device", default="NVIDIA H200", help="whose constants the fit starts from")
    given = parser.parse_args()
    shapes = [each for path in given.fit for each in read(path) if len(each.plans) > 1]
    random.Random(given.seed).shuffle(shapes)
    fitted, tested = shapes[: round(given.share * len(shapes))], shapes[round(given.share * len(shapes)) :]
    before = FITTED[given.device]
    costs = fit(fitted, before, given.seconds)
    for title, some in (("fitted", fitted), ("tested", tested)):
        if some:
            print(f"# {title}, before: {quality(some, before)}\n# {title}, after:  {quality(some, costs)}")
    print("Costs(")
    for name, value in costs._asdict().items():
        print(f"    {name}={value:.4g},")
    print(")")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
