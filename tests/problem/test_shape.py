"""Reading --shape: sizes by name, in any order; what cannot be used says why in one line."""

from __future__ import annotations

import pytest

from suite import ops
from suite.core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("M=512,N=512", "missing K"),
        ("M=512,N=512,K=512,X=3", "unknown dimension 'X'"),
        ("M=512,N=512,K=-0x1", "K='-0x1' is not a whole number"),
        ("M=512,N=-5,K=512", "N=-5 must be at least 0"),
        ("M=512,N=many,K=512", "N='many' is not a whole number"),
        ("M=512,N=1.5,K=512", "N='1.5' is not a whole number"),
        ("M=512,N=,K=512", "N='' is not a whole number"),
        ("M=512,M=512,N=1,K=1", "M is given twice"),
        ("512x512x512", "is not DIM=SIZE"),
        ("", "is not DIM=SIZE"),
        ("M=" + "9" * 30 + ",N=1,K=1", "is not a whole number"),
    ],
)
def test_a_shape_that_cannot_be_used_says_what_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        ops.get("matmul").parse_shape(text)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_shape_is_read_in_any_order_and_with_spaces() -> None:
    assert ops.get("matmul").parse_shape(" K=3, M=1,N = 2") == (1, 2, 3)


def test_an_operation_refuses_sizes_that_contradict_each_other() -> None:
    with pytest.raises(UsageError, match=r"H=6 must be a multiple of H_kv=4"):
        ops.get("attention").parse_shape("B=1,H=6,H_kv=4,S_q=8,S_k=8,D=64")
