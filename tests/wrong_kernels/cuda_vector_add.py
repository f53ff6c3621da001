"""c = a + b in CUDA: see cuda_vector_add.cu."""

from pathlib import Path

from torch import Tensor

from cuda_ref import build
from wrong_kernels import Wrong

MISTAKES = {
    "rest_of_packs_dropped": Wrong("n / 4 packs are added, and not the elements after the last", "not finite", (1002,)),
    "added_to_old_output": Wrong("out += a + b, where out is not initialised", "not finite", (1000,)),
    "stride_of_a_for_b": Wrong("both inputs are read with a's stride", "not finite", (1025,), inputs="strided"),
    "grid_capped": Wrong("the grid has at most 8 blocks, and the kernel no loop", "not finite", (9000,)),
    "default_stream": Wrong("launched on the default stream, not on the caller's", "not finite", (100_000,), gpu=True),
}


def make(mistake: str):
    code = ["", *MISTAKES].index(mistake)

    def vector_add(a: Tensor, b: Tensor) -> Tensor:
        out = a.new_empty(a.shape)
        build.launch(
            Path(__file__).with_suffix(".cu"), "vector_add", a.device, a, b, out, len(a), a.stride(0), b.stride(0), code
        )
        return out

    return vector_add
