"""The Pallas attention and its gradient: lowered for Hopper without a GPU, their errors, their order of tiles, and
their results on such a GPU.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

jax = pytest.importorskip("jax")
np = pytest.importorskip("numpy")
pytest.importorskip("jax.experimental.pallas.mosaic_gpu", exc_type=ImportError)  # JAX 0.10 wants absl for it
jnp = jax.numpy
attention_pallas = pytest.importorskip("jax_impls.attention.pallas")
attention_grad_pallas = pytest.importorskip("jax_impls.attention_grad.pallas")
kernels = pytest.importorskip("jax_impls.attention._pallas")
xla = pytest.importorskip("jax_impls.attention").attention

hopper = pytest.mark.skipif(
    getattr(jax.devices()[0], "compute_capability", None) != "9.0", reason="needs a Hopper GPU (compute capability 9.0)"
)


def shapes(B: int, H: int, H_kv: int, S_q: int, S_k: int, D: int) -> tuple[tuple[int, ...], ...]:
    return (B, H, S_q, D), (B, H_kv, S_k, D), (B, H_kv, S_k, D), (B, H, S_q, D)


def drawn(*of: tuple[int, ...], dtype: str = "bfloat16") -> list[Any]:
    keys = jax.random.split(jax.random.key(0), len(of))
    return [jax.random.normal(key, shape, jnp.dtype(dtype)) for key, shape in zip(keys, of, strict=True)]


def gradients(q: Any, k: Any, v: Any, do: Any, causal: bool) -> Any:
    return jax.vjp(lambda *x: attention_pallas.padded_attention(*x, causal, None), q, k, v)[1](do)


def mosaic_calls(function: Callable[..., Any], *arguments: tuple[int, ...]) -> int:
    """Kernels of a function as it is lowered for a GPU; shared memory beyond Hopper's is an error there."""
    avals = [jax.ShapeDtypeStruct(shape, "bfloat16") for shape in arguments]
    text = jax.jit(function).trace(*avals).lower(lowering_platforms=("cuda",)).as_text()
    return text.count("custom_call @mosaic_gpu")


@pytest.mark.parametrize("D", [64, 128, 256])
def test_attention_lowers_for_hopper(D: int) -> None:
    function = partial(attention_pallas.padded_attention, causal=True, sm_scale=-0.5)
    assert mosaic_calls(function, *shapes(2, 4, 2, 300, 170, D)[:3]) == 1


@pytest.mark.parametrize("D", [40, 128])
def test_gradient_lowers_for_hopper(D: int) -> None:
    assert mosaic_calls(partial(gradients, causal=True), *shapes(1, 4, 2, 300, 170, D)) == 3


def test_vmap_of_the_gradient_lowers_for_hopper() -> None:
    batched = [(3, *shape) for shape in shapes(1, 2, 1, 64, 64, 64)]
    assert mosaic_calls(jax.vmap(partial(gradients, causal=False)), *batched) == 3


def test_each_tile_is_computed_once_and_late_ones_first() -> None:
    for heads, tiles, group in ((6, 5, 4), (3, 7, 1), (4, 2, 4)):
        found = [tuple(map(int, kernels.tile_of(jnp.int32(i), heads, tiles, group))) for i in range(heads * tiles)]
        assert sorted(found) == [(head, tile) for head in range(heads) for tile in range(tiles)]
        for first in range(0, heads, group):
            order = [tile for head, tile in found if first <= head < first + group]
            assert order == sorted(order, reverse=True)


@pytest.mark.parametrize("causal", [False, True])
def test_the_schedule_has_each_tile_once_in_balance(causal: bool) -> None:
    for heads, S_q, S_k, blocks in ((7, 1000, 1000, 5), (3, 4096, 2000, 132), (40, 2048, 2048, 132)):
        config = kernels.CONFIGS[64]
        tiles = -(-S_q // (config.consumers * kernels.WGMMA_M))
        schedule = kernels.schedule_of(heads, (S_q, S_k), config, causal, 4, min(blocks, heads * tiles))
        found = [int(each) for row in schedule for each in row[1 : row[0] + 1]]
        assert sorted(found) == list(range(heads * tiles))
        assert all(row[0] > 0 for row in schedule)


ERRORS: dict[str, tuple[tuple[int, ...], str, type[Exception], str]] = {
    "wide heads": ((1, 1, 8, 264), "bfloat16", NotImplementedError, "the kernel takes D up to"),
    "float32": ((1, 1, 8, 64), "float32", NotImplementedError, "the kernel takes float16 and bfloat16; got float32"),
    "three dimensions": ((1, 8, 64), "bfloat16", ValueError, "q must be (B, H, S_q, D); got (1, 8, 64)"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    shape, dtype, error, message = ERRORS[name]
    x = jnp.zeros(shape, dtype)
    with pytest.raises(error, match=re.escape(message)):
        attention_pallas.attention(x, x, x)
    with pytest.raises(error, match=re.escape(message)):
        attention_grad_pallas.attention_grad(x, x, x, x)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="only where JAX runs on a CPU")
def test_attention_does_not_run_on_a_cpu() -> None:
    x = jnp.zeros((1, 1, 8, 64), "bfloat16")
    with pytest.raises(NotImplementedError, match="attention: needs a Hopper GPU"):
        attention_pallas.attention(x, x, x)


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap], ids=["jit", "vmap"])
def test_xla_attention_is_transformed(transform: Callable[..., Any]) -> None:
    """The line that is compared with, under a transformation and its gradient."""
    q, k, v, _ = drawn(*((2, *shape) for shape in shapes(1, 2, 1, 9, 12, 64)), dtype="float32")
    function = partial(xla, causal=True)
    grouped = jax.vmap(function) if transform is jax.jit else function
    found = jax.grad(lambda *x: transform(grouped)(*x).sum(), argnums=(0, 1, 2))(q, k, v)
    for i, gradient in enumerate(found):
        alone = [jax.grad(lambda *x: function(*x).sum(), argnums=i)(q[b], k[b], v[b]) for b in range(2)]
        np.testing.assert_allclose(gradient, np.stack(alone), rtol=1e-4, atol=1e-5)


@hopper
@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "case",
    [
        (1, 4, 2, 300, 300, 64),
        (2, 2, 1, 33, 200, 128),
        (1, 2, 2, 300, 170, 96),
        (1, 1, 1, 200, 200, 256),
        (2, 80, 40, 333, 200, 64),
    ],
)
def test_attention_on_a_gpu(case: tuple[int, ...], causal: bool) -> None:
    """With its gradient and under vmap, against XLA in float32."""
    q, k, v, do = drawn(*shapes(*case))
    o, pull = jax.vjp(partial(xla, causal=causal), *(x.astype("float32") for x in (q, k, v)))
    found = attention_pallas.attention(q, k, v, causal=causal)
    np.testing.assert_allclose(found.astype("float32"), o, atol=0.03)
    batched = jax.vmap(partial(attention_pallas.attention, causal=causal))(q[None], k[None], v[None])[0]
    assert (batched == found).all()
    if case[-1] > 128:
        return
    for mine, theirs in zip(
        attention_grad_pallas.attention_grad(q, k, v, do, causal=causal), pull(do.astype("float32")), strict=True
    ):
        np.testing.assert_allclose(mine.astype("float32"), theirs, atol=0.02 * math.ceil(float(abs(theirs).max())))
