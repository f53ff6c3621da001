"""The inputs of timed calls: they change between rounds, and the results of some rounds are kept and judged.

    inputs = TimedInputs(problem, LocalResults(problem, {"torch": adapter, ...}), rebind)
    measure(calls, ..., inputs=inputs)          each round has other inputs; results of a few are kept
    wrong = inputs.judge()                      {name: reason} of the implementations that are wrong while timed

- Values come from the operating system's random source. The run's seed determines only the first inputs.
- Values change in place: addresses, objects and version counters of the arrays stay the same.
- Random normal numbers are replaced in one of every 64 or 1,024 elements, at random places; other families draw all
  operands anew. A few sampled elements therefore do not identify the inputs, and equal inputs do not return.
- Operations with much arithmetic for each element, such as products, and users' files draw each operand anew in three
  of five rounds: a kernel that adds the effect of sparse changes to its last result would otherwise compute a fraction
  of the operation. So do operations whose work depends on the values: their time is the median over many draws.
- Every round is equally likely to be judged. The choice is made when the round begins.
- `judged` counts the results of each implementation that are judged.
- The result is copied outside the measured span, right after it ends: later writes to it do not count.
- The memory of the first results is held to the end, and that of some rounds until later results take their place. It
  must not change: a kernel that returns the same memory again saves an allocation that others pay for.
- A second copy of the inputs gets the same changes. The first call after which the two differ wrote to its inputs.
- All implementations of a round have the same inputs, so one truth serves all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from random import SystemRandom
from time import perf_counter  # bound before any user's file can replace it
from typing import Protocol

import torch

from suite.checking.calls import RefusedError, as_torch
from suite.checking.coincidence import differ, is_one_number
from suite.checking.judge import judge_together
from suite.checking.memory import INTEGERS, copies_with_layout, elements_between_bands, same_bits, whole_storage
from suite.checking.problem import Problem
from suite.checking.rounds import Reservoir, Round, Slots, Tensors
from suite.frameworks.base import Adapter
from suite.implementations.bound_call import BoundCall
from suite.problem import numbers, placement
from suite.problem.family import NORMALS
from suite.problem.outputs import as_judged, joined
from suite.problem.truth import Truth

JUDGED_ROUNDS, JUDGED_PARTIAL = 32, 8
"""Rounds of a case that are judged: those in which every implementation is timed; then others for each implementation.
A fault in one of ten calls is found with a probability of 1 - 0.9^32 = 0.96."""
LEAST_ROUNDS = 3
"""Rounds of all implementations that are judged even if this takes longer than allowed."""
JUDGE_S, JUDGE_FILE_S = 0.1, 2.5
"""Time after which no further round is judged, for implementations of the tree and for a user's file."""
EXAMINED_EARLIER = 12
"""Earlier inputs that are tried as an explanation of a wrong result."""
SPARSE = (64, 1024)
"""A round changes one element of so many, which catches results cached by a few elements of the inputs."""
DENSE, DENSE_FLOPS = (1, 1, 1, *SPARSE), 64
"""The same for operations with so many arithmetic operations for each element of their operands, for those whose work
depends on the values, and for users' files.
Most rounds draw an operand anew, so that the median time is that of such a round."""
DENSE_ELEMENTS = 1 << 24
"""Most elements of an operand that a user's file with less arithmetic gets drawn anew: drawing more takes too long."""
HOLD_PERIOD = 8
"""One round of so many holds its results themselves, not copies: they must not change. Early rounds do so more
often."""
HOST_BYTES = 1 << 30
"""Memory for kept results on a CPU. A GPU uses half of its free memory."""
MAX_PREVIOUS_BYTES = 1 << 26
"""Largest inputs, in bytes, of which the values of the previous round are kept too."""
EARLIER = "returned the result of earlier inputs"


class Results(Protocol):
    """Access to the results of timed calls."""

    @property
    def names(self) -> Collection[str]:
        """Names of the implementations."""

    @property
    def kept_bytes(self) -> int:
        """Memory of a kept result."""

    def latest(self, name: str, result: object) -> Tensors:
        """Return the result of the latest sample of `name`. Raises `RefusedError` if it is not of the right form."""

    def held(self, name: str, output: Tensors) -> Callable[[], Tensors]:
        """Hold the result of the latest sample, which is of `name` and which `latest` returned as `output`.

        Returns a function that reads the present values of that result, once, before those of earlier ones are read.
        """


