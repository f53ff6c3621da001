"""Judges every row that two runs share, by the ratio of its speeds, NEW over BASE (above 1 is faster).

A row is SAME if the whole 95% interval of the ratio lies within the threshold. It is FASTER or SLOWER if a wider
interval lies beyond the threshold. The wider interval allows for the number of rows and for the differences between
processes (`process_spread.py`). Noisy rows are judged like others: noise only widens their intervals.

The evidence is `vs_best` if a vendor row was timed together with this one, because drift that both share cancels.
docs/comparing_runs.md has the derivation, and the rules for rows whose evidence is missing or in doubt.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from suite.core.errors import UsageError
from suite.core.text import one_line
from suite.diff.change import Change, Diff, Evidence, Pair, Verdict, case_name, has_time
from suite.diff.interval import Estimate, as_ratio
from suite.diff.kernels import is_vendors_choice, other_kernels
from suite.diff.load import Key, Side
from suite.diff.process_spread import BETWEEN_GPUS, Typical, family_factor, process_arm, tick
from suite.results.noise import contradictory, reference_of
from suite.results.render import number
from suite.results.row import FAILURES, Row, Status

THRESHOLD = 0.03
ROUNDING = 1e-12
"""Floating-point tolerance: a ratio exactly at the threshold is within it."""
BETWEEN_PROCESSES = "with the usual difference between processes, corrected for the number of rows"
MAX_CONTROL_ARM = 2.0
"""Largest difference between processes of a control, relative to the least of the case's vendor rows."""
CLOCK_CHANGE = 0.01
"""Relative change of the SM clock from which a row mentions it."""


def check_threshold(threshold: float) -> None:
    """Raise `UsageError` for a threshold outside of 0 to 1."""
    if not 0 < threshold < 1:
        raise UsageError(f"--threshold {threshold:g}: must lie between 0 and 1, e.g. 0.03 for three percent")


def judge(base: Side, new: Side, threshold: float = THRESHOLD) -> Diff:
    """Judge every row that is in both runs.

    `threshold` is the relative change that counts: 0.03 is three percent. Raises `UsageError` for a threshold outside
    0 and 1, and for runs that cannot be compared: runs on different devices, with different recorders or cache states,
    or without common rows.
    """
    check_threshold(threshold)
    _refuse_devices(base, new)
    cases: dict[Key, list[Pair]] = {}
    for key, row in base.rows.items():
        if key in new.rows:
            then, now = base.device_of(row), new.device_of(new.rows[key])
            incomparable = f"on {then} in BASE, on {now} in NEW" if then and now and then != now else ""
            gpus = base.gpu_of(row), new.gpu_of(new.rows[key])
            pair = Pair(row, new.rows[key], incomparable, all(gpus) and gpus[0] != gpus[1])
            cases.setdefault((*row.case_key, key[-1]), []).append(pair)
    if not cases:
        raise UsageError(f"cannot be compared: {base.path} and {new.path} have no row in common")
    every = [pair for pairs in cases.values() for pair in pairs]
    _refuse_conditions(every)
    rule = Rule(
        threshold,
        family_factor(sum(pair.timed for pair in every)),
        (Typical.from_rows(base.rows.values()), Typical.from_rows(new.rows.values())),
    )
    return Diff(base, new, threshold, tuple(change for pairs in cases.values() for change in _case(pairs, rule)))


def _refuse_devices(base: Side, new: Side) -> None:
    if base.device is not None and new.device is not None and base.device != new.device:
        names = f"BASE was measured on {one_line(base.device)}, NEW on {one_line(new.device)}"
        raise UsageError(f"cannot be compared: {names}; a difference would say nothing about the code")


def _refuse_conditions(pairs: Sequence[Pair]) -> None:
    for what in ("recorder", "cache"):
        differing = [pair for pair in pairs if pair.timed and getattr(pair.base, what) != getattr(pair.new, what)]
        if differing:
            then, now = (one_line(getattr(row, what)) or "unknown" for _, row in differing[0].sides)
            names = ", ".join(f"{case_name(pair.base)} {one_line(pair.base.implementation)}" for pair in differing[:3])
            more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
            raise UsageError(f"cannot be compared: the {what} is {then} in BASE and {now} in NEW for {names}{more}")


