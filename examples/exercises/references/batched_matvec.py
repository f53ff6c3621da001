"""A product of a matrix and a vector for each element of a batch"""

from jaxtyping import Float
from torch import Tensor

shapes = ["B=7,M=20,N=30"]
dtypes = ["float32"]
tolerance = (1e-6, 1e-4)


def reference(a: Float[Tensor, "B M N"], x: Float[Tensor, "B N"]) -> Tensor:
    """out[b] = a[b] x[b]"""
    return (a @ x[:, :, None])[:, :, 0]
