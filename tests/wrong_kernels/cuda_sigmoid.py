"""y = 1 / (1 + exp(-x)) in CUDA: see cuda_sigmoid.cu."""

from pathlib import Path

from torch import Tensor

from cuda_ref import build
from wrong_kernels import Wrong

MISTAKES = {
    "odd_element_dropped": Wrong(
        "two float16 a thread, and not the last of an odd number", "not finite", (1001,), "float16"
    ),
    "exponential_in_float16": Wrong("the exponential is rounded to float16", "value", (1000,), "float16"),
    "nan_clamped": Wrong(
        "fmaxf(x, -80) against overflow turns NaN into -80", "value", (1025,), "float16", inputs="nan"
    ),
    "minus_forgotten": Wrong("exp(x) for exp(-x): 1 - y", "value", (1000,), "float16"),
    "offset_in_32_bits": Wrong(
        "the offset in bytes is an unsigned int: from 4 GiB on it starts again at 0",
        "not finite",
        (2**31 + 1000,),
        "float16",
        gpu=True,
    ),
}


def make(mistake: str):
    code = ["", *MISTAKES].index(mistake)

    def sigmoid(x: Tensor) -> Tensor:
        y = x.new_empty(x.shape)
        build.launch(Path(__file__).with_suffix(".cu"), "sigmoid", x.device, x, y, x.numel(), code)
        return y

    return sigmoid
