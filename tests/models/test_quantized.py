"""A model's layer with quantized weights: products of codes, and the operations that make the codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from models.test_config import CPU, DEEPSEEK, EXPERTS, LLAMA, summary

from suite.core.errors import UsageError
from suite.models.config import KINDS, workload
from suite.models.workload import Workload, from_document
from suite.numerics.float8 import FLOAT8
from suite.runner.plan import plan
from suite.runner.selection import Selection

BLOCKS = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
GROUPS: dict[str, Any] = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}


def of(tmp_path: Path, config: dict[str, Any], weights: str = "") -> Workload:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return workload(path, 2, 1024, 1024, weights)


def test_llama_in_float8(tmp_path: Path) -> None:
    found = of(tmp_path, LLAMA, "fp8")
    assert summary(found) == {
        "sums with norms": (2, "add_rms_norm", "M=2048,N=4096"),
        "query, output": (2, "block_scaled_matmul", "M=2048,N=4096,K=4096"),
        "key, value": (2, "block_scaled_matmul", "M=2048,N=1024,K=4096"),
        "rotation": (1, "rope", "B=2,S=1024,H=32,H_kv=8,D=128"),
        "attention": (1, "attention", "B=2,H=32,H_kv=8,S_q=1024,S_k=1024,D=128,causal"),
        "gate, up": (2, "block_scaled_matmul", "M=2048,N=14336,K=4096"),
        "activation": (1, "silu_mul_quantize", "M=2048,N=14336,group=128"),
        "down": (1, "block_scaled_matmul", "M=2048,N=4096,K=14336"),
        "codes of inputs, codes of attention": (3, "quantize", "M=2048,N=4096,group=128"),
    }
    assert {each.operation for each in found.shapes if each.dtype == FLOAT8} == {"block_scaled_matmul"}
    assert found.title == "LlamaForCausalLM with float8 weights, batch 2, 1024 tokens"


def test_deepseek_says_that_its_weights_are_float8(tmp_path: Path) -> None:
    plain, found = of(tmp_path, DEEPSEEK), of(tmp_path, {**DEEPSEEK, **BLOCKS})
    shapes = summary(found)
    assert shapes["experts' down"][1:] == ("grouped_block_scaled_matmul", "T=16384,E=256,K=2048,N=7168")
    assert shapes["key norm"][1:] == ("rms_norm_quantize", "M=2048,N=512,group=128")
    assert shapes["shared experts' activation"][1:] == ("silu_mul_quantize", "M=2048,N=2048,group=128")
    assert shapes["codes of attention"] == (1, "quantize", "M=2048,N=16384,group=128")
    assert shapes["router"] == summary(plain)["router"], "its weights are not quantized"
    assert of(tmp_path, {**DEEPSEEK, **BLOCKS}, "plain") == plain
    of_parts = of(tmp_path, {"model_type": "of_parts", "text_config": DEEPSEEK, **BLOCKS})
    assert of_parts.shapes == found.shapes


def test_activations_that_no_operation_quantizes_are_quantized_apart(tmp_path: Path) -> None:
    gelu = summary(of(tmp_path, {**LLAMA, "hidden_act": "gelu"}, "fp8"))
    assert gelu["activation"] == (1, "silu_mul", "M=2048,N=14336,activation=gelu_tanh")
    assert gelu["codes of activation"] == (1, "quantize", "M=2048,N=14336,group=128")
    ungated = summary(of(tmp_path, {**LLAMA, "model_type": "opt"}, "fp8"))
    assert ungated["codes of activation"] == (1, "quantize", "M=2048,N=14336,group=128")


@pytest.mark.parametrize(
    ("changes", "case"),
    [
        ({}, "M=2048,N=4096,K=14336,zeros"),
        ({"zero_point": False}, "M=2048,N=4096,K=14336"),
        ({"quant_method": "gptq", "sym": True}, "M=2048,N=4096,K=14336"),
        ({"quant_method": "gptq", "sym": False}, "M=2048,N=4096,K=14336,zeros"),
    ],
    ids=str,
)
def test_weights_of_4_bits(tmp_path: Path, changes: dict[str, Any], case: str) -> None:
    found = of(tmp_path, {**LLAMA, "quantization_config": {**GROUPS, **changes}})
    assert summary(found)["down"] == (1, "int4_matmul", case)
    assert found.model == "LlamaForCausalLM with 4-bit weights"


def test_experts_have_no_weights_of_4_bits(tmp_path: Path) -> None:
    found = summary(of(tmp_path, {**LLAMA, "model_type": "qwen3_moe", **EXPERTS}, "int4"))
    assert {found[name][1] for name in ("query, output", "key, value")} == {"int4_matmul"}
    assert (found["router"][1], found["experts' down"][1]) == ("matmul", "grouped_matmul")


@pytest.mark.parametrize(
    ("quantization", "complaint"),
    [
        ({"quant_method": "fp8"}, "has quant_method fp8; known are"),
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, r"weight_block_size \[64, 64\]; known are"),
        ({**GROUPS, "group_size": 64}, "has quant_method awq, bits 4, group_size 64; known are"),
        ({"quant_method": "mxfp4"}, "has quant_method mxfp4; known are"),
        ({}, "has no quant_method; known are"),
    ],
    ids=str,
)
def test_other_forms_are_refused_unless_a_form_is_given(
    tmp_path: Path, quantization: dict[str, Any], complaint: str
) -> None:
    config = {**LLAMA, "quantization_config": quantization}
    with pytest.raises(UsageError, match=complaint):
        of(tmp_path, config)
    assert of(tmp_path, config, "plain") == of(tmp_path, LLAMA)
    with pytest.raises(UsageError, match="--weights: unknown 'int8'"):
        of(tmp_path, config, "int8")


@pytest.mark.parametrize("weights", ["fp8", "int4"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_case_is_one_that_the_operation_makes(tmp_path: Path, kind: str, weights: str) -> None:
    """Products of codes keep their dtype; all other shapes are in the one asked for."""
    config = {**DEEPSEEK, **LLAMA, "model_type": kind}
    found = from_document(json.loads(of(tmp_path, config, weights).text()))
    jobs = plan(Selection(tuple(found.operations), dtypes=("bfloat16",), workloads=(found,)), CPU)
    cases = {(case.operation, case.label, case.dtype) for job in jobs for case in job.cases}
    assert cases == {(each.operation, each.case, each.dtype or "bfloat16") for each in found.shapes}


def test_a_dtype_that_the_operation_lacks_is_refused(tmp_path: Path) -> None:
    document = of(tmp_path, LLAMA, "fp8").document()
    next(each for each in document["shapes"] if "dtype" in each)["dtype"] = "float32"
    with pytest.raises(UsageError, match="dtype of shape 'query, output': unknown 'float32'"):
        from_document(document)
