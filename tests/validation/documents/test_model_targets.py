"""The targets of the operations of models: which one counts, and when it is met."""

from __future__ import annotations

from suite.results.row import Mode, Row, Status
from validation.documents import model_targets as targets


def row(operation: str, case: str, implementation: str, us: float, share: float, ratio: float) -> Row:
    return Row(
        operation=operation,
        case=case,
        dtype="bfloat16",
        precision="ieee",
        implementation=implementation,
        execution=Mode.NATIVE,
        status=Status.OK,
        device_us=us,
        of_limit=share,
        vs_best=ratio,
        vendor="cuDNN" if implementation == "torch" else "",
    )


def test_the_fastest_of_ours_has_the_first_target_that_covers_its_case() -> None:
    case = [
        row("paged_attention", "B=64,page=16", *each) for each in (("triton", 9.0, 0.8, 2.0), ("cuda", 8.0, 0.9, 3.0))
    ]
    case.append(row("paged_attention", "B=64,page=16", "torch", 1.0, 1.0, 1.0))
    (found,) = targets.judged([case])
    assert (found.row.implementation, found.target.of_limit, found.is_met) == ("cuda", 0.88, True)


def test_both_parts_of_a_target_must_be_met() -> None:
    def met(share: float, ratio: float) -> bool:
        (found,) = targets.judged([[row("rope", "B=4", "cuda", 9.0, share, ratio)]])
        return found.is_met

    assert met(0.9, 1.0)
    assert not met(0.89, 1.0)
    assert not met(0.9, 0.99)


def test_a_case_without_a_target_is_left_out_and_a_missed_one_is_listed() -> None:
    cases = [[row("adam_step", "N=1", "cuda", 9.0, 0.1, 0.1)], [row("cumsum", "M=64,N=8", "cuda", 9.0, 0.73, 3.0)]]
    text = targets.part(cases)
    assert "Targets met: 0 of 1." in text
    assert "cumsum M=64 N=8 bfloat16" in text
