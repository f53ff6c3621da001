"""c = a + b in PyTorch: the addition is right, the rest of the contract is not kept."""

import torch
from torch import Tensor

from wrong_kernels import Wrong

MISTAKES = {
    "buffer_reused": Wrong("the output is allocated once for each size and returned again", "same buffer", (1000,)),
    "first_result_kept": Wrong("the result is remembered by the size of the inputs", "value", (1000,)),
    "added_into_a": Wrong("a += b; return a", "aliases input", (1000,)),
    "a_borrowed": Wrong("adds into a, copies, and subtracts again: the roundings stay", "inputs changed", (1000,)),
    "result_in_float32": Wrong("bfloat16 inputs are widened, and the sum is left so", "dtype", (1000,), "bfloat16"),
    "result_as_column": Wrong("the result is (N, 1)", "shape", (1000,)),
    "saturated": Wrong(
        "sums beyond the largest float16 are clamped to it", "value", (1025,), "float16", inputs="largest"
    ),
    "nan_replaced": Wrong("nan_to_num hides NaN", "value", (1025,), inputs="nan"),
    "another_stream": Wrong("runs on a stream of its own, which nobody waits for", "unfinished", (100_000,), gpu=True),
    "result_on_the_host": Wrong("computed by the CPU and left there", "device", (1000,), gpu=True),
}


def make(mistake: str):
    kept: dict[torch.Size, Tensor] = {}

    def vector_add(a: Tensor, b: Tensor) -> Tensor:
        if mistake == "buffer_reused":
            out = kept.setdefault(a.shape, a.new_empty(a.shape))
        elif mistake == "added_into_a":
            out = a
        else:
            out = a.new_empty(a.shape)

        if mistake == "first_result_kept":
            return kept.setdefault(a.shape, a + b).clone()
        if mistake == "a_borrowed":
            out = a.add_(b).clone()
            a.sub_(b)
            return out
        if mistake == "result_in_float32":
            return a.float() + b.float()
        if mistake == "another_stream":
            with torch.cuda.stream(torch.cuda.Stream()):
                torch.cuda._sleep(10_000_000)  # or whatever else takes long there
                return a + b
        if mistake == "result_on_the_host":
            return a.cpu() + b.cpu()

        torch.add(a, b, out=out)
        if mistake == "saturated":
            largest = torch.finfo(a.dtype).max
            out.clamp_(-largest, largest)
        if mistake == "nan_replaced":
            out.nan_to_num_()
        return out[:, None] if mistake == "result_as_column" else out

    return vector_add
