"""Images of digits, 28 x 28, drawn from the fonts that come with matplotlib, then turned, moved and made noisy.

The same seed gives the same images. The fonts of the test are others than those of the training.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.ft2font import FT2Font

SIZE = 28
TRAINING = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSansMono", "DejaVuSansMono-Bold",
            "DejaVuSerif", "DejaVuSerif-Italic", "STIXGeneral", "STIXGeneralBol", "cmr10", "cmss10")  # fmt: skip
TEST = ("DejaVuSansMono-Oblique", "DejaVuSerif-Bold", "STIXGeneralItalic", "cmtt10")


@dataclass(frozen=True)
class Digits:
    """images: (count, 28, 28, 1) float32, ink about 1 on paper about 0. labels: (count,) int64, 0 to 9."""

    images: np.ndarray
    labels: np.ndarray


def draw(count: int, fonts: tuple[str, ...], seed: int) -> Digits:
    """Draw `count` digits at random, in random fonts."""
    source = torch.Generator().manual_seed(seed)
    glyphs = torch.stack([torch.stack([glyph(font, digit) for digit in range(10)]) for font in fonts])
    labels = torch.randint(10, (count,), generator=source)
    chosen = glyphs[torch.randint(len(fonts), (count,), generator=source), labels]
    grid = torch.nn.functional.affine_grid(distortions(count, source), [count, 1, SIZE, SIZE], align_corners=False)
    images = torch.nn.functional.grid_sample(chosen[:, None], grid, align_corners=False)
    images = images + 0.1 * torch.randn(images.shape, generator=source)
    return Digits(images.permute(0, 2, 3, 1).contiguous().numpy(), labels.numpy())


def glyph(font: str, digit: int, pixels: int = 64) -> torch.Tensor:
    """Return a digit in the middle of a square of `pixels`, from 0 to 1."""
    file = FT2Font(str(Path(mpl.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"))
    file.set_size(0.85 * pixels, 72)
    file.set_text(str(digit))
    file.draw_glyphs_to_bitmap()
    ink = torch.from_numpy(np.array(file.get_image())).float() / 255.0
    square = torch.zeros(pixels, pixels)
    top, left = ((pixels - size) // 2 for size in ink.shape)
    square[top : top + ink.shape[0], left : left + ink.shape[1]] = ink
    return square


def distortions(count: int, source: torch.Generator) -> torch.Tensor:
    """Return random rotations up to 17 degrees, sizes from 0.8 to 1.2 and shifts up to 3 pixels, (count, 2, 3)."""

    def between(low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(count, generator=source)

    angle, size = between(-0.3, 0.3), between(0.8, 1.2)
    down, right = between(-0.2, 0.2), between(-0.2, 0.2)
    sine, cosine = angle.sin() / size, angle.cos() / size
    return torch.stack([torch.stack([cosine, -sine, right], 1), torch.stack([sine, cosine, down], 1)], 1)
