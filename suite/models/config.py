"""Translates a transformer's Hugging Face configuration (`config.json`) to the shapes of one of its layers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from suite.core.errors import UsageError
from suite.core.files import NotReadableError, read_regular
from suite.core.text import one_line
from suite.models.workload import LayerShape, Workload

MAX_BYTES = 1 << 24


@dataclass(frozen=True)
class Kind:
    """Properties of a family of models.

    gated: the feed-forward part has a gate beside its first product. fused: query, key and value are one product, and
    so are gate and first product. head_norms: queries and keys are normalized, head by head. layout: the layout of
    products; `nt` for weights stored as (out, in), as torch.nn.Linear stores them.
    """

    norm: str
    gated: bool
    fused: bool = False
    head_norms: bool = False
    layout: str = "nt"


LLAMA, GPT = Kind("rms_norm", gated=True), Kind("layer_norm", gated=False)
KINDS = {
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
    "gemma": LLAMA,
    "qwen3": replace(LLAMA, head_norms=True),
    "phi3": replace(LLAMA, fused=True),
    "gpt2": replace(GPT, fused=True, layout="nn"),
    "gpt_neox": replace(GPT, fused=True),
    "opt": GPT,
}
"""Families by `model_type`."""
NAMES = {
    "hidden": ("hidden_size", "n_embd"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "inner": ("intermediate_size", "n_inner", "ffn_dim"),
    "layers": ("num_hidden_layers", "n_layer"),
}
"""Keys of a configuration that stand for the same number, by its name here."""


def workload(path: Path, batch: int, seq: int, queries: int) -> Workload:
    """Return the shapes of one layer for `batch` sequences of `queries` new tokens, the last one at position `seq`.

    Equal shapes are one entry with their count. Raises `UsageError` for a file that is no configuration of a model in
    `KINDS`, and for impossible sizes.
    """
    config = _config(path)
    kind = _kind(path, config)
    numbers = {name: _number(path, config, name) for name in NAMES}
    hidden, heads, layers = (_needed(path, numbers, name) for name in ("hidden", "heads", "layers"))
    head_dim = numbers["head_dim"] or hidden // heads
    kv_heads = numbers["kv_heads"] or heads
    inner = numbers["inner"] or (4 * hidden if not kind.gated else _needed(path, numbers, "inner"))
    if heads % kv_heads:
        raise UsageError(f"{path}: {heads} attention heads are no multiple of {kv_heads} key and value heads")
    if not 0 < queries <= seq:
        raise UsageError(f"--queries {queries}: must lie between 1 and --seq {seq}")
    tokens, wide, narrow = batch * queries, heads * head_dim, kv_heads * head_dim
    attention = {"B": batch, "H": heads, "H_kv": kv_heads, "S_q": queries, "S_k": seq, "D": head_dim}
    shapes = [
        *_norms(kind, tokens, hidden, heads, kv_heads, head_dim),
        *_projections(kind, tokens, hidden, wide, narrow),
        LayerShape("attention", 1, "attention", attention, {"causal": queries > 1}),
        _product(kind, "output", tokens, hidden, wide),
        *_feed_forward(kind, tokens, hidden, inner),
    ]
    architectures = config.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else config.get("model_type")
    dtype = config.get("torch_dtype", config.get("dtype"))
    return Workload(
        one_line(name or path.stem), layers, batch, seq, queries, dtype if isinstance(dtype, str) else "",
        list(_merged(shapes)),
    )  # fmt: skip


def _norms(kind: Kind, tokens: int, hidden: int, heads: int, kv_heads: int, head_dim: int) -> Iterator[LayerShape]:
    yield LayerShape("norms", 2, kind.norm, {"M": tokens, "N": hidden})
    if kind.head_norms:
        yield LayerShape("query norm", 1, kind.norm, {"M": tokens * heads, "N": head_dim})
        yield LayerShape("key norm", 1, kind.norm, {"M": tokens * kv_heads, "N": head_dim})


def _projections(kind: Kind, tokens: int, hidden: int, wide: int, narrow: int) -> Iterator[LayerShape]:
    if kind.fused:
        yield _product(kind, "query, key, value", tokens, wide + 2 * narrow, hidden)
    else:
        yield _product(kind, "query", tokens, wide, hidden)
        yield _product(kind, "key, value", tokens, narrow, hidden, 2)


def _feed_forward(kind: Kind, tokens: int, hidden: int, inner: int) -> Iterator[LayerShape]:
    if kind.gated and not kind.fused:
        yield _product(kind, "gate, up", tokens, inner, hidden, 2)
    else:
        name, wide = ("gate and up", 2 * inner) if kind.gated else ("up", inner)
        yield _product(kind, name, tokens, wide, hidden)
    yield _product(kind, "down", tokens, hidden, inner)


def _product(kind: Kind, name: str, tokens: int, out: int, width: int, count: int = 1) -> LayerShape:
    return LayerShape(name, count, "matmul", {"M": tokens, "N": out, "K": width}, {"layout": kind.layout})


def _merged(shapes: list[LayerShape]) -> Iterator[LayerShape]:
    """Merge equal cases to one entry with their count."""
    groups: dict[tuple[str, str], list[LayerShape]] = {}
    for each in shapes:
        groups.setdefault((each.operation, each.case), []).append(each)
    for group in groups.values():
        names, count = ", ".join(each.name for each in group), sum(each.count for each in group)
        yield replace(group[0], name=names, count=count)


def _config(path: Path) -> dict[str, Any]:
    """Read the configuration of the language model: the part `text_config` if there is one."""
    try:
        found = json.loads(read_regular(path, MAX_BYTES))
    except NotReadableError as error:
        raise UsageError(f"{path}: {error}") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: no JSON: {one_line(error)[:80]}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path}: no configuration of a model: expected an object with model_type, hidden_size ...")
    part = found.get("text_config")
    return part if isinstance(part, dict) else found


def _kind(path: Path, config: Mapping[str, Any]) -> Kind:
    given = config.get("model_type")
    if not isinstance(given, str) or given not in KINDS:
        raise UsageError(f"{path}: model_type is {one_line(given)[:40]!r}; known are {', '.join(KINDS)}")
    return KINDS[given]


def _number(path: Path, config: Mapping[str, Any], name: str) -> int | None:
    """Return the number under the first key of `name` that has one; None if none has."""
    for key in NAMES[name]:
        value = config.get(key)
        if value is not None:
            if type(value) is not int or not 0 < value < 1 << 31:
                raise UsageError(f"{path}: {key} is {one_line(value)[:40]}; expected a positive number")
            return value
    return None


def _needed(path: Path, numbers: Mapping[str, int | None], name: str) -> int:
    value = numbers[name]
    if value is None:
        raise UsageError(f"{path}: no {' or '.join(NAMES[name])}")
    return value
