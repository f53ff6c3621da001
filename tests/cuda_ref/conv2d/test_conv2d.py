"""The views of images and weights that the kernels of conv2d on tensor cores read, and the cases that they refuse."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv2d as by_torch

from cuda_ref.conv2d import conv2d
from cuda_ref.conv2d import halo as conv2d_halo
from cuda_ref.conv2d import mma as conv2d_mma
from cuda_ref.conv2d import wgmma as conv2d_wgmma
from cuda_ref.conv2d._images import Views, views

HALF = torch.float16


def integers(*shape: int) -> Tensor:
    """Small integers, whose products are exact in any type."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(0)).to(HALF)


def convolved(of: Views, H: int, R: int, K: int, stride: int, padding: int) -> Tensor:
    """The convolution of views, as a kernel that follows their sizes and strides computes it."""
    x = of.x.as_strided((len(of.x), H, of.width, of.channels), (*of.x_pitch, 1))
    k, tap = of.weight_pitch
    weight = of.weight.as_strided((K, R, of.S, of.channels), (k, of.S * tap, tap, 1))
    images, taps = (each.float().permute(0, 3, 1, 2) for each in (x, weight))
    border = (of.padding, of.padding, padding, padding)
    padded = torch.nn.functional.pad(images, border)
    return by_torch(padded, taps, stride=(stride, of.stride)).permute(0, 2, 3, 1)


CASES = {
    "as_they_are": (integers(2, 9, 7, 16), integers(8, 3, 3, 16), 1, 1, False),
    "channels_first": (integers(2, 16, 9, 7).permute(0, 2, 3, 1), integers(8, 3, 3, 16), 1, 1, True),
    "every_second_pixel": (integers(2, 9, 14, 16)[:, :, ::2], integers(8, 3, 6, 16)[:, :, ::2], 2, 1, False),
    "weights_of_one_row": (integers(2, 9, 7, 16), integers(8, 2, 3, 16)[:, :1], 1, 0, False),
    "one_image_repeated": (integers(1, 9, 7, 16).expand(3, 9, 7, 16), integers(8, 3, 3, 16), 1, 1, True),
    "20_channels": (integers(2, 9, 7, 20), integers(8, 3, 3, 20), 1, 1, True),
    "three_channels": (integers(2, 12, 10, 3), integers(8, 7, 7, 3), 2, 3, True),
    "one_channel": (integers(2, 6, 7, 1), integers(8, 2, 3, 1), 1, 0, True),
    "three_channels_stride_3": (integers(2, 12, 10, 3), integers(8, 4, 4, 3), 3, 1, True),
}


@pytest.mark.parametrize(("x", "weight", "stride", "padding", "copied"), CASES.values(), ids=CASES)
def test_views_are_what_tma_reads(x: Tensor, weight: Tensor, stride: int, padding: int, copied: bool) -> None:
    (_, H, W, _), (K, R, S, _) = x.shape, weight.shape
    of = views(x, weight, (W + 2 * padding - S) // stride + 1, stride, padding)
    assert all(pitch % 8 == 0 for pitch in (*of.x_pitch, *of.weight_pitch))
    assert (of.x is not x) == copied
    expected = conv2d(x, weight, stride=stride, padding=padding)
    torch.testing.assert_close(convolved(of, H, R, K, stride, padding).to(HALF), expected, rtol=0, atol=0)


def test_tiles_make_full_waves_and_overhang_little() -> None:
    layers = ((256 * 56 * 56, 64), (256 * 28 * 28, 128), (256 * 14 * 14, 256), (256 * 7 * 7, 512), (256 * 56 * 56, 192))
    tiles = [conv2d_wgmma.best_tile(pixels, K, 132) for pixels, K in layers]
    THIN, TALL, WIDE, TRIO = (getattr(conv2d_wgmma, name) for name in ("THIN", "TALL", "WIDE", "TRIO"))
    assert tiles == [THIN, TALL, WIDE, TRIO, WIDE]
    assert [conv2d_halo.best_rows(P, 3, 3) for P in (56, 28, 64, 112)] == [28, 28, 32, 28]
    assert conv2d_halo.best_rows(56, 5, 5) is None


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (conv2d_wgmma.conv2d, {"stride": 9}, "stride up to 8"),
        (conv2d_wgmma.conv2d, {"padding": 128}, "padding up to 127"),
        (conv2d_halo.conv2d, {"stride": 2}, "written for stride 1"),
    ],
)
def test_what_tma_cannot_read_is_refused(function: object, arguments: dict[str, int], message: str) -> None:
    assert callable(function)
    with pytest.raises(NotImplementedError, match=message):
        function(torch.zeros(1, 16, 16, 16, dtype=HALF), torch.zeros(8, 3, 3, 16, dtype=HALF), **arguments)


def test_float32_is_for_other_kernels() -> None:
    for function in (conv2d_wgmma.conv2d, conv2d_halo.conv2d):
        with pytest.raises(NotImplementedError, match=r"float32"):
            function(torch.zeros(1, 16, 16, 16), torch.zeros(8, 3, 3, 16))


@pytest.mark.parametrize(
    ("weight", "arguments", "message"),
    [
        ((8, 3, 3, 4), {}, r"x is \(N, H, W, C\)=\(1, 5, 5, 3\), so weight must be \(K, R, S, 3\); got \(8, 3, 3, 4\)"),
        ((8, 3, 3, 3), {"padding": -1}, "stride must be at least 1 and padding at least 0; got 1 and -1"),
        ((8, 6, 3, 3), {}, r"R must be from 1 to 5 \+ 2 \* 0, .*; got weight \(K, R, S, C\)=\(8, 6, 3, 3\)"),
        ((8, 3, 3, 3), {"precision": "tf32"}, "x is float16, so precision must be 'ieee'; got 'tf32'"),
    ],
)
def test_arguments(weight: tuple[int, ...], arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        conv2d(integers(1, 5, 5, 3), integers(*weight), **arguments)  # type: ignore[arg-type]


def test_configurations_name_the_tile_and_the_copies() -> None:
    few, many = integers(2, 14, 14, 3), integers(2, 14, 14, 64)
    first, inner, single = integers(64, 7, 7, 3), integers(64, 3, 3, 64), integers(256, 1, 1, 64)
    assert conv2d_wgmma.config(few, first, stride=2, padding=3) == "pad_images; wgmma THIN"
    assert conv2d_mma.config(few, first, stride=2, padding=3) == "pad_images; mma"
    assert conv2d_mma.config(many, inner, padding=1) == "mma"
    assert conv2d_halo.config(many, inner, padding=1) == "halo 28x16"
    assert conv2d_wgmma.config(many, single) == "wgmma ALONE"
    assert conv2d_wgmma.config(many[..., 1:], single[..., 1:]) == "pad_images; wgmma ALONE"