class LocalResults:
    """Results of implementations that are called in this process."""

    def __init__(self, problem: Problem, adapters: Mapping[str, Adapter]) -> None:
        self.names = tuple(adapters)
        self.kept_bytes = problem.op.output_bytes(problem.case)
        self._problem, self._adapters = problem, adapters
        self._latest: dict[str, Tensors] = {}

    def latest(self, name: str, result: object) -> Tensors:
        self._latest[name] = as_torch(result, self._adapters[name], self._problem)
        return self._judged(self._latest[name])

    def held(self, name: str, output: Tensors) -> Callable[[], Tensors]:
        return partial(self._judged, self._latest[name])

    @staticmethod
    def _judged(outputs: Tensors) -> Tensors:
        return tuple(as_judged(each).contiguous() for each in outputs)


class TimedInputs:
    """The buffers of `problem` as the inputs of timed calls, whose results are found in `results`.

    rebind: is called after each change, to renew arrays that are copies of the buffers.
    of_file: a user's file is timed.
    """

    def __init__(
        self, problem: Problem, results: Results, rebind: Callable[[], None] = lambda: None, *, of_file: bool = False
    ) -> None:
        self._problem, self._results, self._rebind = problem, results, rebind
        self._random = SystemRandom()
        self._source = torch.Generator(problem.device).manual_seed(self._random.getrandbits(63))
        family = problem.op.family(problem.case.inputs)
        self._normal = family.values is NORMALS and family.place is placement.as_drawn
        elements = sum(flat.numel() for flat in self._operands(problem.buffers))
        much = problem.op.flops(problem.case) >= DENSE_FLOPS * elements
        whole = much or problem.op.values_set_work or (of_file and elements <= DENSE_ELEMENTS)
        self._stretches = DENSE if whole else SPARSE
        problem.present(0)  # earlier calls may have written to the buffers
        self._intact = copies_with_layout(problem.draws[0])
        self._begun = 0
        self._round: Round | None = None
        self._wrong: dict[str, str] = {}
        self._held: dict[str, list[tuple[Callable[[], torch.Tensor], torch.Tensor]]] = {}
        size, slots, self._place, self._holds = self._capacity()
        self._keeps = self._holds  # for the samples before the first round
        self._complete, self._partial = Reservoir(size, self._random), Slots(slots, self._random)
        self._is_partial = False
        self.judged: Counter[str] = Counter()

    @property
    def rounds(self) -> list[Round]:
        """The rounds that are judged, in the order in which they were timed."""
        return sorted(self._complete.rounds + self._partial.rounds(), key=lambda each: each.number)

    def change(self) -> None:
        """Write new values of the case's family in place."""
        if self._normal:
            for flat, intact in zip(*map(self._operands, (self._problem.buffers, self._intact)), strict=True):
                if (stretch := self._random.choice(self._stretches)) == 1:
                    flat.copy_(intact.copy_(self._values(flat, flat.numel())))
                    continue
                places = self._places(flat, stretch)
                values = self._values(flat, places.numel())
                flat.scatter_(0, places, values)
                intact.scatter_(0, places, values)
        else:
            self._redraw(self._problem.buffers, self._intact)
        self._rebind()

    def begin_round(self, complete: bool) -> None:
        self._begun += 1
        self._keeps = self._holds and not self._random.randrange(min(HOLD_PERIOD, self._begun + 1))
        if self._keeps:
            self._compare_held(but=1)
        small = sum(whole_storage(buffer).nbytes for buffer in self._problem.buffers) <= MAX_PREVIOUS_BYTES
        self._is_partial = not complete
        self._round = (self._complete if complete else self._partial).offer(lambda: self._next(small))
        if self._round is None:
            self.change()

    def _next(self, small: bool) -> Round:
        """Return a round to judge. Changes that calls made to the inputs are undone first, so that a repeated one is
        found."""
        self._restore()
        before = copies_with_layout(self._intact) if small else None
        self.change()
        return Round(self._begun, tuple(copy.to(self._place) for copy in copies_with_layout(self._intact)), before)

    def _restore(self) -> list[int]:
        """Undo changes that calls made to the inputs. Returns the positions of the changed inputs."""
        pairs = list(zip(self._problem.buffers, self._intact, strict=True))
        written = [i for i, (b, intact) in enumerate(pairs) if not torch.equal(whole_storage(b), whole_storage(intact))]
        for i in written:
            whole_storage(self._problem.buffers[i]).copy_(whole_storage(self._intact[i]))
        if written:
            self._rebind()
        return written

    def run_on_other_values(self, run: Callable[[], None]) -> None:
        """Run a call on other values, so that it warms the cache without seeing the inputs of the sample."""
        if not self._normal:
            saved = [whole_storage(buffer).clone() for buffer in self._problem.buffers]
            self._redraw(self._problem.buffers)
            self._rebind()
            run()
            for buffer, values in zip(self._problem.buffers, saved, strict=True):
                whole_storage(buffer).copy_(values)
        else:
            changed = []
            for flat in self._operands(self._problem.buffers):
                places = self._places(flat, self._random.choice(SPARSE))
                changed.append((flat, places, flat.gather(0, places)))
                flat.scatter_(0, places, self._values(flat, places.numel()))
            self._rebind()
            run()
            for flat, places, values in changed:
                flat.scatter_(0, places, values)
        self._rebind()

    def keep(self, name: str, result: object) -> None:
        """Copy a result of a judged round, and restore the inputs if the call wrote to them.

        Before the first round, and in some, the result itself is held too: it must not change until the end, or until
        another is held.
        """
        if self._round is None and not self._keeps:
            return
        try:
            output = self._results.latest(name, result)
        except RefusedError as refused:
            self._wrong.setdefault(name, str(refused))
            return
        if self._keeps:
            self._held.setdefault(name, []).append((self._results.held(name, output), copies(output)))
        if self._round is None:
            return
        self._round.results[name] = copies(output, self._place)
        if self._is_partial:
            self._partial.add(name, self._round)
        written = self._restore()
        if written:
            self._wrong.setdefault(name, f"wrote to its inputs (argument {written[0] + 1})")

    def judge(self, seconds: float = JUDGE_S) -> dict[str, str]:
        """Return what is wrong with the kept results, by name. Empties the rounds.

        After `seconds` no further round is judged, except LEAST_ROUNDS and one other round of each call.
        """
        self._compare_held()
        rounds, wrong, begin = self.rounds, dict(self._wrong), perf_counter()
        least, others = self._in_order(rounds)
        for each in (*least, *others):
            if each in others and perf_counter() - begin > seconds:
                break
            left = {name: output for name, output in each.results.items() if name not in wrong}
            self.judged.update(left.keys())
            for name, reason in zip(left, self._reasons(list(left.values()), each.inputs), strict=True):
                if reason:
                    stale = self._is_earlier(name, each, rounds)
                    wrong[name] = EARLIER if stale else reason
        self._complete.rounds, self._round = [], None
        self._partial = Slots(1, self._random)
        return wrong

    def _compare_held(self, but: int = 0) -> None:
        """Compare the held results with their copies, except the first `but` of each name, and release them."""
        for name, held in self._held.items():
            while len(held) > but:
                read, copy = held.pop()
                if not all(map(same_bits, read(), copy)):
                    self._wrong.setdefault(name, "a result changed after its call")

    def _in_order(self, rounds: list[Round]) -> tuple[list[Round], list[Round]]:
        """Return the rounds that are judged in any case, and the others, in a random order."""
        complete = self._complete.rounds
        chosen = self._random.sample(complete, min(LEAST_ROUNDS, len(complete))) + self._partial.rounds(1)
        others = [each for each in rounds if each not in chosen]
        return sorted(chosen, key=lambda each: each.number), self._random.sample(others, len(others))

    def _reasons(self, outputs: list[Tensors], inputs: Tensors) -> list[str]:
        """Return what is wrong with each output as a result of `inputs`; empty for those that are right.

        Several results are joined for this, as many outputs at once as memory allows.
        """
        problem, reasons = self._problem, list[str]()
        for begin in range(0, len(outputs), self._joined_at_once):
            verdicts = judge_together(
                [joined(each) for each in outputs[begin : begin + self._joined_at_once]],
                self._truth(inputs),
                shape=problem.output_shape,
                dtype=problem.output_dtype,
                position=problem.position,
                results=problem.results,
            )
            reasons += [verdict.reason for verdict in verdicts]
        return reasons

    def _truth(self, inputs: Tensors) -> Iterable[Truth]:
        problem = self._problem
        return problem.op.exact_truth(tuple(each.to(problem.device) for each in inputs), problem.case)

    def _is_earlier(self, name: str, at: Round, rounds: list[Round]) -> bool:
        """True if a wrong result of round `at` is the result of other inputs: of another judged round, of the round
        before a judged one, or of the check."""
        output = at.results[name]
        others = [each for each in rounds if each is not at]
        repeated = any(name in each.results and all(map(same_bits, each.results[name], output)) for each in others)
        if repeated and not all(map(is_one_number, output)):
            return True
        earlier = [each for each in rounds if each.number <= at.number][::-1]
        inputs = [given for each in earlier for given in (each.before, each.inputs if each is not at else None)]
        candidates = [*self._problem.draws, *(given for given in inputs if given is not None)]
        fitting = (given for given in candidates[:EXAMINED_EARLIER] if not self._reasons([output], given)[0])
        dtype = self._problem.output_dtype
        return any(differ(self._truth(given), self._truth(at.inputs), dtype) for given in fitting)

    # Values

    def _operands(self, tensors: Tensors) -> Iterator[torch.Tensor]:
        """Yield the elements of each operand as a vector of integers. Scales that belong to no operand are left out."""
        for buffer in tensors[: len(self._problem.op.operands(self._problem.case))]:
            flat = elements_between_bands(buffer)
            if flat.numel():
                yield flat.view(INTEGERS[flat.element_size()])

    def _places(self, flat: torch.Tensor, stretch: int) -> torch.Tensor:
        """Return random distinct places: one in every stretch of that length, from a random start."""
        count = flat.numel()
        length = min(stretch, count)
        begins = torch.arange(0, count - count % length, length, device=flat.device)
        within = torch.randint(length, begins.shape, generator=self._source, device=flat.device)
        return begins.add_(within).add_(self._random.randrange(count)).remainder_(count)

    def _values(self, flat: torch.Tensor, count: int) -> torch.Tensor:
        drawn = numbers.normals((count,), self._problem.case, self._source)
        return drawn.view(flat.dtype)

    def _redraw(self, *places: Tensors) -> None:
        problem = self._problem
        drawn = problem.draw(self._random.getrandbits(63))
        for buffer, given in (pair for tensors in places for pair in zip(tensors, drawn, strict=True)):
            whole_storage(buffer).copy_(whole_storage(given))

    def _capacity(self) -> tuple[int, int, torch.device, bool]:
        """Return how many rounds with all calls fit into memory, how many others of each call, where their results are
        kept, and whether first results can be held too."""
        problem, device = self._problem, self._problem.device
        inputs = sum(whole_storage(buffer).nbytes for buffer in problem.buffers)
        inputs *= 2 if inputs <= MAX_PREVIOUS_BYTES else 1
        results = len(self._results.names) * self._results.kept_bytes
        if device.type == "cuda":
            torch.cuda.empty_cache()  # so that memory of the check, which torch keeps, counts as free
        room = HOST_BYTES if device.type == "cpu" else torch.cuda.mem_get_info(device)[0] // 2
        self._joined_at_once = max(1, room // 2 // max(1, problem.op.joined_bytes(problem.case)))
        fits = room // max(1, inputs + results)
        holds = fits >= 2 * LEAST_ROUNDS + 1
        fits -= 4 if holds else 0
        usual = fits // 2  # leaves more memory to the calls; the least number of rounds may take all
        slots = max(1, min(JUDGED_PARTIAL, usual // 6))
        least, most = min(LEAST_ROUNDS, fits - 2 * slots), min(JUDGED_ROUNDS, usual - 2 * slots)
        rounds = max(1, least, most)  # two rounds are kept for each slot
        return rounds, slots, device if fits > 2 else torch.device("cpu"), holds


def copies(results: Tensors, device: torch.device | None = None) -> Tensors:
    """Return contiguous copies of results, on their device or on another."""
    return tuple(each.to(device or each.device, copy=True, memory_format=torch.contiguous_format) for each in results)


def keep_a_round(bound_calls: Mapping[str, BoundCall], inputs: TimedInputs, on_call: Callable[[str], None]) -> None:
    """Call each implementation once more and keep the results, if no recorder has taken samples."""
    inputs.begin_round(complete=True)
    for name, bound in bound_calls.items():
        on_call(name)
        result = bound.issue()
        bound.implementation.adapter.wait(result)
        inputs.keep(name, result)
