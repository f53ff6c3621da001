"""The shapes of one layer of a transformer, by the family that the model belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from suite.models.workload import LayerShape


@dataclass(frozen=True)
class Kind:
    """Properties of a family of models.

    norms: the norms of the hidden features; two of them follow a residual sum, or none if `post_norms`. rope: the
    layout of rotary embeddings; empty for none. gated: the feed-forward part has a gate beside its first product.
    fused: query, key and value are one product, and so are gate and first product. head_norms: queries and keys are
    normalized, head by head; wide_norms: all heads of a token together. causal: tokens see no later ones. latent: keys
    and values, and perhaps queries, come from a narrow product. layout: the layout of products; `nt` for weights stored
    as (out, in), as torch.nn.Linear stores them. expert_layout: that of the experts' products.
    """

    norm: str
    gated: bool
    norms: int = 2
    post_norms: bool = False
    rope: str = ""
    fused: bool = False
    head_norms: bool = False
    wide_norms: bool = False
    causal: bool = True
    latent: bool = False
    experts: bool = False
    fused_experts: bool = False
    layout: str = "nt"
    expert_layout: str = "nt"


LLAMA, GPT = Kind("rms_norm", gated=True, rope="halves"), Kind("layer_norm", gated=False)
QWEN3, GEMMA2, ENCODER = replace(LLAMA, head_norms=True), replace(LLAMA, norms=4), replace(GPT, causal=False)
GEMMA3 = replace(GEMMA2, head_norms=True)
KINDS = {
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
    "gemma": LLAMA,
    "gemma2": GEMMA2,
    "gemma3": GEMMA3,
    "gemma3_text": GEMMA3,
    "olmo2": replace(LLAMA, wide_norms=True, post_norms=True),
    "qwen3": QWEN3,
    "qwen3_moe": replace(QWEN3, experts=True),
    "mixtral": replace(LLAMA, experts=True),
    "gpt_oss": replace(LLAMA, experts=True, fused_experts=True, expert_layout="nn"),
    "deepseek_v3": replace(LLAMA, latent=True, experts=True, rope="pairs"),
    "phi3": replace(LLAMA, fused=True),
    "gpt2": replace(GPT, fused=True, layout="nn"),
    "gpt_neox": replace(GPT, fused=True, rope="halves"),
    "opt": GPT,
    "bert": ENCODER,
    "vit": ENCODER,
    "whisper": ENCODER,
    "t5": Kind("rms_norm", gated=False, causal=False),
}
"""Families by `model_type`. whisper and t5 stand for their encoders."""
ROUTER = "router"
"""The product that scores experts: its weights are never quantized."""


@dataclass(frozen=True)
class Latent:
    """Widths of DeepSeek's attention: of the narrow products (0 for none), and of the parts of a head."""

    query: int
    key: int
    plain: int
    rotary: int
    value: int


@dataclass(frozen=True)
class Experts:
    """Numbers of experts: all, those of a token, and those that every token has. inner: the width of each."""

    count: int
    chosen: int
    shared: int
    inner: int


@dataclass(frozen=True)
class Sizes:
    """The numbers of a layer. rotary: the width of a head's rotated part. activation: that of the gate."""

    batch: int
    queries: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    rotary: int
    activation: str
    experts: Experts | None = None
    latent: Latent | None = None

    @property
    def tokens(self) -> int:
        return self.batch * self.queries


def norms(kind: Kind, sizes: Sizes) -> Iterator[LayerShape]:
    """The norms, and the two residual sums: each with the norm that follows it, where that is one operation."""
    tokens, heads, kv_heads, head_dim = sizes.tokens, sizes.heads, sizes.kv_heads, sizes.head_dim
    features, norms = {"M": tokens, "N": sizes.hidden}, kind.norms
    if kind.norm == "rms_norm" and not kind.post_norms:
        yield LayerShape("sums with norms", 2, "add_rms_norm", features)
        norms -= 2
    else:
        yield LayerShape("sums", 2, "matrix_add", features)
    if norms:
        yield LayerShape("norms", norms, kind.norm, features)
    if kind.head_norms:
        yield LayerShape("query norm", 1, kind.norm, {"M": tokens * heads, "N": head_dim})
        yield LayerShape("key norm", 1, kind.norm, {"M": tokens * kv_heads, "N": head_dim})
    if kind.wide_norms:
        yield LayerShape("query norm", 1, kind.norm, {"M": tokens, "N": heads * head_dim})
        yield LayerShape("key norm", 1, kind.norm, {"M": tokens, "N": kv_heads * head_dim})
    if sizes.latent and sizes.latent.query:
        yield LayerShape("query norm", 1, kind.norm, {"M": tokens, "N": sizes.latent.query})
    if sizes.latent:
        yield LayerShape("key norm", 1, kind.norm, {"M": tokens, "N": sizes.latent.key})


