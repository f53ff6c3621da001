"""Images and weights for 16-byte copies: unchanged, or copied so that pixels are multiples of 16 bytes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cuda_ref import build

FEW_CHANNELS = 16
"""With fewer channels, a step of the sum takes a row of the window instead of a tap."""


def check_16_bit(x: Tensor) -> None:
    """Checks that the images are not float32. Raises NotImplementedError."""
    if x.dtype == torch.float32:
        raise NotImplementedError("conv2d: written for float16 and bfloat16; got torch.float32")


def check_sizes(x: Tensor, weight: Tensor, P: int, Q: int) -> None:
    """Checks that pixels can be counted in 32 bits. Raises NotImplementedError."""
    if max(x.shape[0] * P * Q, *x.shape, *weight.shape) >= 2**31 - 512:
        raise NotImplementedError(f"conv2d: at most 2^31 - 513 pixels; got {x.shape[0]} images of {P} x {Q}")


@dataclass(frozen=True)
class Views:
    """Images (N, height, width, channels) and weights (K, taps, channels), and the convolution parameters for them.

    channels, width: per pixel and per row, as the kernel sees them. x_pitch: strides of images, rows and pixels.
    weight_pitch: strides of K and of taps. S: taps per row. stride, padding: along the width.
    """

    x: Tensor
    weight: Tensor
    channels: int
    width: int
    x_pitch: tuple[int, int, int]
    weight_pitch: tuple[int, int]
    S: int
    stride: int
    padding: int


def views(x: Tensor, weight: Tensor, Q: int, stride: int, padding: int) -> Views:
    """The views that the kernel reads for x (N, H, W, C) and weight (K, R, S, C), with Q columns of the output.

    Few channels, such as three in a first layer: pixels are padded to 4 or 8 channels, and rows by `padding`. A row of
    a window is then contiguous: the view has one pixel of S * 4 channels for it, and its pixels overlap.
    """
    (_, _, W, C), S, align = x.shape, weight.shape[2], alignment(x)
    if (channels := _few_channels(x, stride)) is not None:
        images = padded(x, padding, channels, W + 2 * padding)
        taps = padded(weight, 0, channels, S)
        x_pitch = (images.stride(0), images.stride(1), stride * channels)
        return Views(images, taps, S * channels, Q, x_pitch, (taps.stride(0), taps.stride(1)), 1, 1, 0)
    channels = -(-C // align) * align
    x_pitch, weight_pitch = _image_pitch(x), _weight_pitch(weight)
    if x_pitch is None:
        x = padded(x, 0, channels, W)
        x_pitch = (x.stride(0), x.stride(1), channels)
    if weight_pitch is None:
        weight = padded(weight, 0, channels, S)
        weight_pitch = (weight.stride(0), channels)
    return Views(x, weight, channels, W, x_pitch, weight_pitch, S, stride, padding)


def taps_and_channels(x: Tensor, weight: Tensor, stride: int) -> tuple[int, int]:
    """`S` and `channels` of `views`: taps per row of the window, and channels per tap, as the kernel sees them."""
    C, S, align = x.shape[3], weight.shape[2], alignment(x)
    few = _few_channels(x, stride)
    return (S, -(-C // align) * align) if few is None else (1, S * few)


def copies(x: Tensor, weight: Tensor, stride: int) -> str:
    """Returns the step `pad_images; ` of a configuration if `views` copies images or weights, or else an empty text."""
    reads = _few_channels(x, stride) is None and _image_pitch(x) is not None and _weight_pitch(weight) is not None
    return "" if reads else "pad_images; "


def _few_channels(x: Tensor, stride: int) -> int | None:
    """Channels to which a pixel with few channels is padded; None for images that are read tap by tap."""
    C, align = x.shape[3], alignment(x)
    if C % align == 0 or C >= FEW_CHANNELS:
        return None
    return next(each for each in (4, 8, 16) if each >= C and each * stride % align == 0)


def alignment(x: Tensor) -> int:
    """Elements in 16 bytes: addresses and strides must be multiples of this."""
    return 16 // x.element_size()


def padded(x: Tensor, left: int, channels: int, width: int) -> Tensor:
    """A copy of x (N, H, W, C) as (N, H, row). A row has `left` pixels of zeros, the pixels of x, and zeros up to
    `width` pixels of `channels` elements and up to a multiple of 16 bytes."""
    (N, H, W, C), align = x.shape, alignment(x)
    row = -(-width * channels // align) * align
    out = x.new_empty(N, H, row)
    build.launch(
        "conv2d/_images", "pad_images", x.device,
        x, out, N, H, W, C, *x.stride(), left, channels, row, x.element_size(),
    )  # fmt: skip
    return out


def _image_pitch(x: Tensor) -> tuple[int, int, int] | None:
    """Strides of images, rows and pixels; None if TMA cannot read x as it is."""
    (_, H, W, C), align = x.shape, alignment(x)
    plain = (H * W * C, W * C, C)
    strides = [own if size == 1 else stride for size, stride, own in zip(x.shape, x.stride(), plain, strict=False)]
    usable = all(stride > 0 and stride % align == 0 for stride in strides) and x.data_ptr() % 16 == 0
    return (strides[0], strides[1], strides[2]) if usable and x.stride(3) == 1 and C % align == 0 else None


def _weight_pitch(weight: Tensor) -> tuple[int, int] | None:
    """Strides of K and of taps, row after row; None if TMA cannot read the weights as they are."""
    (K, R, S, C), align = weight.shape, alignment(weight)
    tap = C if R * S == 1 else weight.stride(2) if S > 1 else weight.stride(1)
    k = R * S * C if K == 1 else weight.stride(0)
    rows_follow = R == 1 or S == 1 or weight.stride(1) == S * tap
    usable = rows_follow and min(k, tap) > 0 and k % align == tap % align == 0 and weight.data_ptr() % 16 == 0
    return (k, tap) if usable and weight.stride(3) == 1 and C % align == 0 else None
