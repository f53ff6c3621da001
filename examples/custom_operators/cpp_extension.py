"""An operator in C++: `torch.utils.cpp_extension` compiles it, and TORCH_LIBRARY registers it with PyTorch.

    python examples/custom_operators/cpp_extension.py

The first run compiles for about half a minute (it needs a C++ compiler and ninja); later ones load what is built. A
CUDA version is a second TORCH_LIBRARY_IMPL, for the key CUDA, in a .cu source of the same call.
"""

from __future__ import annotations

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>

// out[i] = x[i] / (1 + exp(-x[i])), for a contiguous float32 tensor on the CPU.
at::Tensor silu(const at::Tensor& x) {
    TORCH_CHECK(x.scalar_type() == at::kFloat, "silu: x must be float32; got ", x.scalar_type());
    const at::Tensor given = x.contiguous();
    at::Tensor out = at::empty_like(given);
    const float* from = given.const_data_ptr<float>();
    float* to = out.mutable_data_ptr<float>();
    for (int64_t i = 0; i < given.numel(); ++i) to[i] = from[i] / (1.0f + std::exp(-from[i]));
    return out;
}

TORCH_LIBRARY(cpp_examples, library) { library.def("silu(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(cpp_examples, CPU, library) { library.impl("silu", &silu); }
"""


def build() -> None:
    """Compile and load the source: the operator is then `torch.ops.cpp_examples.silu`."""
    load_inline("cpp_examples", SOURCE, is_python_module=False, no_implicit_headers=True, extra_cflags=["-O1"])


def main() -> None:
    build()
    x = torch.randn(1000)
    print("result equal:", torch.allclose(torch.ops.cpp_examples.silu(x), torch.nn.functional.silu(x), atol=1e-6))
    try:
        torch.ops.cpp_examples.silu(x.double())
    except RuntimeError as error:
        print("refused:     ", str(error).splitlines()[0])


if __name__ == "__main__":
    main()
