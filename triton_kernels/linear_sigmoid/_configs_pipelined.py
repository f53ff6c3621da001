"""Configurations of pipelined.py: those of matmul, with a shorter short list."""

from typing import Any

import torch
import triton

from triton_kernels.matmul import _configs_pipelined
from triton_kernels.matmul._configs_pipelined import config, suitable

HALF_CONFIGS = [
    config(128, 256, 64, 8, 3),
    config(128, 256, 64, 8, 4),
    config(128, 128, 64, 8, 3),
    config(64, 64, 64, 4, 5),
    config(16, 128, 64, 4, 6),
    config(16, 64, 128, 4, 5),
]
TF32_CONFIGS = [
    config(128, 256, 32, 8, 3),
    config(128, 128, 32, 8, 4),
    config(64, 64, 32, 4, 5),
    config(16, 64, 64, 4, 5),
]
IEEE_CONFIGS = [
    config(128, 128, 16, 8, 3),
    config(64, 64, 16, 4, 3),
    config(16, 64, 32, 4, 4),
]
CONFIGS = HALF_CONFIGS + TF32_CONFIGS + IEEE_CONFIGS


def short_list(configs: list[triton.Config], args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that the autotuner times: those for the kind of arithmetic whose tiles suit the output."""
    if args["x_ptr"].dtype != torch.float32:
        of_unit = HALF_CONFIGS
    else:
        of_unit = TF32_CONFIGS if constants["PRECISION"] == "tf32" else IEEE_CONFIGS
    return suitable(of_unit, _as_matmul(args), 1)


def tuning_space(args: dict[str, Any], **constants: Any) -> list[triton.Config]:
    """The configurations that a search of several minutes times beyond the short list: those of `matmul`."""
    return _configs_pipelined.tuning_space(_as_matmul(args), **constants, PARTS=1)


def _as_matmul(args: dict[str, Any]) -> dict[str, Any]:
    return {**args, "a_ptr": args["x_ptr"]}
