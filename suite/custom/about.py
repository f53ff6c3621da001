"""What a worker tells the parent of an operation that a user's file defines."""

from __future__ import annotations

from dataclasses import dataclass

from suite.problem.shape import Shape


@dataclass(frozen=True)
class Facts:
    """What is known of one case without running it.

    shape: the sizes, in the order of the operation's dimensions. operands: shapes of the inputs. operand_bytes: of all
    inputs. flops, bytes: those that the file states, or that were found; flops of 0 are unknown. multiplies: whether
    there are matrix products or convolutions, which may be computed in tf32.
    """

    shape: Shape
    dtype: str
    operands: tuple[Shape, ...]
    operand_bytes: int
    output_shape: Shape
    output_dtype: str
    flops: int
    bytes: int
    multiplies: bool


@dataclass(frozen=True)
class About:
    """The operation as a whole, and the cases that were asked for.

    entry: what a kernel's file defines. signature: how that is called. dims: names of the sizes. defaults: sizes to run
    if none are given; the first has those that `--shape` leaves out. dtypes: element types; beyond: those that run only
    if they are named. framework: what the reference is written in.
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
