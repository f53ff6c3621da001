"""A running state: half of the last one plus the next row"""

import torch
from jaxtyping import Float
from torch import Tensor

shapes = ["T=40,N=16"]
dtypes = ["float32"]
tolerance = (1e-5, 1e-5)


def reference(x: Float[Tensor, "T N"]) -> Tensor:
    """out[t] = out[t - 1] / 2 + x[t], from a state of zeros"""
    states = [x[0]]
    for row in x[1:]:
        states.append(states[-1] / 2 + row)
    return torch.stack(states)
