"""Sets torch's number of threads for the time of its call, and puts back what was there."""

import torch

OPERATION = "matmul"
TWIN_OF = "slows_to_one_thread"
GPU = False


def matmul(a, b, *, precision="ieee"):
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, before // 2))
    try:
        return a @ b
    finally:
        torch.set_num_threads(before)
