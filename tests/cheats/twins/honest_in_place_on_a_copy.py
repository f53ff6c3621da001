"""Adds in place to a copy of its first operand."""

OPERATION = "vector_add"
TWIN_OF = "remembers_a_sum"
GPU = False


def vector_add(a, b):
    return a.clone().add_(b)
