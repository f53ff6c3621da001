"""A layer with quantized weights: its products, and the operations that make the codes for these products."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from suite.core.errors import UsageError
from suite.core.names import unknown
from suite.core.text import one_line
from suite.models.layer import ROUTER, Kind, Sizes
from suite.models.workload import LayerShape
from suite.numerics.float8 import FLOAT8

FORMS = {"plain": "", "fp8": "float8", "int4": "4-bit"}
"""Forms of weights, and the words for them: as stored, codes with a scale for each 128 x 128, groups of 128 codes."""
GROUP = 128
BLOCKS = {"block_scaled_matmul": "matmul", "grouped_block_scaled_matmul": "grouped_matmul"}
"""Products of float8 codes, and the plain ones that they replace."""


@dataclass(frozen=True)
class Weights:
    """The form of a layer's weights, a key of `FORMS`. zeros: codes of 4 bits have zero points."""

    form: str = "plain"
    zeros: bool = False

    def named(self, model: str) -> str:
        """The model's name with the form: `LlamaForCausalLM with float8 weights`."""
        return f"{model} with {FORMS[self.form]} weights" if FORMS[self.form] else model


def weights_of(path: Path, config: Mapping[str, Any], asked: str) -> Weights:
    """The form that `--weights` names, or else `quantization_config`; plain if there is neither.

    Raises `UsageError` for an unknown form, and for a configuration that no operation multiplies.
    """
    if asked:
        if asked not in FORMS:
            raise UsageError(f"--weights: {unknown(asked, FORMS)}")
        return Weights(asked)
    found = config.get("quantization_config")
    if not isinstance(found, Mapping):
        return Weights()
    method = found.get("quant_method")
    if method == "fp8" and found.get("weight_block_size") == [GROUP, GROUP]:
        return Weights("fp8")
    if method in ("awq", "gptq") and found.get("bits") == 4 and found.get("group_size") == GROUP:
        zeros = found.get("zero_point", True) if method == "awq" else not found.get("sym", True)
        return Weights("int4", zeros=bool(zeros))
    keys = ("quant_method", "bits", "group_size", "weight_block_size")
    given = ", ".join(f"{key} {one_line(found[key])[:40]}" for key in keys if key in found)
    raise UsageError(
        f"{path}: quantization_config has {given or 'no quant_method'}; known are fp8 with weight_block_size "
        f"[{GROUP}, {GROUP}], and awq and gptq with bits 4 and group_size {GROUP}. --weights plain takes 16-bit weights"
    )


def quantized(shapes: Sequence[LayerShape], weights: Weights, kind: Kind, sizes: Sizes) -> Iterator[LayerShape]:
    """The shapes of a layer whose products, but for the router's, have quantized weights."""
    if weights.form == "int4":
        yield from (_with_int4_weights(each, weights) for each in shapes)
    elif weights.form == "fp8":
        yield from _with_float8_weights(shapes, kind, sizes)
    else:
        yield from shapes


def _with_int4_weights(shape: LayerShape, weights: Weights) -> LayerShape:
    """A product with codes of 4 bits. Products of experts keep 16-bit weights: no operation has others."""
    if shape.operation != "matmul" or shape.name == ROUTER:
        return shape
    return replace(shape, operation="int4_matmul", options={"zeros": True} if weights.zeros else {})


def _with_float8_weights(shapes: Sequence[LayerShape], kind: Kind, sizes: Sizes) -> Iterator[LayerShape]:
    """Products of codes; the inputs of products are quantized in groups of 128, by the operation before if it can."""
    products = {plain: blocks for blocks, plain in BLOCKS.items()}
    for each in shapes:
        if each.operation in products and each.name != ROUTER:
            yield replace(each, operation=products[each.operation], options={}, dtype=FLOAT8)
        elif each.operation == "rms_norm" and sizes.latent:  # of the narrow products, before the wide ones
            yield _codes(replace(each, operation="rms_norm_quantize"))
        elif each.operation == "silu_mul" and each.options.get("activation") == "silu":
            yield _codes(replace(each, operation="silu_mul_quantize"))
        else:
            yield each
            if each.operation == "silu_mul":
                yield _codes(LayerShape(f"codes of {each.name}", 1, "quantize", each.dims))
    width = sizes.heads * (sizes.latent.value if sizes.latent else sizes.head_dim)
    yield _codes(LayerShape("codes of inputs", 2, "quantize", {"M": sizes.tokens, "N": sizes.hidden}))
    yield _codes(LayerShape("codes of attention", 1, "quantize", {"M": sizes.tokens, "N": width}))
    if not kind.gated:
        yield _codes(LayerShape("codes of activation", 1, "quantize", {"M": sizes.tokens, "N": sizes.inner}))


def _codes(shape: LayerShape) -> LayerShape:
    return replace(shape, options={"group": str(GROUP)})
