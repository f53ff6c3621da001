"""Launches a compiled kernel again through the driver, without Triton's launcher, which inspects every argument anew.

The parameters of a kernel follow its signature: numbers, addresses, and for each tensor descriptor a TMA descriptor
with the sizes and strides. Two scratch buffers come last; few kernels here use the first. The driver reports the size
of each parameter. If the sizes differ from this layout, as in another version of Triton, Triton launches the kernel.
"""

from __future__ import annotations

import copy
import ctypes
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from triton_kernels._runtime.kept import Issue, NotRepeatable, Repeatable

FORMATS = {"i1": "b", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u1": "B", "u8": "B", "u16": "H", "u32": "I",
           "u64": "Q", "fp32": "f", "f32": "f", "fp64": "d"}  # fmt: skip
"""`struct` format of each of Triton's number types. No signature of this folder has 16-bit floats."""
TENSOR_MAP_BYTES = 128
LIMIT = 64
"""Largest number of TMA descriptors cached for one argument, by address."""


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig of the driver."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    ]


@cache
def driver() -> ctypes.CDLL:
    """The CUDA driver, which Triton has loaded before."""
    return ctypes.CDLL("libcuda.so.1")


class TensorMaps:
    """The TMA descriptors of one argument, by address. Sizes, strides and block shape of the argument are fixed."""

    def __init__(self, descriptor: Any, metadata: Mapping[str, Any]) -> None:
        from triton.backends.nvidia.driver import make_tensordesc_arg

        def encode(address: int) -> list[Any]:
            moved = copy.copy(descriptor)
            moved.base = SimpleNamespace(data_ptr=lambda: address)
            found: list[Any] = make_tensordesc_arg(moved, metadata)
            return found

        self.encode = encode
        self.kept: dict[int, tuple[int, Any]] = {}  # address of the descriptor, and the object that holds it

    def __call__(self, address: int) -> int:
        """The address of the TMA descriptor for an array at `address`."""
        if (found := self.kept.get(address)) is None:
            if len(self.kept) >= LIMIT:
                del self.kept[next(iter(self.kept))]
            found = self.kept[address] = self._held(self.encode(address)[0])
        return found[0]

    def _held(self, tensor_map: Any) -> tuple[int, Any]:
        """Address of the TMA descriptor, which lies at the end of Triton's Python object, and that object."""
        at = id(tensor_map) + type(tensor_map).__basicsize__ - TENSOR_MAP_BYTES
        if at % 64 != 0:
            raise NotRepeatable
        return at, tensor_map


def repeatable(
    compiled: Any, grid: Sequence[int], arguments: Mapping[str, Any], scratch: Tensor | None = None
) -> Repeatable:
    """Makes a past launch of a compiled kernel repeatable. arguments: by name. scratch: its scratch buffer, if any."""

    def with_places(place: Callable[[Tensor], int]) -> Issue:
        try:
            return _issue(compiled, grid, arguments, place, scratch)
        except (AttributeError, KeyError, TypeError, ImportError, OSError, struct.error):  # another version of Triton
            raise NotRepeatable from None

    return with_places


def _issue(
    compiled: Any,
    grid: Sequence[int],
    arguments: Mapping[str, Any],
    place: Callable[[Tensor], int],
    scratch: Tensor | None,
) -> Issue:
    metadata = compiled.metadata
    if metadata.profile_scratch_size or (metadata.global_scratch_size > 0) != (scratch is not None):
        raise NotRepeatable
    if metadata.launch_cooperative_grid or metadata.launch_pdl or metadata.num_ctas != 1:
        raise NotRepeatable
    maps = iter(getattr(metadata, "tensordesc_meta", None) or ())
    sizes: list[int] = []  # bytes of each parameter
    values: list[bytes] = []  # each parameter in 8 bytes; a TMA descriptor lies elsewhere
    pointers: list[tuple[int, int]] = []  # index of the parameter, index of its address
    described: list[tuple[int, int, TensorMaps]] = []
    for kind, value in _parameters(compiled.src.signature, arguments):
        if kind.startswith("*"):
            pointers.append((len(sizes), place(value)))
            sizes.append(8)
            values.append(bytes(8))
        elif kind.startswith("tensordesc"):
            tensor_maps = TensorMaps(value, next(maps))
            described.append((len(sizes), place(value.base), tensor_maps))
            _, *numbers = tensor_maps.encode(value.base.data_ptr())
            formats = "i" * len(value.shape) + "q" * len(value.shape)
            sizes += [TENSOR_MAP_BYTES, *map(struct.calcsize, formats)]
            values += [bytes(8), *(struct.pack(f, n) for f, n in zip(formats, numbers, strict=True))]
        else:
            sizes.append(struct.calcsize(FORMATS[kind]))
            values.append(struct.pack(FORMATS[kind], value))
    if scratch is not None:
        pointers.append((len(sizes), place(scratch)))
    sizes += [8, 8]  # scratch buffers
    values += [bytes(8), bytes(8)]
    if parameter_sizes(ctypes.c_void_p(compiled.function)) != sizes:
        raise NotRepeatable
    num_warps, _, shared_bytes = compiled.packed_metadata
    config = LaunchConfig((*grid, 1, 1)[:3], (32 * num_warps, 1, 1), shared_bytes, None, None, 0)
    return _launcher(compiled, config, values, pointers, described)


def _launcher(
    compiled: Any,
    config: LaunchConfig,
    values: Sequence[bytes],
    pointers: Sequence[tuple[int, int]],
    described: Sequence[tuple[int, int, TensorMaps]],
) -> Issue:
    """Returns a function that fills in the stream and the addresses, and launches. One thread at a time may call it.

    The function holds a reference to the compiled kernel, which keeps the kernel loaded.
    """
    words = (ctypes.c_uint64 * len(values))(*(int.from_bytes(each, "little") for each in values))
    parameters = (ctypes.c_void_p * len(values))(*(ctypes.addressof(words) + 8 * i for i in range(len(values))))
    launch, kernel = driver().cuLaunchKernelEx, (ctypes.c_void_p(compiled.function), compiled)
    given, arrays = ctypes.byref(config), ctypes.byref(parameters)

    def issue(addresses: Sequence[int], stream: int) -> int:
        for parameter, place in pointers:
            words[parameter] = addresses[place]
        for parameter, place, tensor_maps in described:
            parameters[parameter] = tensor_maps(addresses[place])
        config.stream = stream
        code: int = launch(given, kernel[0], arrays, None)
        return code

    return issue


def _parameters(signature: Mapping[str, Any], arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Type and value of each parameter that is not a constant. Tuples are flattened."""
    for name, kind in signature.items():
        yield from _flat(kind, arguments.get(name))


def _flat(kind: Any, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(kind, tuple):
        for each, part in zip(kind, value, strict=True):
            yield from _flat(each, part)
    elif kind != "constexpr":
        yield kind, value


def parameter_sizes(function: ctypes.c_void_p) -> list[int]:
    """Bytes of each parameter of a loaded kernel. Raises: AttributeError if the driver lacks this function."""
    sizes: list[int] = []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    tell = driver().cuFuncGetParamInfo
    while tell(function, ctypes.c_size_t(len(sizes)), ctypes.byref(offset), ctypes.byref(size)) == 0:
        sizes.append(size.value)
    return sizes