def projections(kind: Kind, sizes: Sizes) -> Iterator[LayerShape]:
    tokens, hidden = sizes.tokens, sizes.hidden
    wide, narrow = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    if sizes.latent:
        yield from _latent_projections(kind, sizes, sizes.latent)
    elif kind.fused:
        yield product(kind, "query, key, value", tokens, wide + 2 * narrow, hidden)
    else:
        yield product(kind, "query", tokens, wide, hidden)
        yield product(kind, "key, value", tokens, narrow, hidden, 2)


def _latent_projections(kind: Kind, sizes: Sizes, latent: Latent) -> Iterator[LayerShape]:
    tokens, hidden, wide = sizes.tokens, sizes.hidden, sizes.heads * sizes.head_dim
    if latent.query:
        yield product(kind, "query, narrow", tokens, latent.query, hidden)
    yield product(kind, "query", tokens, wide, latent.query or hidden)
    yield product(kind, "key and value, narrow", tokens, latent.key + latent.rotary, hidden)
    yield product(kind, "key and value", tokens, sizes.heads * (latent.plain + latent.value), latent.key)


def rotation(kind: Kind, sizes: Sizes) -> Iterator[LayerShape]:
    """The rotary embedding of queries and keys. Latent attention has one rotated key for all heads."""
    if kind.rope:
        heads = {"H": sizes.heads, "H_kv": 1 if sizes.latent else sizes.kv_heads}
        dims = {"B": sizes.batch, "S": sizes.queries, **heads, "D": sizes.rotary}
        yield LayerShape("rotation", 1, "rope", dims, {"layout": kind.rope})


def output(kind: Kind, sizes: Sizes) -> LayerShape:
    width = sizes.latent.value if sizes.latent else sizes.head_dim
    return product(kind, "output", sizes.tokens, sizes.hidden, sizes.heads * width)


def feed_forward(kind: Kind, sizes: Sizes) -> Iterator[LayerShape]:
    if sizes.experts is None:
        yield from _feed_forward(kind, sizes, sizes.tokens, sizes.inner)
        return
    experts = sizes.experts
    yield product(kind, ROUTER, sizes.tokens, experts.count, sizes.hidden)
    pairs = sizes.tokens * experts.chosen
    own = replace(kind, fused=kind.fused_experts, layout=kind.expert_layout)
    for each in _feed_forward(own, sizes, pairs, experts.inner):
        yield replace(_split_by_expert(each, experts.count), name=f"experts' {each.name}")
    if experts.shared:
        for each in _feed_forward(kind, sizes, sizes.tokens, experts.shared * experts.inner):
            yield replace(each, name=f"shared experts' {each.name}")


def _split_by_expert(shape: LayerShape, experts: int) -> LayerShape:
    """A product with the rows divided evenly among the experts; other operations as they are."""
    if shape.operation != "matmul":
        return shape
    dims = {"T": shape.dims["M"], "E": experts, "K": shape.dims["K"], "N": shape.dims["N"]}
    return replace(shape, operation="grouped_matmul", dims=dims)


def _feed_forward(kind: Kind, sizes: Sizes, tokens: int, inner: int) -> Iterator[LayerShape]:
    hidden = sizes.hidden
    if kind.gated and not kind.fused:
        yield product(kind, "gate, up", tokens, inner, hidden, 2)
    else:
        name, wide = ("gate and up", 2 * inner) if kind.gated else ("up", inner)
        yield product(kind, name, tokens, wide, hidden)
    if kind.gated:
        yield LayerShape("activation", 1, "silu_mul", {"M": tokens, "N": inner}, {"activation": sizes.activation})
    yield product(kind, "down", tokens, hidden, inner)


def product(kind: Kind, name: str, tokens: int, out: int, width: int, count: int = 1) -> LayerShape:
    return LayerShape(name, count, "matmul", {"M": tokens, "N": out, "K": width}, {"layout": kind.layout})
