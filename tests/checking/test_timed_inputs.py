"""The inputs of timed calls: how they change, and which results are found wrong."""

from __future__ import annotations

from collections import Counter
from random import Random, SystemRandom
from typing import Any

import pytest
import torch
from checked_calls import CPU, JAX, TORCH, problem
from thinning import chosen_by

from suite import ops
from suite.checking.memory import whole_storage
from suite.checking.problem import Problem
from suite.checking.rounds import Reservoir, Round
from suite.checking.timed_inputs import (
    DENSE,
    EARLIER,
    JUDGED_PARTIAL,
    JUDGED_ROUNDS,
    LEAST_ROUNDS,
    SPARSE,
    LocalResults,
    TimedInputs,
)


def inputs_of(at: Problem, *names: str, rebind: Any = lambda: None) -> TimedInputs:
    return TimedInputs(at, LocalResults(at, dict.fromkeys(names or ("it",), TORCH)), rebind)


def bits(at: Problem) -> list[torch.Tensor]:
    return [whole_storage(buffer).clone() for buffer in at.buffers]


def same(before: list[torch.Tensor], after: list[torch.Tensor]) -> list[bool]:
    return [torch.equal(a, b) for a, b in zip(before, after, strict=True)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_a_few_normal_numbers_change_in_place(dtype: str, layout: str) -> None:
    at = problem("matmul", (200, 130, 128), dtype, layout=layout)
    timed, before = inputs_of(at), [buffer.double() for buffer in at.buffers]
    timed._stretches = SPARSE
    marks = [(buffer.data_ptr(), buffer._version, buffer.stride()) for buffer in at.buffers]
    timed.change()
    assert marks == [(buffer.data_ptr(), buffer._version, buffer.stride()) for buffer in at.buffers]
    for buffer, earlier in zip(at.buffers[:2], before[:2], strict=True):
        changed = int((buffer.double() != earlier).sum())
        assert 0 < changed <= buffer.numel() / 64
        assert float(buffer.double().std() / earlier.std()) == pytest.approx(1, abs=0.1)
    assert [float(buffer) for buffer in at.buffers[2:]] == [float(scale) for scale in before[2:]]


def test_products_draw_whole_operands_in_most_rounds_since_sparse_changes_could_be_added_to_a_result() -> None:
    at = problem("matmul", (200, 130, 128))
    timed, dense = inputs_of(at), 0
    for _ in range(100):
        before = [buffer.clone() for buffer in at.buffers]
        marks = [(buffer.data_ptr(), buffer._version) for buffer in at.buffers]
        timed.change()
        changed = [float((buffer != old).float().mean()) for buffer, old in zip(at.buffers, before, strict=True)]
        assert all(share > 0.99 or 0 < share <= 1 / 64 for share in changed)
        assert marks == [(buffer.data_ptr(), buffer._version) for buffer in at.buffers]
        dense += max(changed) > 0.99
    assert 66 <= dense <= 97, "84 of 100, but for one run in 100,000"
    assert inputs_of(problem("vector_add"))._stretches == SPARSE, "reading the operands is all that an addition costs"


def test_a_selection_is_timed_with_many_draws_since_its_work_depends_on_the_values() -> None:
    assert inputs_of(problem("top_k", (4, 300, 8)))._stretches == DENSE


def test_users_files_get_whole_operands_in_operations_without_much_arithmetic_too() -> None:
    at = problem("rms_norm", (4, 300))
    timed = TimedInputs(at, LocalResults(at, {}), of_file=True)
    assert timed._stretches == DENSE
    assert DENSE.count(1) > len(DENSE) / 2, "the median time is that of a round with a whole operand"


def test_changes_come_from_the_operating_system_and_not_from_the_seed() -> None:
    found = []
    for _ in range(2):
        at = problem()
        inputs_of(at).change()
        found.append(bits(at))
    assert not all(same(*found))


@pytest.mark.parametrize(
    "operation", chosen_by(ops.names(), lambda name: {ops.get(name).group, *ops.get(name).families}, str)
)
def test_every_family_keeps_its_character(operation: str) -> None:
    """New inputs of each family have its layout, and kernels stay right: the truth of the new inputs is computed."""
    op = ops.get(operation)
    for name, family in op.families.items():
        shapes = family.shapes or (op.ragged[1],)
        at = Problem(op.case(shapes[0], family.dtypes[0], inputs=name), 0, CPU) if not family.needs_gpu else None
        if at is None or not all(buffer.numel() for buffer in at.buffers):
            continue
        timed, before = inputs_of(at), bits(at)
        layout = [(buffer.shape, buffer.stride(), buffer.storage_offset()) for buffer in at.buffers]
        kinds = [torch.isnan(buffer).any().item() for buffer in at.buffers]
        for _ in range(8):
            timed.change()
        assert not all(same(before, bits(at))), name
        assert layout == [(buffer.shape, buffer.stride(), buffer.storage_offset()) for buffer in at.buffers]
        assert kinds == [torch.isnan(buffer).any().item() for buffer in at.buffers], name
        assert list(op.truth(at.buffers, at.case))


@pytest.mark.parametrize("family", ["normal", "strided"])
def test_a_warming_call_sees_other_values_which_are_put_back(family: str) -> None:
    at = problem("vector_add", inputs=family)
    timed, before, seen = inputs_of(at), bits(at), []
    timed.run_on_other_values(lambda: seen.append(bits(at)))
    assert not all(same(before, seen[0]))
    assert all(same(before, bits(at)))
    timed.begin_round(complete=True)
    timed.run_on_other_values(lambda: None)
    timed.keep("it", at.buffers[0] + at.buffers[1])
    assert timed.judge() == {}, "what the suite itself has put there is no write of the call"


def test_arrays_that_are_copies_are_bound_again() -> None:
    at, bound = problem("vector_add", inputs="offset"), []
    assert not JAX.shares_memory(JAX.to_native(at.buffers[0]), at.buffers[0])
    dense = problem("vector_add")
    assert JAX.shares_memory(JAX.to_native(dense.buffers[0]), dense.buffers[0])
    timed = inputs_of(at, rebind=lambda: bound.append(bits(at)))
    timed.change()
    timed.begin_round(complete=True)
    timed.run_on_other_values(lambda: None)
    assert len(bound) >= 3
    assert all(same(bound[-1], bits(at)))


def test_every_round_is_as_likely_to_be_judged() -> None:
    found: Counter[int] = Counter()
    for _ in range(2000):
        reservoir = Reservoir(3, SystemRandom())
        for number in range(12):
            reservoir.offer(lambda number=number: Round(number, (), None))
        assert len(reservoir.rounds) == 3
        found.update(each.number for each in reservoir.rounds)
    assert all(380 < found[number] < 620 for number in range(12)), found


class Kernels:
    """Ways to answer, by name; each is called once a round."""

    def __init__(self, at: Problem) -> None:
        self.at, self.kept, self.last = at, None, None

    def right(self) -> torch.Tensor:
        return self.at.buffers[0] + self.at.buffers[1]

    def remembers(self) -> torch.Tensor:
        self.kept = self.right() if self.kept is None else self.kept
        return self.kept

    def one_call_late(self) -> torch.Tensor:
        result, self.last = self.last, self.right()
        return self.last if result is None else result

    def imprecise(self) -> torch.Tensor:
        return self.right().bfloat16().float()

    def lost(self) -> torch.Tensor:
        return torch.full_like(self.right(), torch.nan)

    def writes(self) -> torch.Tensor:
        result = self.right()
        self.at.buffers[1][3] = 0.0
        return result

    def other_form(self) -> torch.Tensor:
        return self.right()[:-1]


def judged(*names: str) -> dict[str, str]:
    """The faults found in these kernels after 20 rounds, by name."""
    at = problem()
    kernels, timed = Kernels(at), inputs_of(at, *names)
    for _ in range(20):
        timed.begin_round(complete=True)
        for name in names:
            timed.keep(name, getattr(kernels, name.removesuffix("_too"))())
    wrong = timed.judge()
    assert timed.rounds == []
    return wrong


def test_results_of_timed_rounds_are_judged() -> None:
    names = ("right", "remembers", "one_call_late", "imprecise", "lost", "other_form", "right_too")
    wrong = judged(*names)
    assert wrong.keys() == set(names) - {"right", "right_too"}
    assert wrong["remembers"] == wrong["one_call_late"] == EARLIER
    assert wrong["imprecise"].startswith("value: at [")
    assert wrong["lost"].startswith("not finite: at ["), "equal results of one number are no earlier ones"
    assert wrong["other_form"] == "shape: the result has shape (999,), expected (1000,)"


def test_a_call_that_writes_to_its_inputs_is_found_and_those_beside_it_are_not() -> None:
    assert judged("right", "writes", "right_too") == {"writes": "wrote to its inputs (argument 2)"}


def test_rounds_without_all_calls_are_judged_too_and_keep_those_of_a_slow_call() -> None:
    at = problem()
    timed = inputs_of(at, "slow", "fast")
    for number in range(12):
        timed.begin_round(complete=number < 3)
        for name in ("slow", "fast") if number < 3 else ("fast",):
            timed.keep(name, at.buffers[0] + at.buffers[1])
    assert [sorted(each.results) for each in timed.rounds[:3]] == [["fast", "slow"]] * 3
    assert 1 <= len(timed.rounds[3:]) <= JUDGED_PARTIAL
    assert all(sorted(each.results) == ["fast"] for each in timed.rounds[3:])
    assert timed.judge() == {}


def test_calls_that_leave_one_after_the_other_are_each_judged_in_any_of_their_rounds() -> None:
    at = problem()
    leaves = {"first": 6, "second": 12, "third": 24}
    judged: dict[str, Counter[int]] = {name: Counter() for name in leaves}
    for _ in range(150):
        timed = inputs_of(at, *leaves)
        timed.begin_round(complete=True)
        for number in range(max(leaves.values())):
            timed.begin_round(complete=False)
            for name in [name for name, left in leaves.items() if number < left]:
                timed.keep(name, at.buffers[0] + at.buffers[1])
        partial = [each for each in timed.rounds if each.number > 1]
        for name in leaves:
            judged[name].update(each.number - 2 for each in partial if name in each.results)
        assert timed.judge() == {}
    for name, left in leaves.items():
        early = sum(judged[name][number] for number in range(left // 2))
        assert set(judged[name]) <= set(range(left))
        share = early / judged[name].total()
        assert 0.4 < share < 0.6, f"{name}: {share:.0%} in the first half of its rounds"


def test_thirty_two_rounds_are_judged_or_as_many_as_the_time_allows() -> None:
    for seconds, most in ((60.0, JUDGED_ROUNDS), (0.0, LEAST_ROUNDS)):
        at = problem()
        timed = inputs_of(at, "it", "beside")
        for _ in range(100):
            timed.begin_round(complete=True)
            for name in ("it", "beside"):
                timed.keep(name, at.buffers[0] + at.buffers[1])
        assert timed.judge(seconds) == {}
        assert timed.judged == {"it": most, "beside": most}


def test_a_call_that_is_wrong_in_one_of_ten_rounds_is_nearly_always_refused() -> None:
    at = problem("vector_add", (64,))
    refused, chance = 0, Random(0)
    for _ in range(40):
        timed = inputs_of(at)
        for _ in range(60):
            timed.begin_round(complete=True)
            result = at.buffers[0] + at.buffers[1]
            if chance.random() < 0.1:
                result[0] += 1
            timed.keep("it", result)
        refused += bool(timed.judge(60.0))
    assert refused >= 32, f"{refused} of 40, where 0.96 of them are expected: fewer than 32 by chance once in 10^5 runs"


def test_a_result_that_changes_after_its_call_is_wrong() -> None:
    at = problem()
    timed = inputs_of(at, "it", "other")
    result, other = (at.buffers[0] + at.buffers[1] for _ in range(2))
    timed.keep("it", result)
    timed.keep("other", other)
    for number in range(60):
        timed.begin_round(complete=True)
        for name in ("it", "other"):
            timed.keep(name, at.buffers[0] + at.buffers[1])
        if number == 50:  # long after its call: the first result is held to the end
            result.zero_()
    assert timed.judge() == {"it": "a result changed after its call"}


def test_a_kernel_that_returns_the_same_memory_from_its_fourth_timed_call_on_is_wrong() -> None:
    """Results are held at random: an honest beginning hides nothing."""
    at = problem()
    timed, kept = inputs_of(at, "it", "right"), torch.empty(1000)
    for number in range(150):
        timed.begin_round(complete=True)
        timed.keep("it", torch.add(*at.buffers, out=torch.empty(1000) if number < 3 else kept))
        timed.keep("right", at.buffers[0] + at.buffers[1])
    assert timed.judge() == {"it": "a result changed after its call"}


@pytest.mark.parametrize("shape", [(0, 0, 0), (3, 4, 0), (0, 4, 3)])
def test_empty_operands_do_not_change(shape: tuple[int, ...]) -> None:
    at = problem("matmul", shape, inputs="empty")
    timed = inputs_of(at)
    for _ in range(4):
        timed.begin_round(complete=True)
        timed.keep("it", at.buffers[0] @ at.buffers[1])
    assert timed.judge() == {}
