"""Cases: labels, options at their plain values and at others, JSON."""

from __future__ import annotations

from dataclasses import replace

import pytest

from suite import ops
from suite.core.errors import UsageError
from suite.problem.case import Case
from suite.problem.option import Option


def test_the_label_names_what_differs_from_the_plain_problem() -> None:
    attention, matmul = ops.get("attention"), ops.get("matmul")
    assert attention.case((1, 1, 1, 2, 2, 64), causal=True).label == "B=1,H=1,H_kv=1,S_q=2,S_k=2,D=64,causal"
    assert attention.case((1, 1, 1, 2, 2, 64), causal=False).label == "B=1,H=1,H_kv=1,S_q=2,S_k=2,D=64"
    assert matmul.case((1, 2, 3), layout="nt", inputs="nan").label == "M=1,N=2,K=3,layout=nt,inputs=nan"
    assert matmul.case((1, 2, 3), layout="nn").label == "M=1,N=2,K=3"


def test_a_plain_value_and_none_are_the_same_case() -> None:
    op = ops.get("matmul")
    assert op.case((1, 2, 3)) == op.case((1, 2, 3), layout="nn") == op.case((1, 2, 3), layout=None)
    assert op.case((1, 2, 3)).options == ()
    assert op.case((1, 2, 3), layout="tt").option("layout", "nn") == "tt"
    assert op.case((1, 2, 3)).option("layout", "nn") == "nn"


def test_an_option_may_have_another_default_for_a_dtype() -> None:
    op = ops.get("matmul")
    assert op.case((1, 2, 3), "float8_e4m3fn").option("layout", "nn") == "nt"
    plain = op.case((1, 2, 3), "float8_e4m3fn", layout="nn")
    assert plain.option("layout", "nn") == "nn"
    assert op.with_options(plain).option("layout", "nn") == "nn"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [({"causal": True}, "matmul has no option 'causal'"), ({"layout": "zz"}, "matmul: layout 'zz' is none of nn, tn")],
    ids=["option", "value"],
)
def test_options_that_do_not_exist_are_refused(options: dict[str, bool | str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        ops.get("matmul").case((1, 2, 3), **options)


def test_a_case_without_options_and_inputs_in_its_json_is_a_plain_one() -> None:
    case = ops.get("sigmoid").case((5,))
    few = {key: value for key, value in case.to_json().items() if key not in ("inputs", "options")}
    assert Case.from_json(few) == case
    assert replace(case, inputs="nan").label == "N=5,inputs=nan"


def test_options_are_spelled_as_flags() -> None:
    assert Option("causal", (False, True), "about").flag == "--causal/--no-causal"
    assert Option("k_split", ("1", "2"), "about").flag == "--k-split"
