"""docs/lab/convolution.md: the layers of the committed table."""

from __future__ import annotations

import re
from collections.abc import Sequence

from validation.documents import ROOT
from validation.documents.rows import find, rate, row, us, us_and_ratio
from validation.documents.tables import Line, with_tables

PAGE = ROOT / "docs" / "lab" / "convolution.md"
ARITHMETIC = {"tf32": ("float32", "tf32")}


def case_of(layer: str) -> str:
    """The case of a layer such as `7 x 7, 224 x 224, 3 to 64, stride 2`."""
    window, size, channels, outputs = re.findall(r"\d+ x (\d+), \d+ x (\d+), (\d+) to (\d+)", layer)[0]
    stride = re.findall(r"stride (\d+)", layer) or ["1"]
    sizes = f"N=256,H={size},W={size},C={channels},K={outputs},R={window},S={window}"
    return f"{sizes},stride={stride[0]},padding={int(window) // 2}"


def layers(table: Sequence[Line]) -> None:
    for line in table:
        case, kind = case_of(line["layer"]), line["arithmetic"]
        dtype, precision = ARITHMETIC.get(kind, (kind, "ieee"))
        cudnn = row("conv2d", "torch", case, dtype, precision)
        line |= {"cuDNN": us(cudnn), "TFLOP/s": rate(cudnn)}
        for head in list(line)[4:]:
            line[head] = us_and_ratio(find("conv2d", head.strip("`"), case, dtype, precision))


def filled(text: str) -> str:
    """Return the page with the numbers of the results."""
    return with_tables(text, {frozenset({"layer", "arithmetic"}): layers})
