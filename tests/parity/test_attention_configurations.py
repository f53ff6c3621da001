"""Attention in Gluon with every configuration, which the sizes of the other tests do not choose."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import pytest
import torch

from suite import ops
from suite.checking.check import check
from suite.checking.problem import Problem
from suite.implementations import builtin
from triton_kernels.attention._configs_gluon import HEAD_64_THREE, HEAD_64_TWO, HEAD_128, HEAD_256, Config

if TYPE_CHECKING:
    from suite.hardware.device import Device

OP = ops.get("attention")
GLUON = next(each for each in builtin.implementations("attention") if each.name == "triton/gluon")
CONFIGURATIONS = [  # D, causal, configuration
    (64, False, HEAD_64_TWO),
    (64, False, HEAD_64_THREE),
    (64, True, HEAD_64_TWO),
    (128, False, HEAD_128),
    (128, True, HEAD_128),
    (256, False, HEAD_256),
    (256, True, HEAD_256),
]
SIZES = [  # B, H, H_kv, S_q, S_k: a block of keys; masked blocks only; several tiles a program; fewer keys than queries
    (1, 2, 1, 50, 70),
    (2, 8, 2, 300, 517),
    (1, 140, 140, 256, 256),
    (1, 160, 160, 400, 384),
    (1, 2, 2, 1031, 1031),
]


@pytest.mark.gpu
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("D", "causal", "config"), CONFIGURATIONS)
def test_every_configuration_agrees(
    where: Device,
    monkeypatch: pytest.MonkeyPatch,
    size: tuple[int, ...],
    dtype: str,
    D: int,
    causal: bool,
    config: Config,
) -> None:
    obstacle = GLUON.obstacle(where)
    if obstacle is not None:
        pytest.skip(f"{obstacle[0]}: {obstacle[1]}")
    module = import_module("triton_kernels.attention.gluon")
    monkeypatch.setattr(module, "configuration", lambda *_: config)
    problem = Problem(OP.case((*size, D), dtype, causal=causal), 1, torch.device(where.type))
    found = check(lambda: module.attention, GLUON.adapter, problem)
    assert found.agrees, f"{found.reason} (error / bound {found.error_ratio:.3g})"
