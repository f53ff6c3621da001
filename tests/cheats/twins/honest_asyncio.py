"""Runs an event loop in which two tasks compute the halves of the columns."""

import asyncio

import torch

OPERATION = "matmul"
TWIN_OF = "slows_by_the_interpreters_lock"
GPU = False


async def both(a, b):
    left, right = b.tensor_split(2, dim=1)
    return await asyncio.gather(asyncio.to_thread(torch.matmul, a, left), asyncio.to_thread(torch.matmul, a, right))


def matmul(a, b, *, precision="ieee"):
    return torch.cat(asyncio.run(both(a, b)), dim=1)
