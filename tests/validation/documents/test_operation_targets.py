"""The target of each case, and the implementation that it is for."""

from __future__ import annotations

from suite.results.row import Mode, Row, Status
from validation.documents import operation_targets as targets


def row(operation: str, case: str, implementation: str, ratio: float, vendor: str = "") -> Row:
    return Row(
        operation=operation,
        case=case,
        dtype="bfloat16",
        precision="ieee",
        implementation=implementation,
        execution=Mode.NATIVE,
        status=Status.OK,
        vs_best=ratio,
        vendor=vendor,
    )


def test_the_first_target_of_a_case_counts_and_a_line_may_have_its_own() -> None:
    long = [row("softmax", "M=1024,N=131072", each, ratio) for each, ratio in (("triton", 1.1), ("cuda", 1.9))]
    assert [(each.implementation, target.least) for each, target in targets.judged(long)] == [("cuda", 1.7)]
    layer = [row("conv2d", "N=256,R=3,S=3", each, ratio) for each, ratio in (("triton/auto", 0.9), ("cuda/wgmma", 1.1))]
    layer.append(row("conv2d", "N=256,R=3,S=3", "torch", 1.5, vendor="cuDNN"))
    found = [(each.implementation, target.least) for each, target in targets.judged(layer)]
    assert found == [("cuda/wgmma", 1.0), ("triton/auto", 0.85)]


def test_a_case_without_a_target_is_left_out() -> None:
    case = [row("linear_sigmoid", "M=4096,N=14336,K=4096", "triton", 0.9)]
    assert list(targets.judged(case)) == []
