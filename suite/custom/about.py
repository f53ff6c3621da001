"""The description of a user's operation that a worker sends to the parent process."""

from __future__ import annotations

from dataclasses import dataclass

from suite.problem.shape import Shape


@dataclass(frozen=True)
class ResultForm:
    """The form that a result must have. The name is empty if there is one result."""

    name: str
    shape: Shape
    dtype: str


@dataclass(frozen=True)
class Facts:
    """Properties of one case that need no run.

    shape: the sizes, in the order of the operation's dimensions. operands: shapes of the inputs. operand_bytes: bytes
    of all inputs. results: in the order of `outputs.leaves`. flops, bytes: as the file states them, else as counted; 0
    flops means unknown. multiplies: true if there are matrix products or convolutions, which may be computed in tf32.
    """

    shape: Shape
    dtype: str
    operands: tuple[Shape, ...]
    operand_bytes: int
    results: tuple[ResultForm, ...]
    flops: int
    bytes: int
    multiplies: bool


@dataclass(frozen=True)
class About:
    """The operation as a whole, and the requested cases.

    entry: name that a kernel's file must define. signature: how it is called. dims: names of the sizes. defaults: sizes
    to run if none are given; the first completes a `--shape` that leaves some out. dtypes: element types. beyond:
    element types that run only if they are named. framework: the framework of the reference. weaknesses: sentences on
    inputs and parameters that change nothing. unexamined: the number of those that were not tried.
    """

    name: str
    entry: str
    signature: str
    formula: str
    dims: tuple[str, ...]
    defaults: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    beyond: tuple[str, ...]
    framework: str
    facts: tuple[Facts, ...] = ()
    weaknesses: tuple[str, ...] = ()
    unexamined: int = 0
