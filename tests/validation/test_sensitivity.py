"""The program that measures the bounds from both sides."""

from __future__ import annotations

import math

import pytest

from suite import ops
from suite.implementations import builtin
from validation.sensitivity import SIZES, count_honest, honest, honest_results, is_limited, main, measure, sizes_of
from validation.shard import Shard


def test_shards_have_all_honest_results_once_and_none_is_refused() -> None:
    whole = list(honest(["vector_add"], ["float32"], range(1)))
    parts = [list(honest(["vector_add"], ["float32"], range(1), Shard(number, 3))) for number in (1, 2, 3)]
    assert sorted(whole) == sorted(each for part in parts for each in part)
    assert len({each.name for each in whole}) == len(whole) > 60
    assert {each.reason for each in whole} == {""}


def test_rounds_have_all_cases_each_with_another_seed() -> None:
    rounds = [each.name for each in honest(["vector_add"], ["float32"], range(2), Shard(1, 8))]
    first, second = rounds[: len(rounds) // 2], rounds[len(rounds) // 2 :]
    assert {each.rpartition(" ")[0] for each in first} == {each.rpartition(" ")[0] for each in second}
    assert len(set(rounds)) == len(rounds)
    assert {each.rpartition(" ")[2] for each in first} == {"0", "1"}


def test_a_count_ends_after_its_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--honest", "--op", "vector_add", "--seconds", "0"]) == 0
    assert "ended after 0 s, before all results\n0 of 0 honest results are refused" in capsys.readouterr().out


def test_results_that_a_library_is_known_to_get_wrong_are_counted_apart(capsys: pytest.CaptureFixture[str]) -> None:
    op = ops.get("attention")
    case = op.case(op.usual_shape, "float16", inputs="infinity@1")
    found = list(honest_results([builtin.find("attention", "torch")], case, seed=12))
    assert count_honest(found, math.inf) == 0
    *_, counts = capsys.readouterr().out.splitlines()
    assert counts == "0 of 1 honest results are refused; 1 others by known limits of libraries"
    assert count_honest([each._replace(limit="") for each in found], math.inf) == 1
    assert "1 of 1 honest results are refused" in capsys.readouterr().out


def test_every_operation_has_a_small_and_a_large_size() -> None:
    for op in map(ops.get, ops.alone()):
        small, large = (op.flops(op.case(size)) for size in sizes_of(op))
        assert small < large or op.name not in SIZES


@pytest.mark.parametrize("name", ["adam_step", "cross_entropy", "max_pool2d_grad"])
def test_errors_are_in_units_of_the_results_own_types(name: str) -> None:
    found = measure(ops.get(name).case(SIZES[name][0], "bfloat16"))
    assert 2.0**-10 < found.scale < 2.0**8
    assert 2.0**-10 < found.element < 2.0**8


@pytest.mark.parametrize("text", ["0/3", "4/3", "1"])
def test_a_shard_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Shard.parse(text)
    assert Shard.parse("2/3") == Shard(2, 3)


@pytest.mark.parametrize("inputs", ["subnormal", "subnormal@1", "subnormal+stepped/dense"])
def test_a_known_limit_holds_for_each_part_of_the_inputs(inputs: str) -> None:
    op = ops.get("vector_add")
    assert is_limited(builtin.find("vector_add", "jax"), op.case((31,), inputs=inputs))
    assert not is_limited(builtin.find("vector_add", "numpy"), op.case((31,), inputs=inputs))
