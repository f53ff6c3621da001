"""`compare --model`: a layer of a model for each number of new tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suite.cli.model_options import layers_of, operations_of, own_dtype
from suite.core.errors import UsageError

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2,
    "num_key_value_heads": 1, "num_hidden_layers": 2, "torch_dtype": "bfloat16",
}  # fmt: skip


def config(tmp_path: Path, **changes: object) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, **changes}), encoding="utf-8")
    return path


def test_a_layer_for_each_number_of_tokens_at_the_end_of_one_sequence(tmp_path: Path) -> None:
    found = layers_of(config(tmp_path), ["1@1000,64@1000", "1@1000"])
    assert [(each.batch, each.seq, each.queries) for each in found] == [(1, 1000, 1), (1, 1000, 64)]
    attention = [shape.case for each in found for shape in each.shapes if shape.operation == "attention"]
    assert attention == ["B=1,H=2,H_kv=1,S_q=1,S_k=1000,D=32", "B=1,H=2,H_kv=1,S_q=64,S_k=1000,D=32,causal"]
    assert operations_of(found) == ["add_rms_norm", "matmul", "rope", "attention", "silu_mul"]
    assert own_dtype(found) == ["bfloat16"]


def test_the_defaults(tmp_path: Path) -> None:
    found = layers_of(config(tmp_path), None)
    assert [(each.seq, each.queries) for each in found] == [(4096, 1), (4096, 64), (4096, 4096)]
    assert [each.seq for each in layers_of(config(tmp_path), ["8192"])] == [8192]
    assert layers_of(None, None) == ()
    assert own_dtype(layers_of(config(tmp_path, torch_dtype=None), ["1"])) is None


def test_a_form_of_the_weights(tmp_path: Path) -> None:
    (found,) = layers_of(config(tmp_path), ["8"], "fp8")
    assert "block_scaled_matmul" in operations_of([found])
    assert own_dtype([found]) == ["bfloat16"]
    with pytest.raises(UsageError, match="--weights needs --model, which was not given"):
        layers_of(None, None, "fp8")


def test_all_tokens_of_an_encoder_are_new(tmp_path: Path) -> None:
    found = layers_of(config(tmp_path, model_type="bert"), ["16,64"])
    assert [(each.seq, each.queries) for each in found] == [(16, 16), (64, 64)]


@pytest.mark.parametrize(
    ("model_type", "tokens", "complaint"),
    [
        ("llama", "0", "--tokens '0': must be numbers from 1"),
        ("llama", "1,x", "--tokens 'x': must be numbers from 1"),
        ("llama", "1@", "--tokens '1@': must be numbers from 1"),
        ("llama", "64@8", "64 new tokens are more than the 8 of the sequence"),
        ("bert", "8@64", "the model is an encoder, all its tokens are new; give 8"),
        ("mamba", "8", "model_type is 'mamba'"),
        ("", "8", "--tokens needs --model, which was not given"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(tmp_path: Path, model_type: str, tokens: str, complaint: str) -> None:
    model = config(tmp_path, model_type=model_type) if model_type else None
    with pytest.raises(UsageError, match=complaint):
        layers_of(model, [tokens])
