"""A part of the L2 cache that is set aside is found and given back."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from suite.timing.l2_carve_out import LIMIT_PERSISTING_L2_SIZE, PERSISTING, CarveOut
from suite.timing.target import target


class Driver:
    """The driver's four functions, for one context and one stream."""

    def __init__(self, size: int = 0, window: tuple[int, int] = (0, 0)) -> None:
        self.size, self.window, self.resets = size, window, 0

    def cuCtxGetLimit(self, found: Any, limit: int) -> int:  # noqa: N802
        assert limit == LIMIT_PERSISTING_L2_SIZE
        found._obj.value = self.size
        return 0

    def cuCtxSetLimit(self, limit: int, size: ctypes.c_size_t) -> int:  # noqa: N802
        assert limit == LIMIT_PERSISTING_L2_SIZE
        self.size = size.value
        return 0

    def cuCtxResetPersistingL2Cache(self) -> int:  # noqa: N802
        self.resets += 1
        return 0

    def cuStreamGetAttribute(self, stream: ctypes.c_void_p, attribute: int, value: Any) -> int:  # noqa: N802
        assert (stream.value, attribute) == (7, 1)
        value._obj.num_bytes, value._obj.hit = self.window
        return 0


def carve_out(driver: Driver) -> CarveOut:
    return CarveOut(lambda: 7, driver)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("size", "window", "words"),
    [
        (25_165_824, (0, 0), "it set 25,165,824 bytes of the L2 cache aside"),
        (0, (4096, PERSISTING), "an access policy window of 4,096 persisting bytes"),
        (0, (4096, 0), ""),
        (0, (0, PERSISTING), ""),
        (0, (0, 0), ""),
    ],
    ids=["a limit", "a window", "a window that keeps nothing", "an empty window", "nothing"],
)
def test_what_a_file_keeps_is_named(size: int, window: tuple[int, int], words: str) -> None:
    driver = Driver(9_830_400)
    here = carve_out(driver)
    assert here.found() == "", "the limit that a context begins with is nobody's"
    driver.size, driver.window = size, window
    found = here.found()
    assert words in found
    assert bool(found) == bool(words)


def test_it_is_given_back_and_its_lines_are_reset_whatever_the_limit_is() -> None:
    driver = Driver()
    here = carve_out(driver)
    driver.size = 25_165_824
    here.remove()
    assert (driver.size, driver.resets) == (0, 2)
    here.remove()
    assert driver.resets == 3, "a limit that was lowered meanwhile leaves its lines"
    here.remove(anyway=False)
    assert driver.resets == 3
    driver.size = 4096
    here.remove(anyway=False)
    assert (driver.size, driver.resets) == (0, 4)
    assert here.found() == ""


@pytest.mark.gpu
def test_the_eviction_of_a_gpu_gives_it_back() -> None:
    import torch

    here = target(torch.device("cuda"))
    assert here.kept_cache() == ""
    ctypes.CDLL("libcuda.so.1").cuCtxSetLimit(LIMIT_PERSISTING_L2_SIZE, ctypes.c_size_t(8 << 20))
    assert "of the L2 cache aside" in here.kept_cache()
    here.evict()
    assert here.kept_cache() == ""
