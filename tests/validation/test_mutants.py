"""The program that derives wrong kernels and counts those that a plain run catches."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter

import pytest
import torch

from suite import ops
from suite.checking import diagnosis
from validation import mutants
from validation.mutants import MIN_SCORE, all_mutants, main, score
from validation.mutation import Mutant, memory


@pytest.fixture(autouse=True)
def _brief_diagnoses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "BUDGET_S", 0.0)


@pytest.mark.parametrize("name", ops.alone())
def test_every_operation_has_mutants_with_names_of_their_own(name: str) -> None:
    count = Counter((each.line, each.name) for each in all_mutants(name))
    assert len(count) >= 40
    assert set(count.values()) == {1}


@pytest.mark.parametrize(
    "name", ["vector_add", "sum", "softmax", pytest.param("layer_norm", marks=pytest.mark.thorough)]
)
def test_a_sample_is_caught(name: str) -> None:
    found = score(name, all_mutants(name)[::9])
    assert not found.survivors
    assert found.caught >= 5


def test_a_right_kernel_survives_and_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    right = Mutant("vector_add", "torch", "the line itself", lambda: lambda a, b: (a + b).contiguous())
    found = score("vector_add", [right])
    assert found.survivors == [right]
    assert found.share < MIN_SCORE
    assert main(["--op", "vector_add", "--sample", "5"]) == 0
    assert "vector_add: 5 caught, 0 survived" in capsys.readouterr().out


def test_shards_have_all_mutants(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    some = [Mutant("vector_add", "torch", f"{i}", lambda: lambda a, b: a - b) for i in range(3)]
    monkeypatch.setattr(mutants, "all_mutants", lambda operation: some)
    monkeypatch.setattr(mutants, "unchanged", lambda operation: [])
    for shard, count in (("1/2", 2), ("2/2", 1)):
        assert main(["--op", "vector_add", "--shard", shard]) == 0
        assert f"vector_add: {count} caught, 0 survived" in capsys.readouterr().out


def test_the_time_is_that_of_one_case(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(seconds: float) -> None:
        begin = time.process_time()
        while time.process_time() < begin + seconds:
            pass

    monkeypatch.setattr(mutants, "SECONDS", 0.2)
    with mutants.limited() as restart:
        for _ in range(4):
            restart("case")
            work(0.1)
    with pytest.raises(TimeoutError), mutants.limited():
        work(0.4)


def test_a_line_that_is_refused_as_it_is_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = Mutant("vector_add", "torch", "the line itself", lambda: lambda a, b: a - b)
    monkeypatch.setattr(mutants, "unchanged", lambda operation: [wrong])
    assert main(["--op", "vector_add", "--sample", "2"]) == 1
    assert "refused, though it is right: torch: value: at " in capsys.readouterr().out


def test_a_mutant_that_ends_the_process_is_caught() -> None:
    ends = Mutant("vector_add", "torch", "reads beyond", lambda: lambda a, b: os.kill(os.getpid(), signal.SIGKILL))
    right = Mutant("vector_add", "torch", "the line itself", lambda: lambda a, b: (a + b).contiguous())
    found = score("vector_add", [ends, right, ends])
    assert (found.caught, found.survivors) == (2, [right])


def test_readings_are_right_only_where_they_say() -> None:
    dense = torch.arange(12.0).view(3, 4)
    swapped = dense.mT.contiguous().mT
    assert torch.equal(memory.as_contiguous(dense), dense)
    assert not torch.equal(memory.as_contiguous(swapped), swapped)
    assert torch.equal(memory.contiguous_as_transposed(swapped), swapped)
    assert not torch.equal(memory.contiguous_as_transposed(dense), dense)
    row = dense[:1].expand(3, 4)
    assert torch.equal(memory.broadcast_as_contiguous(dense), dense)
    assert not torch.equal(memory.broadcast_as_contiguous(row), row)
    assert torch.equal(memory.offsets_of(4, signed=False)(dense), dense)
    assert not torch.equal(memory.offsets_of(3, signed=False)(dense), dense)
