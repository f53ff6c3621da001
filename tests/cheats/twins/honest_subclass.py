"""Returns a subclass of torch's tensor that adds a name and changes nothing else."""

import torch

OPERATION = "matmul"
TWIN_OF = "patches_type_checks"
GPU = False


class Named(torch.Tensor):
    name = "product"


def matmul(a, b, *, precision="ieee"):
    return (a @ b).as_subclass(Named)
