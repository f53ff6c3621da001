"""Keeps its last eight results and copies of them, to look whether anybody has written to them."""

import collections

import torch

OPERATION = "vector_add"
TWIN_OF = "remembers_a_sum"
GPU = False

kept = collections.deque(maxlen=8)


def vector_add(a, b):
    result = a + b
    assert all(torch.equal(*(x.view(torch.uint8) for x in pair)) for pair in kept)
    kept.append((result, result.clone()))
    return result
