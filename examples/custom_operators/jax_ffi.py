"""A function in C++ as an operator of JAX: `jax.ffi` registers it, and XLA calls it within a compiled program.

    python examples/custom_operators/jax_ffi.py

The source includes XLA's header, which comes with JAX, and is compiled by the C++ compiler. On a GPU the handler gets
the stream (`Ctx<ffi::PlatformStream<cudaStream_t>>()`), launches a kernel on it, and is registered for "CUDA".
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

SOURCE = r"""
#include <cmath>
#include <cstdint>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

// out[i] = x[i] / (1 + exp(-beta x[i]))
static ffi::Error swish(float beta, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> out) {
    for (int64_t i = 0; i < int64_t(x.element_count()); ++i) {
        const float value = x.typed_data()[i];
        out->typed_data()[i] = value / (1.0f + std::exp(-beta * value));
    }
    return ffi::Error::Success();
}

using Buffer = ffi::Buffer<ffi::F32>;
XLA_FFI_DEFINE_HANDLER_SYMBOL(Swish, swish, ffi::Ffi::Bind().Attr<float>("beta").Arg<Buffer>().Ret<Buffer>());
"""


def build(folder: Path) -> None:
    """Compile the source and register its handler for the CPU."""
    source, library = folder / "swish.cc", folder / "swish.so"
    source.write_text(SOURCE)
    compiler = os.environ.get("CXX") or shutil.which("g++") or "c++"
    command = [
        compiler,
        "-O1",
        "-std=c++17",
        "-fPIC",
        "-shared",
        "-isystem",
        jax.ffi.include_dir(),
        "-o",
        library,
        source,
    ]
    subprocess.run(command, check=True)
    jax.ffi.register_ffi_target("swish", jax.ffi.pycapsule(ctypes.CDLL(str(library)).Swish), platform="cpu")


def swish(x: Array, beta: float) -> Array:
    """x / (1 + exp(-beta x)), for float32."""
    call = jax.ffi.ffi_call("swish", jax.ShapeDtypeStruct(x.shape, x.dtype), vmap_method="broadcast_all")
    found: Array = call(x, beta=np.float32(beta))  # a Python number would be a double
    return found


def main() -> None:
    jax.config.update("jax_platforms", "cpu")
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
        x = jax.random.normal(jax.random.key(0), (4, 250))
        expected = x * jax.nn.sigmoid(2.0 * x)
        compiled = jax.jit(lambda x: swish(x, 2.0) + 1.0)
        print("result equal:  ", bool(jnp.allclose(swish(x, 2.0), expected, atol=1e-6)))
        print("in a program:  ", bool(jnp.allclose(compiled(x), expected + 1.0, atol=1e-6)))
        print("for each row:  ", bool(jnp.allclose(jax.vmap(lambda row: swish(row, 2.0))(x), expected, atol=1e-6)))


if __name__ == "__main__":
    main()
