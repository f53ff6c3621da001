"""Draws the figures of the course.

    python validation/course_figures.py --write                   # docs/learn/img, with the committed results
    python validation/course_figures.py --here --out my_figures   # the memories of this machine's GPU

With --png each figure is also written as a picture, to be looked at.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from suite.hardware import cuda_driver, measured_peaks  # noqa: E402
from suite.hardware.device import resolve  # noqa: E402
from suite.results.csv_file import read_rows  # noqa: E402
from suite.results.row import Status  # noqa: E402
from validation.figures import chips, memory, ring, roofline, threads, tiles  # noqa: E402

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IMAGES = ROOT / "docs" / "learn" / "img"
RESULTS = ROOT / "results" / "nvidia-h200"
DEVICE = ROOT / "results" / "nvidia-h100-80gb-hbm3" / "course" / "device.json"
"""A GPU as `cuda_driver.devices` describes it, kept for the figure of its memories."""
SHOWN = (
    ("vector_add", "N=268435456", "bfloat16", ("cuda",)),
    ("softmax", "M=32768,N=4096", "bfloat16", ("cuda",)),
    ("matmul", "M=4096,N=4096,K=4096", "float32", ("cuda", "cuda/tiled", "cuda/register_tiles", "cuda/async_copies")),
    ("matmul", "M=4096,N=4096,K=4096", "bfloat16", ("cuda/tma_wgmma", "cuda/wgmma")),
)
"""The rows of the roofline: operation, case, dtype, implementations."""


def points() -> Iterator[roofline.Point]:
    """The rows of SHOWN in the committed results."""
    for operation, case, dtype, names in SHOWN:
        found = {
            row.implementation: row
            for row in read_rows(RESULTS / f"{operation}.csv")
            if (row.case, row.dtype, row.precision, row.status) == (case, dtype, "ieee", Status.OK)
        }
        for row in (found[name] for name in names if name in found):
            flops, size = float(row.flops or 0), float(row.bytes or 1)
            name = row.implementation if operation == "matmul" else operation
            yield roofline.Point(name, flops / size, flops / (row.device_us or 1) / 1e6, "cuda")


def of_results() -> Figure:
    environment = json.loads((RESULTS / "environment.json").read_text(encoding="utf-8"))
    device = environment["device"]
    return roofline.roofline(device["name"], device["peaks"], list(points()))


def of_memory(device: dict[str, Any], folder: Path) -> Figure:
    """Draw the memories of a device. folder: its results, where `doctor --measure` puts its peaks."""
    peaks = measured_peaks.find(folder, device["name"])
    return memory.memory(device, peaks.gb_per_s if peaks is not None else None)


def committed_device() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DEVICE.read_text(encoding="utf-8"))
    return found


FIGURES: dict[str, Callable[[], Figure]] = {
    "threads": threads.threads,
    "chips": chips.chips,
    "memory": lambda: of_memory(committed_device(), DEVICE.parents[1]),
    "tiles": tiles.tiles,
    "roofline": of_results,
    "ring": ring.ring,
}


def svg(figure: Figure) -> str:
    """The figure as SVG with its texts as texts, the same in each run."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "course", "font.family": "sans-serif"}):
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return re.sub(r"[ \t]*<!--.*?-->\n|[ \t]+$", "", out.getvalue(), flags=re.MULTILINE)


def texts(picture: str) -> list[str]:
    """The texts of an SVG, in order."""
    return [" ".join(each.split()) for each in re.findall(r"<(?:text|tspan)\b[^>]*>([^<]+)<", picture)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write docs/learn/img")
    parser.add_argument("--here", action="store_true", help="only the memories of this machine's first GPU")
    parser.add_argument("--out", type=Path, default=IMAGES, help="the folder (default: docs/learn/img)")
    parser.add_argument("--png", action="store_true", help="pictures too")
    given = parser.parse_args()
    figures = FIGURES
    if given.here:
        devices = cuda_driver.devices()
        if not devices:
            parser.error(f"no GPU here: {cuda_driver.problem()}")
        figures = {"memory": lambda: of_memory(devices[0], resolve("cuda").results_folder)}
    elif not given.write and given.out == IMAGES:
        parser.error("--write, --here or --out FOLDER")
    given.out.mkdir(parents=True, exist_ok=True)
    for name, draw in figures.items():
        (given.out / f"{name}.svg").write_text(svg(draw()), encoding="utf-8")
        if given.png:
            draw().savefig(given.out / f"{name}.png", dpi=130)
        print(given.out / f"{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
