"""The hint to a wrong file is about its kind of fault, never about another one."""

from __future__ import annotations

import pytest

from suite.exercises import catalogue
from suite.exercises.judge import first_message, hint_for

TAIL = catalogue.find("cuda/03")
OWN = TAIL.hint


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        ("race: writes byte 4 of row, which thread (1, 0, 0) has read at a.cu:1", "no barrier orders them"),
        (
            "race: reads index 0 of out, which thread (0, 0, 0) of another block has written",
            f"blocks run in any order, and no barrier orders them: {OWN}",
        ),
        ("a.cu:9: reads index 1000 of a, which has 1000 elements of 4 bytes", OWN),
        (
            "waits in __syncthreads on line 3, but thread (0, 0, 0) of the same warp has passed",
            "never reach the barrier",
        ),
        ("k: program (0, 0, 0), a.py:2: stores index 8 of out_ptr: its mask is true there", "an offset is wrong"),
        ("a.cu: line 12: 'float4' at address 0x55, which is no multiple of 16", "does the index count vectors"),
        ("TypeError: 'int' object is not iterable (a.py:18)", "a pointer has no [index]"),
        ("AssertionError: cannot cast [94838383851008 94838383851012", "tl.load(pointers) reads values"),
        ("type: the result is a NoneType, not a jax.Array (N=1000)", "without `return`"),
        ("type: the result is a list, not a jax.Array (N=1000)", "states shape and type"),
        ("aliases input: the result lies in the memory of argument 1", "returns an argument as it is"),
        ("type: the result is a function, not a jax.Array (N=1000)", "made and not called"),
        ("NameError: name 'off' is not defined (a.py:18)", "Python names the line"),
        ("does not compile: a.cu:9:15: error: expected ';'", "line and column"),
        ("value: at [3] got 1, expected 2", OWN),
    ],
)
def test_the_hint_is_about_the_kind_of_the_fault(reason: str, hint: str) -> None:
    assert hint in hint_for(reason, TAIL)


@pytest.mark.parametrize(
    ("reason", "first"),
    [
        (
            "BuildError: a.cu: the C++ compiler failed for checked: a.cu: In function 'void k(float*)': "
            "a.cu:9:22: error: expected ';' before '}' token 9 | out[i] = x[i] | ^ | ; 10 | } a.cu:12:1: error: more",
            "does not compile: a.cu:9:22: error: expected ';' before '}' token",
        ),
        (
            "BuildError: nvcc failed for sm_90a: out of disk space",
            "BuildError: nvcc failed for sm_90a: out of disk space",
        ),
        ("value: at [3] got 1, expected 2", "value: at [3] got 1, expected 2"),
    ],
)
def test_of_a_compiler_only_the_first_error_is_shown(reason: str, first: str) -> None:
    assert first_message(reason) == first
