"""Translates a transformer's Hugging Face configuration (`config.json`) to the shapes of one of its layers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from suite.core.errors import UsageError
from suite.core.files import NotReadableError, read_regular
from suite.core.names import did_you_mean
from suite.core.text import one_line
from suite.models import layer
from suite.models.layer import KINDS, Experts, Kind, Latent, Sizes
from suite.models.quantized import quantized, weights_of
from suite.models.workload import LayerShape, Workload

MAX_BYTES = 1 << 24


NAMES = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "encoder_attention_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim", "d_kv"),
    "inner": ("intermediate_size", "n_inner", "ffn_dim", "encoder_ffn_dim", "d_ff"),
    "layers": ("num_hidden_layers", "n_layer", "encoder_layers", "num_layers"),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts"),
    "chosen experts": ("num_experts_per_tok", "experts_per_token"),
    "experts' width": ("moe_intermediate_size", "intermediate_size"),
    "shared experts": ("n_shared_experts",),
    "narrow query": ("q_lora_rank",),
    "narrow key": ("kv_lora_rank",),
    "plain head": ("qk_nope_head_dim",),
    "rotary head": ("qk_rope_head_dim",),
    "value head": ("v_head_dim",),
}
"""Keys of a configuration that stand for the same number, by its name here."""
ACTIVATIONS = ("hidden_activation", "hidden_act", "dense_act_fn")
ROTATED_SHARES = ("partial_rotary_factor", "rotary_pct")
"""Keys of the share of a head that is rotated; all of it if there is none."""
ZERO_IS_NONE = ("shared experts", "narrow query")


def workload(path: Path, batch: int, seq: int, queries: int, weights: str = "") -> Workload:
    """Return the shapes of one layer for `batch` sequences of `queries` new tokens, the last one at position `seq`.

    weights: a key of `quantized.FORMS`; empty for that of the configuration.
    Equal shapes are one entry with their count. Raises `UsageError` for a file that is no configuration of a model in
    `KINDS`, and for impossible sizes.
    """
    config = _config(path)
    kind = _kind(path, config)
    if not 0 < queries <= seq:
        raise UsageError(f"--queries {queries}: must lie between 1 and --seq {seq}")
    if not kind.causal and queries != seq:
        raise UsageError(f"--queries {queries}: {config['model_type']} is an encoder, all tokens are new")
    numbers = {name: _number(path, config, name) for name in NAMES}
    sizes = _sizes(path, kind, config, numbers, batch, queries)
    form = weights_of(path, config, weights)
    attention = {"B": batch, "H": sizes.heads, "H_kv": sizes.kv_heads, "S_q": queries, "S_k": seq, "D": sizes.head_dim}
    shapes = [
        *layer.norms(kind, sizes),
        *layer.projections(kind, sizes),
        *layer.rotation(kind, sizes),
        LayerShape("attention", 1, "attention", attention, {"causal": kind.causal and queries > 1}),
        layer.output(kind, sizes),
        *layer.feed_forward(kind, sizes),
    ]
    architectures = config.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else config.get("model_type")
    dtype = config.get("torch_dtype", config.get("dtype"))
    return Workload(
        form.named(one_line(name or path.stem)), _needed(path, numbers, "layers"), batch, seq, queries,
        dtype if isinstance(dtype, str) else "", list(_merged(quantized(shapes, form, kind, sizes))),
    )  # fmt: skip


def is_causal(path: Path) -> bool:
    """True if the tokens of this model see no later ones, so that keys and values are cached. Errors: as `workload`."""
    return _kind(path, _config(path)).causal


def _sizes(
    path: Path, kind: Kind, config: Mapping[str, Any], numbers: Mapping[str, int | None], batch: int, queries: int
) -> Sizes:
    hidden, heads, _ = (_needed(path, numbers, name) for name in ("hidden", "heads", "layers"))
    kv_heads = heads if kind.latent else numbers["kv_heads"] or heads
    if heads % kv_heads:
        raise UsageError(f"{path}: {heads} attention heads are no multiple of {kv_heads} key and value heads")
    latent = _latent(path, numbers) if kind.latent else None
    head_dim = latent.plain + latent.rotary if latent else numbers["head_dim"] or hidden // heads
    needs_inner = kind.gated and not kind.experts
    inner = numbers["inner"] or (_needed(path, numbers, "inner") if needs_inner else 4 * hidden)
    return Sizes(
        batch, queries, hidden, heads, kv_heads, head_dim, inner,
        rotary=latent.rotary if latent else _rotated(path, config, head_dim),
        activation="gelu_tanh" if _is_gelu(config) else "silu",
        experts=_experts(path, numbers) if kind.experts else None,
        latent=latent,
    )  # fmt: skip


def _latent(path: Path, numbers: Mapping[str, int | None]) -> Latent:
    names = ("narrow key", "plain head", "rotary head", "value head")
    return Latent(numbers["narrow query"] or 0, *(_needed(path, numbers, name) for name in names))


def _experts(path: Path, numbers: Mapping[str, int | None]) -> Experts:
    count, chosen, width = (_needed(path, numbers, name) for name in ("experts", "chosen experts", "experts' width"))
    if chosen > count:
        raise UsageError(f"{path}: {chosen} experts for each token, but there are only {count}")
    return Experts(count, chosen, numbers["shared experts"] or 0, width)


def _merged(shapes: Iterable[LayerShape]) -> Iterator[LayerShape]:
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
    return {**_quantization(found), **part} if isinstance(part, dict) else found


def _quantization(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The key of the weights' form, which a model of several parts has beside them."""
    return {key: config[key] for key in ("quantization_config",) if key in config}


