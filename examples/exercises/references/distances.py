"""The squared distance of each row of a to each row of b"""

from jaxtyping import Float
from torch import Tensor

shapes = ["M=20,N=30,D=3"]
dtypes = ["float32"]
tolerance = (1e-5, 1e-5)


def reference(a: Float[Tensor, "M D"], b: Float[Tensor, "N D"]) -> Tensor:
    """out[m, n] = sum over d of (a[m, d] - b[n, d])^2"""
    return ((a[:, None, :] - b[None, :, :]) ** 2).sum(dim=2)
