"""Adds, with every special value as IEEE 754 has it."""

OPERATION = "vector_add"
TWIN_OF = "narrow_not_a_number"
GPU = False


def vector_add(a, b):
    return a + b
