"""Compares two ways in which `triton/auto` of matmul may choose: the fitted models, and rules with a short list.

python -m validation.triton_choice --by model --seed 301 --out model.csv
python -m validation.triton_choice --by list --seed 301 --out list.csv
python -m validation.triton_choice --read model.csv list.csv

The rules depend only on the number of multiprocessors; the autotuner times the configurations of the short list, or
takes a tuned one. The models can be removed if the list is within 3% in the geometric mean, and no worse in its worst
shape.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor

from validation import matmul_lines, matmul_shapes

LINE = "triton/auto"


def choose(model: Callable[..., Any], a: Tensor, b: Tensor, precision: str) -> Any:
    """Replace `auto.choose` by rules: few rows, then TMA where it needs no copies, then parts that fill the device."""
    from triton_kernels._common.tma import find_tma
    from triton_kernels._runtime.configs import device
    from triton_kernels.matmul import _few, auto, parts, pipelined

    (M, K), N, processors = a.shape, b.shape[1], device(a).multiprocessors
    if a.element_size() != 2:
        return model(a, b, precision)
    count = parts.part_count(M, N, K, processors)
    along, across = b.stride() if M <= N else a.stride()[::-1]  # of the larger operand, along K and across C
    if min(M, N) <= 4 and 1 in (along, across):
        columns = 64 if across == 1 else 8
        programs = triton.cdiv(max(M, N), columns)
        return auto.Choice("few", few=_few.Few(columns, 4, max(1, min(64, 2 * processors // programs, K // 256))))
    odd = pipelined.alignment(a) == 1 or pipelined.alignment(b) == 1
    readable = find_tma(a, 2) is not None and find_tma(b, 2) is not None
    large = M * N * K >= 2**28
    if torch.cuda.get_device_capability(a.device)[0] == 9 and N > 32 and K >= 256 and (readable or large):
        return auto.Choice("gluon")
    padded = odd and min(M, N, K) >= 32 and M * N * K >= 2**22
    return auto.Choice("parts" if count > 1 else "pipelined", count, padded)


def gluon_parts(a: Tensor, b: Tensor, biased: bool) -> tuple[int, bool]:
    """Replace `gluon._parts_and_order` by rules: parts that fill the device, and the transpose for at most 64 rows."""
    from triton_kernels._runtime.configs import device
    from triton_kernels.matmul import parts

    (M, K), N = a.shape, b.shape[1]
    if a.element_size() != 2:
        return K, False
    count = 1 if biased else parts.part_count(M, N, K, device(a).multiprocessors)
    return K if count == 1 else parts.part_terms(K, count), M <= 64 < N and (not biased or N % 8 == 0)


def pointer_tiles(configs: Any, args: dict[str, Any], **constants: Any) -> Any:
    """Return the short list of `pipelined` and `parts` without the model: tiles that suit C and fill the device."""
    from triton_kernels.matmul import _configs_pipelined as short

    if args["a_ptr"].element_size() != 2:
        return short.short_list(configs, args, **constants)
    return short.suitable(short.HALF_CONFIGS, args, short.parts(args))


def gluon_tiles(configs: Any, args: dict[str, Any], **constants: Any) -> Any:
    """Return the short list of `gluon` without the model."""
    from triton_kernels.matmul import _configs_gluon as short

    if args["a_desc"].base.element_size() != 2:
        return short.short_list(configs, args, **constants)
    return short._suitable(short.HALF_CONFIGS, args)


def use_list() -> None:
    """Replace the fitted models by the rules in this process."""
    from triton_kernels.matmul import auto, gluon, parts, pipelined

    auto.choose = partial(choose, auto.choose)
    gluon._parts_and_order = gluon_parts
    pipelined.pipelined_matmul_kernel.early_config_prune = pointer_tiles
    parts.parts_matmul_kernel.early_config_prune = pointer_tiles
    gluon.gluon_matmul_kernel.early_config_prune = gluon_tiles


def compare(model: Path, rules: Path) -> str:
    """Format the speed of the list over that of the model, and both over the vendor's, for shapes in both files."""
    timed = [{(t.M, t.N, t.K, t.kind): t for t in matmul_lines.read(path)} for path in (model, rules)]
    both = sorted(timed[0].keys() & timed[1].keys())
    ratios = [[t[shape].ratio(LINE) for shape in both] for t in timed]
    gains = [b / a for a, b in zip(*ratios, strict=True)]
    mean = math.exp(statistics.fmean(map(math.log, gains)))
    worst = min(range(len(both)), key=gains.__getitem__)
    lines = [f"{len(both)} shapes, of cuBLAS: geometric mean (worst)"]
    lines += [f"{name}  {matmul_lines.mean_and_worst(r)}" for name, r in zip(("model", "list"), ratios, strict=True)]
    return "\n".join([*lines, f"list over model: {mean:.3f}; least {gains[worst]:.3f}: {both[worst]}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by", choices=("model", "list"), default="model", help="what chooses (model)")
    matmul_shapes.add_arguments(parser, draws=60)
    parser.add_argument("--seconds", type=float, default=600, help="no new case is begun after this time (600)")
    parser.add_argument("--out", type=Path, default=Path("choice.csv"), help="CSV file to write (choice.csv)")
    parser.add_argument("--read", type=Path, nargs=2, help="compare two such files: the model's and the list's")
    given = parser.parse_args()
    if given.read:
        print(compare(*given.read))
        return 0
    if given.by == "list":
        use_list()
    layout = "nt" if given.served else None
    cases = [matmul_lines.OP.case(shape, "bfloat16", layout=layout) for shape in matmul_shapes.chosen(given)]
    matmul_lines.measure(cases, [LINE], given.out, matmul_lines.ROUNDS, given.seconds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
