"""Process-wide state that a file can change: random generators and settings of frameworks.

A file's own random numbers go on from call to call: random states are compared, and never restored. If they were, a
kernel that is wrong by chance would be judged on the same numbers again and again.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

JAX_SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_disable_jit", "jax_debug_nans")


@dataclass(frozen=True)
class Setting:
    """One piece of state: `get` returns it as a value that can be compared, `put` restores such a value.

    `put` is None for a random state.
    """

    what: str
    get: Callable[[], Any]
    put: Callable[[Any], object] | None


def seed_from_system() -> None:
    """Seed the generators of Python and of the imported frameworks from the operating system.

    Processes that are forked from one process would draw the same numbers otherwise.
    """
    random.seed()
    if "numpy" in sys.modules:
        import numpy as np

        np.random.seed(None)
    if "torch" in sys.modules:
        import torch

        torch.seed()


def settings() -> list[Setting]:
    """The state of Python's random module and of the imported frameworks. Imports no framework."""
    found = [Setting("the random state of random", random.getstate, None)]
    for module, of_framework in (("numpy", _numpy_settings), ("torch", _torch_settings), ("jax", _jax_settings)):
        if module in sys.modules:
            found += of_framework()
    return found


def _numpy_settings() -> list[Setting]:
    import numpy as np

    def get() -> tuple[Any, ...]:
        state: Any = np.random.get_state(legacy=True)
        name, key, *rest = state
        return (name, key.tobytes(), *rest)

    return [
        Setting("the random state of numpy", get, None),
        Setting("numpy's error handling", np.geterr, lambda before: np.seterr(**before)),
    ]


def _torch_settings() -> list[Setting]:
    import torch

    def generator(where: str, get: Callable[[], torch.Tensor]) -> Setting:
        return Setting(f"the random state of torch{where}", lambda: get().numpy().tobytes(), None)

    def put_device(before: torch.device) -> None:
        torch.set_default_device(None if before.type == "cpu" else before)

    found = [
        Setting("torch's default device", torch.get_default_device, put_device),
        Setting("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
        Setting("torch's number of threads", torch.get_num_threads, torch.set_num_threads),
        Setting("whether torch records gradients", torch.is_grad_enabled, torch.set_grad_enabled),
        Setting(
            "whether torch's algorithms are deterministic",
            torch.are_deterministic_algorithms_enabled,
            torch.use_deterministic_algorithms,
        ),
        generator("", torch.get_rng_state),
        Setting(
            "torch's float32 matmul precision",
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
        ),
    ]
    for where, flags in (("a GPU", torch.backends.cuda.matmul), ("a CPU", torch.backends.mkldnn.matmul)):
        if hasattr(flags, "fp32_precision"):
            found.append(
                Setting(
                    f"torch's float32 matmul precision on {where}",
                    lambda flags=flags: flags.fp32_precision,  # type: ignore[misc]
                    lambda before, flags=flags: setattr(flags, "fp32_precision", before),  # type: ignore[misc]
                )
            )
    found += _torch_switches()
    if torch.cuda.is_initialized():
        found.append(generator(" on the GPU", torch.cuda.get_rng_state))
    return found


def _torch_switches() -> list[Setting]:
    """Torch's treatment of subnormal numbers, and the vendor kernels that it may use."""
    import torch

    from suite.numerics import subnormals

    cuda, mkldnn, cudnn = torch.backends.cuda, torch.backends.mkldnn, torch.backends.cudnn
    found = [
        Setting("whether torch flushes subnormal numbers", subnormals.thread_flushes, torch.set_flush_denormal),
        Setting("torch's library for matrix products", cuda.preferred_blas_library, cuda.preferred_blas_library),
    ]
    for kernels, get, put in (
        ("FlashAttention", cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
        ("memory-efficient attention", cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
        ("plain attention", cuda.math_sdp_enabled, cuda.enable_math_sdp),
        ("cuDNN's attention", cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
    ):
        found.append(Setting(f"whether torch uses {kernels}", get, put))
    for what, flags, name in (
        ("whether torch uses oneDNN", mkldnn, "enabled"),
        ("whether torch uses cuDNN", cudnn, "enabled"),
        ("whether cuDNN tries its algorithms", cudnn, "benchmark"),
        ("whether cuDNN is deterministic", cudnn, "deterministic"),
    ):
        found.append(
            Setting(
                what,
                lambda flags=flags, name=name: getattr(flags, name),  # type: ignore[misc]
                lambda before, flags=flags, name=name: setattr(flags, name, before),  # type: ignore[misc]
            )
        )
    return found


def _jax_settings() -> list[Setting]:
    import jax

    return [
        Setting(
            f"jax's setting {name}",
            lambda name=name: getattr(jax.config, name),  # type: ignore[misc]
            lambda before, name=name: jax.config.update(name, before),  # type: ignore[misc]
        )
        for name in JAX_SETTINGS
    ]
