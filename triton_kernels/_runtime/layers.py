"""Several layers of LSTM cells, computed one after the other by a function of one layer.

This file is the same in cuda_ref/ and triton_kernels/. Edit cuda_ref/_runtime/layers.py and copy it to the other; a
test compares them.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def each_layer(
    layer: Callable[..., tuple[Tensor, Tensor, Tensor]],
    x: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, h0: Tensor, c0: Tensor, w_ih_upper: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """y of the last layer, and h and c of all layers. The y of a layer is the x of the next."""
    y, h, c = x, [], []
    for operands in zip((w_ih, *w_ih_upper), w_hh, bias, h0, c0, strict=True):
        y, last_h, last_c = layer(y, *operands)
        h.append(last_h)
        c.append(last_c)
    return y, torch.stack(h), torch.stack(c)


def layers_config(
    config: Callable[..., str],
    x: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, h0: Tensor, c0: Tensor, w_ih_upper: Tensor,
) -> str:  # fmt: skip
    """The kernels of each layer, by a function of one layer."""
    y = x.new_empty(*x.shape[:2], h0.shape[2])
    upper = [config(y, *operands) for operands in zip(w_ih_upper, w_hh[1:], bias[1:], h0[1:], c0[1:], strict=True)]
    return "; ".join(filter(None, (config(x, w_ih, w_hh[0], bias[0], h0[0], c0[0]), *upper)))
