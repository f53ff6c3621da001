"""matmul: C = A B, shapes (M, K) x (K, N), any strides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from suite import check
from suite.op import DTYPES, Case, Op
from suite.ops import _draw


class Matmul(Op):
    name = "matmul"
    formula = "C[i, j] = sum over k of A[i, k] B[k, j]"
    dims = ("M", "N", "K")
    layouts = ("nn", "tn", "nt", "tt")
    sweep = tuple((n, n, n) for n in (32, 64, 128, 256, 512, 1024, 2048, 4096))
    ragged = ((1, 1, 1), (1, 129, 65), (65, 1, 127), (37, 41, 1), (64, 64, 64), (127, 65, 33), (129, 257, 100))

    def precisions(self, dtype: str) -> tuple[str, ...]:
        return ("ieee", "tf32") if dtype == "float32" else ("ieee",)

    def default_cases(self, device_type: str) -> list[Case]:
        """On a CPU only `ieee`: tf32 is an arithmetic of NVIDIA's tensor cores; ask for it with `--precision tf32`."""
        if device_type != "cuda":
            return [self.case((512, 512, 512), dtype) for dtype in DTYPES]
        kinds = [(dtype, precision) for dtype in DTYPES for precision in self.precisions(dtype)]
        return [self.case((size,) * 3, dtype, precision) for size in (1024, 2048, 4096) for dtype, precision in kinds]

    def make_inputs(self, case: Case, seed: int, device: torch.device) -> tuple[torch.Tensor, ...]:
        source = _draw.generator(seed, device)
        m, n, k = case.shape
        a_layout, b_layout = tuple(case.layout or "nn")
        a = _draw.normal((m, k), case.dtype, source, transposed=a_layout == "t")
        b = _draw.normal((k, n), case.dtype, source, transposed=b_layout == "t")
        return a, b

    def arguments(self, case: Case) -> dict[str, Any]:
        return {"precision": case.precision}

    def truth(self, inputs: tuple[torch.Tensor, ...], case: Case) -> Iterator[check.Truth]:
        m, n, k = case.shape
        b = inputs[1].double()
        b_squared = b.square()
        for rows, columns in _draw.blocks((m, n)):
            a = inputs[0][rows].double()
            value = a @ b[:, columns]
            spread = (a.square() @ b_squared[:, columns]).sqrt()
            limit = check.matmul_limit(value, spread, k, m * n, case.dtype, case.precision)
            yield check.Truth((rows, columns), value, limit)

    def output_shape(self, case: Case) -> tuple[int, ...]:
        return (case["M"], case["N"])

    def flops(self, case: Case) -> int:
        return 2 * case["M"] * case["N"] * case["K"]

    def bytes(self, case: Case) -> int:
        m, n, k = case.shape
        return (m * k + k * n + m * n) * case.element_bytes

    def workspace_bytes(self, case: Case) -> int:
        m, n, k = case.shape
        rows = min(m, max(1, _draw.BLOCK_ELEMENTS // n))
        return 8 * (2 * k * n + 2 * rows * k) + _draw.block_bytes((m, n))


OP = Matmul()