def _kind(path: Path, config: Mapping[str, Any]) -> Kind:
    given = config.get("model_type")
    if not isinstance(given, str) or given not in KINDS:
        known = f"known are {', '.join(KINDS)}{did_you_mean(given, KINDS)}"
        raise UsageError(f"{path}: model_type is {one_line(given)[:40]!r}; {known}")
    return replace(KINDS[given], gated=KINDS[given].gated or _is_gated(config))


def _is_gated(config: Mapping[str, Any]) -> bool:
    """True if a configuration of t5 names a gated feed-forward part: `gated-gelu` instead of `relu`."""
    projection = config.get("feed_forward_proj")
    return isinstance(projection, str) and projection.startswith("gated")


def _is_gelu(config: Mapping[str, Any]) -> bool:
    """True if the gate's activation is a GELU, exact or by its approximation; else it is a SiLU."""
    name = next((value for key in ACTIVATIONS if isinstance(value := config.get(key), str)), "")
    return "gelu" in name or _is_gated(config)


def _rotated(path: Path, config: Mapping[str, Any], head_dim: int) -> int:
    """The even number of a head's features that are rotated."""
    key = next((key for key in ROTATED_SHARES if config.get(key) is not None), None)
    share = 1.0 if key is None else config[key]
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise UsageError(f"{path}: {key} is {one_line(share)[:40]}; expected a share, above 0 and at most 1")
    return max(2, int(head_dim * share) // 2 * 2)


def _number(path: Path, config: Mapping[str, Any], name: str) -> int | None:
    """Return the number under the first key of `name` that has one; None if none has."""
    for key in NAMES[name]:
        value = config.get(key)
        if value is not None:
            if value == 0 and name in ZERO_IS_NONE:
                return None
            if type(value) is not int or not 0 < value < 1 << 31:
                raise UsageError(f"{path}: {key} is {one_line(value)[:40]}; expected a positive number")
            return value
    return None


def _needed(path: Path, numbers: Mapping[str, int | None], name: str) -> int:
    value = numbers[name]
    if value is None:
        raise UsageError(f"{path}: no {' or '.join(NAMES[name])}")
    return value