@dataclass(frozen=True)
class Rule:
    """The threshold, the number of rows, and the typical spread between processes, on which all verdicts depend."""

    threshold: float
    family: float
    typical: tuple[Typical, Typical]
    """The typical spreads of BASE and of NEW."""

    def wide(self, ratio: Estimate, pairs: Sequence[Pair], *, ranked: bool) -> Estimate:
        """`ratio` with an interval that covers the differences between two runs of the same code.

        `pairs` are those from which the ratio was computed.
        """
        return ratio.scaled(self.family).blurred(math.hypot(*(self.arm(pair, ranked=ranked) for pair in pairs)))

    def arm(self, pair: Pair, *, ranked: bool) -> float:
        """The largest difference of two runs of the same code in the ratio of a row."""
        rows = zip((pair.base, pair.new), self.typical, strict=True)
        between_gpus = BETWEEN_GPUS if pair.other_gpu else 0.0
        return math.hypot(between_gpus, *(process_arm(row, typical, ranked=ranked) for row, typical in rows))


def _case(pairs: Sequence[Pair], rule: Rule) -> Iterator[Change]:
    """Judge the rows of one case, with the vendor row as their control."""
    control = _control(pairs, rule)
    doubt = "" if control is None else _doubt(control, rule)
    references = reference_of([pair.base for pair in pairs]), reference_of([pair.new for pair in pairs])
    for pair in pairs:
        if not pair.timed:
            yield _untimed(pair)
            continue
        ratio, evidence, name, notes = _ratio_of_times(pair), Evidence.TIME, "", list(_notes(pair))
        wide = rule.wide(ratio, [pair], ranked=False)
        if control is not None and control is not pair and pair.ranked:
            relative, name = _ratio_to_control(pair, control), control.base.implementation
            relative_wide = rule.wide(relative, [pair, control], ranked=True)
            if doubt or _contradictory(pair, references):
                ratio, wide, evidence = ratio.spanning(relative), wide.spanning(relative_wide), Evidence.BOTH
                notes = [doubt, *notes] if doubt else notes
            else:
                ratio, wide, evidence = relative, relative_wide, Evidence.RANKED
        verdict, why = _verdict(pair, ratio, wide, rule.threshold)
        if pair.other_gpu and verdict is not Verdict.SAME:
            notes = ["on another GPU of this model", *notes]
        if kernels := other_kernels(pair):
            notes = [kernels, *notes]
            if verdict in (Verdict.FASTER, Verdict.SLOWER) and is_vendors_choice(pair):
                verdict, why = Verdict.AMBIGUOUS, (f"{pair.base.vendor} itself chose other kernels", *why)
        yield Change(pair.base, pair.new, verdict, ratio, evidence, name, (*why, *notes))


def _verdict(pair: Pair, ratio: Estimate, wide: Estimate, threshold: float) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict on a row by its intervals alone, which hold the noise of noisy rows too; and notes on it."""
    verdict = decide(ratio, wide, threshold)
    noisy = [side for side, row in pair.sides if row.noisy]
    found = [f"noisy in {' and '.join(noisy)}"] if noisy and verdict is not Verdict.SAME else []
    if verdict in (Verdict.FASTER, Verdict.SLOWER):
        return verdict, (_at_least(ratio, verdict), *found)
    if verdict is Verdict.AMBIGUOUS and decide(ratio, ratio, threshold) is not Verdict.AMBIGUOUS:
        low, high = number(as_ratio(wide.low), 4), number(as_ratio(wide.high), 4)
        return verdict, (f"interval {low} to {high} {BETWEEN_PROCESSES}", *found)
    return verdict, tuple(found)


def _at_least(ratio: Estimate, verdict: Verdict) -> str:
    """The smallest change within the 95% interval: `at least 6.0x as fast`."""
    faster = verdict is Verdict.FASTER
    least = as_ratio(ratio.low if faster else -ratio.high)
    times = f"at least {number(least, 2 if least >= 2 else 3)}x"
    return f"{times} as fast" if faster else f"takes {times} as long"


def decide(ratio: Estimate, wide: Estimate, threshold: float) -> Verdict:
    """The verdict on a logarithm: SAME by the interval `ratio`, FASTER and SLOWER by `wide`, else AMBIGUOUS."""
    edge = math.log1p(threshold) + ROUNDING
    if wide.low > edge:
        return Verdict.FASTER
    if wide.high < -edge:
        return Verdict.SLOWER
    return Verdict.SAME if -edge <= ratio.low and ratio.high <= edge else Verdict.AMBIGUOUS


def _control(pairs: Sequence[Pair], rule: Rule) -> Pair | None:
    """The fastest vendor row over the two runs, of those that differ little between processes.

    Names break ties, so that swapping the runs changes nothing.
    """

    def slowness(pair: Pair) -> tuple[float, str]:
        return _us(pair.base) * _us(pair.new), pair.base.implementation

    vendors = [
        pair
        for pair in pairs
        if pair.timed and pair.ranked and all(row.vendor and not row.noisy for _, row in pair.sides)
    ]
    arms = [rule.arm(pair, ranked=True) for pair in vendors]
    steady = [pair for pair, arm in zip(vendors, arms, strict=True) if arm <= MAX_CONTROL_ARM * min(arms)]
    return min(steady, key=slowness, default=None)


def _contradictory(pair: Pair, references: tuple[Row | None, Row | None]) -> bool:
    """True if a row is noisy because its time and its ratio name different winners: no interval shows that."""
    return any(
        row.noisy and contradictory(row, reference, 0.0)
        for (_, row), reference in zip(pair.sides, references, strict=True)
    )


def _doubt(control: Pair, rule: Rule) -> str:
    """The reason why the control is not enough as evidence: other versions, or another speed. Empty if it is enough."""
    name, ratio = control.base.implementation, _ratio_of_times(control)
    if control.base.versions != control.new.versions:
        return f"versions of {name}: {control.base.versions} -> {control.new.versions}"
    wide = rule.wide(ratio, [control], ranked=False)
    if decide(ratio, wide, rule.threshold) in (Verdict.FASTER, Verdict.SLOWER):
        return f"{name} itself is {as_ratio(ratio.value):.3g} times as fast"
    return ""


def _ratio_of_times(pair: Pair) -> Estimate:
    """The ratio of `device_us`. Its interval spans two cases: a clock change explains all of the ratio, or nothing."""

    def speed(row: Row) -> Estimate:
        return (-Estimate.from_interval(_us(row), row.device_us_low, row.device_us_high)).blurred(_half_tick(row))

    ratio, clock_loss = speed(pair.new) - speed(pair.base), _clock_loss(pair)
    return Estimate(ratio.value, ratio.down + max(0.0, -clock_loss), ratio.up + max(0.0, clock_loss))


def _ratio_to_control(pair: Pair, control: Pair) -> Estimate:
    """The ratio of the row's speed to that of the control, each from samples of the same run."""

    def speed(row: Row, vendor: Row) -> Estimate:
        ours, theirs = (
            Estimate.from_interval(r.vs_best or math.nan, r.vs_best_low, r.vs_best_high) for r in (row, vendor)
        )
        return (ours - theirs).blurred(math.hypot(_half_tick(row), _half_tick(vendor)))

    return speed(pair.new, control.new) - speed(pair.base, control.base)


def _us(row: Row) -> float:
    return row.device_us or math.nan


def _half_tick(row: Row) -> float:
    """Half a step of the recorder's clock, relative to the time."""
    return tick(row) / 2


def _clock_loss(pair: Pair) -> float:
    """Logarithm of BASE's SM clock divided by NEW's; 0 if either is unknown."""
    then, now = pair.base.clock_sm_mhz, pair.new.clock_sm_mhz
    return math.log(then) - math.log(now) if then and now else 0.0


def _untimed(pair: Pair) -> Change:
    """The verdict on a row without a ratio, from the two statuses."""
    base, new = pair.base, pair.new
    statuses = f"{base.status} -> {new.status}"
    if base.status is Status.OK and new.status in FAILURES:
        return Change(base, new, Verdict.BROKEN, notes=(f"{statuses}: {new.explanation}",))
    if base.status in FAILURES and new.status is Status.OK:
        return Change(base, new, Verdict.FIXED, notes=(statuses,))
    if base.status != new.status:
        return Change(base, new, Verdict.UNTIMED, notes=(f"{statuses}: {new.reason}" if new.reason else statuses,))
    if pair.incomparable:
        return Change(base, new, Verdict.UNTIMED, notes=(pair.incomparable,))
    missing = [f"no time in {side}: {row.reason or row.remarks}" for side, row in pair.sides if not has_time(row)]
    return Change(base, new, Verdict.UNTIMED, notes=tuple(missing) if len(missing) == 1 else ())


def _notes(pair: Pair) -> Iterator[str]:
    """Notes that a reader should know before trusting a verdict."""
    for side, row in pair.sides:
        about = "; ".join(text for text in (row.reason, row.remarks) if text)
        missing = "no 95% interval" if row.device_us_low is None or row.device_us_high is None else ""
        if about or missing:
            yield f"{side}: {about or missing}"
    then, now = pair.base.compile_cache, pair.new.compile_cache
    if then != now and then and now:
        yield f"compile cache: {then} -> {now}"
    if pair.base.config != pair.new.config:
        yield f"config: {pair.base.config or 'none'} -> {pair.new.config or 'none'}"
    if abs(_clock_loss(pair)) > CLOCK_CHANGE:
        yield f"SM clock: {pair.base.clock_sm_mhz:.0f} -> {pair.new.clock_sm_mhz:.0f} MHz"
