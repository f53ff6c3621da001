"""`shapes`: a transformer's configuration as shapes, which `compare` reads and a report adds up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from diff.rows import assert_one_error
from diff.rows import run as suite

from suite import ops
from suite.cli.shape_files import shapes_from
from suite.core.errors import UsageError
from suite.core.paths import ROOT
from suite.hardware.device import Device
from suite.models.config import KINDS, workload
from suite.models.workload import Workload, from_document
from suite.runner.plan import plan
from suite.runner.selection import Selection

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32, "torch_dtype": "bfloat16",
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_inner": None}
EXPERTS = {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}
DEEPSEEK = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "num_attention_heads": 128, "num_key_value_heads": 128, "num_hidden_layers": 61, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip
CPU = Device("cpu", name="CPU")


def of(tmp_path: Path, config: Any, batch: int = 2, seq: int = 1024, queries: int = 1024) -> Workload:
    path = tmp_path / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    return workload(path, batch, seq, queries)


def summary(found: Workload) -> dict[str, tuple[int, str, str]]:
    return {each.name: (each.count, each.operation, each.case) for each in found.shapes}


def test_llama(tmp_path: Path) -> None:
    found = of(tmp_path, LLAMA)
    assert summary(found) == {
        "sums with norms": (2, "add_rms_norm", "M=2048,N=4096"),
        "rotation": (1, "rope", "B=2,S=1024,H=32,H_kv=8,D=128"),
        "activation": (1, "silu_mul", "M=2048,N=14336"),
        "query, output": (2, "matmul", "M=2048,N=4096,K=4096,layout=nt"),
        "key, value": (2, "matmul", "M=2048,N=1024,K=4096,layout=nt"),
        "attention": (1, "attention", "B=2,H=32,H_kv=8,S_q=1024,S_k=1024,D=128,causal"),
        "gate, up": (2, "matmul", "M=2048,N=14336,K=4096,layout=nt"),
        "down": (1, "matmul", "M=2048,N=4096,K=14336,layout=nt"),
    }
    assert (found.title, found.layers, found.dtype) == ("LlamaForCausalLM, batch 2, 1024 tokens", 32, "bfloat16")


def test_the_products_of_a_layer_have_its_parameters(tmp_path: Path) -> None:
    """A layer of Llama 3 8B has 218,103,808 weights, without those of norms."""
    products = [each for each in of(tmp_path, LLAMA).shapes if each.operation == "matmul"]
    assert sum(each.count * each.dims["N"] * each.dims["K"] for each in products) == 218_103_808


def test_gpt2(tmp_path: Path) -> None:
    assert summary(of(tmp_path, GPT2)) == {
        "sums": (2, "matrix_add", "M=2048,N=768"),
        "norms": (2, "layer_norm", "M=2048,N=768"),
        "query, key, value": (1, "matmul", "M=2048,N=2304,K=768"),
        "attention": (1, "attention", "B=2,H=12,H_kv=12,S_q=1024,S_k=1024,D=64,causal"),
        "output": (1, "matmul", "M=2048,N=768,K=768"),
        "up": (1, "matmul", "M=2048,N=3072,K=768"),
        "down": (1, "matmul", "M=2048,N=768,K=3072"),
    }


@pytest.mark.parametrize(
    ("changes", "part", "case"),
    [
        ({"model_type": "mistral", "sliding_window": 4096}, "down", "M=2048,N=4096,K=14336,layout=nt"),
        ({"model_type": "qwen2", "num_key_value_heads": 4}, "key, value", "M=2048,N=512,K=4096,layout=nt"),
        ({"model_type": "qwen3", "head_dim": 64}, "key norm", "M=16384,N=64"),
        ({"model_type": "phi3"}, "query, key, value", "M=2048,N=6144,K=4096,layout=nt"),
        ({"model_type": "phi3"}, "gate and up", "M=2048,N=28672,K=4096,layout=nt"),
        ({"model_type": "gemma", "head_dim": 256}, "query", "M=2048,N=8192,K=4096,layout=nt"),
        ({"model_type": "gpt_neox", "num_key_value_heads": None}, "up", "M=2048,N=14336,K=4096,layout=nt"),
        ({"model_type": "gemma2", "head_dim": 256}, "norms", "M=2048,N=4096"),
        ({"model_type": "gemma3_text", "head_dim": 64}, "query norm", "M=65536,N=64"),
        ({"model_type": "gemma2", "head_dim": 256}, "sums with norms", "M=2048,N=4096"),
        ({"model_type": "gemma2", "hidden_activation": "gelu_pytorch_tanh"}, "activation",
         "M=2048,N=14336,activation=gelu_tanh"),
        ({"model_type": "olmo2", "num_key_value_heads": 4}, "key norm", "M=2048,N=512"),
        ({"model_type": "olmo2"}, "sums", "M=2048,N=4096"),
        ({"model_type": "gpt_neox", "rotary_pct": 0.25}, "rotation", "B=2,S=1024,H=32,H_kv=8,D=32"),
        ({"model_type": "bert"}, "attention", "B=2,H=32,H_kv=8,S_q=1024,S_k=1024,D=128"),
        ({"model_type": "vit", "num_key_value_heads": None}, "up", "M=2048,N=14336,K=4096,layout=nt"),
        ({"model_type": "qwen3_moe", **EXPERTS}, "experts' gate, up", "T=16384,E=128,K=4096,N=768,layout=nt"),
        ({"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}, "router",
         "M=2048,N=8,K=4096,layout=nt"),
        ({"model_type": "gpt_oss", "num_local_experts": 32, "experts_per_token": 4}, "experts' gate and up",
         "T=8192,E=32,K=4096,N=28672"),
        ({"model_type": "opt", "ffn_dim": 512, "intermediate_size": None}, "up", "M=2048,N=512,K=4096,layout=nt"),
    ],
    ids=str,
)  # fmt: skip
def test_families(tmp_path: Path, changes: dict[str, Any], part: str, case: str) -> None:
    assert summary(of(tmp_path, {**LLAMA, **changes}))[part][2] == case


def test_experts_are_one_product_of_all_their_rows(tmp_path: Path) -> None:
    config = {**LLAMA, "model_type": "qwen3_moe", **EXPERTS}
    down = summary(of(tmp_path, config))["experts' down"]
    assert down == (1, "grouped_matmul", "T=16384,E=128,K=768,N=4096,layout=nt")
    one = summary(of(tmp_path, config, 1, 1024, 1))
    assert one["experts' gate, up"] == (2, "grouped_matmul", "T=8,E=128,K=4096,N=768,layout=nt")
    with pytest.raises(UsageError, match="9 experts for each token, but there are only 8"):
        of(tmp_path, {**config, "num_experts": 8, "num_experts_per_tok": 9})


def test_deepseek(tmp_path: Path) -> None:
    found = summary(of(tmp_path, DEEPSEEK))
    assert found == {
        "sums with norms": (2, "add_rms_norm", "M=2048,N=7168"),
        "rotation": (1, "rope", "B=2,S=1024,H=128,H_kv=1,D=64,layout=pairs"),
        "query norm": (1, "rms_norm", "M=2048,N=1536"),
        "key norm": (1, "rms_norm", "M=2048,N=512"),
        "query, narrow": (1, "matmul", "M=2048,N=1536,K=7168,layout=nt"),
        "query": (1, "matmul", "M=2048,N=24576,K=1536,layout=nt"),
        "key and value, narrow": (1, "matmul", "M=2048,N=576,K=7168,layout=nt"),
        "key and value": (1, "matmul", "M=2048,N=32768,K=512,layout=nt"),
        "attention": (1, "attention", "B=2,H=128,H_kv=128,S_q=1024,S_k=1024,D=192,causal"),
        "output": (1, "matmul", "M=2048,N=7168,K=16384,layout=nt"),
        "router": (1, "matmul", "M=2048,N=256,K=7168,layout=nt"),
        "experts' gate, up": (2, "grouped_matmul", "T=16384,E=256,K=7168,N=2048,layout=nt"),
        "experts' activation": (1, "silu_mul", "M=16384,N=2048"),
        "shared experts' activation": (1, "silu_mul", "M=2048,N=2048"),
        "experts' down": (1, "grouped_matmul", "T=16384,E=256,K=2048,N=7168,layout=nt"),
        "shared experts' gate, up": (2, "matmul", "M=2048,N=2048,K=7168,layout=nt"),
        "shared experts' down": (1, "matmul", "M=2048,N=7168,K=2048,layout=nt"),
    }


@pytest.mark.parametrize(
    ("config", "cases"),
    [
        (
            {"model_type": "t5", "d_model": 512, "num_heads": 6, "d_kv": 64, "d_ff": 1024, "num_layers": 8,
             "feed_forward_proj": "gated-gelu"},
            {"query": "M=2048,N=384,K=512,layout=nt", "gate, up": "M=2048,N=1024,K=512,layout=nt",
             "attention": "B=2,H=6,H_kv=6,S_q=1024,S_k=1024,D=64"},
        ),
        (
            {"model_type": "whisper", "d_model": 384, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536,
             "encoder_layers": 4},
            {"up": "M=2048,N=1536,K=384,layout=nt", "norms": "M=2048,N=384"},
        ),
    ],
)  # fmt: skip
def test_encoders(tmp_path: Path, config: dict[str, Any], cases: dict[str, str]) -> None:
    found = summary(of(tmp_path, config))
    parts = {part: case for names, (_, _, case) in found.items() for part in [names, *names.split(", ")]}
    assert {part: parts[part] for part in cases} == cases
    with pytest.raises(UsageError, match="is an encoder, all tokens are new"):
        of(tmp_path, config, 1, 1024, 1)


def test_the_language_model_of_a_larger_one(tmp_path: Path) -> None:
    inner = of(tmp_path, {"model_type": "a_picture_model", "text_config": LLAMA})
    assert inner == of(tmp_path, LLAMA)


def test_decoding_has_one_query_and_no_mask(tmp_path: Path) -> None:
    found = of(tmp_path, LLAMA, 4, 1024, 1)
    assert summary(found)["attention"][2] == "B=4,H=32,H_kv=8,S_q=1,S_k=1024,D=128"
    assert summary(found)["down"][2].startswith("M=4,")
    assert found.title == "LlamaForCausalLM, batch 4, 1 tokens after 1023"


@pytest.mark.parametrize("kind", KINDS)
def test_every_case_is_one_that_the_operation_makes(tmp_path: Path, kind: str) -> None:
    """A report finds the rows of a shape by the text of its case."""
    found = from_document(json.loads(of(tmp_path, {**DEEPSEEK, **LLAMA, "model_type": kind}, 1, 8, 8).text()))
    jobs = plan(Selection(tuple(found.operations), dtypes=("float32",), workloads=(found,)), CPU)
    cases = {(case.operation, case.label) for job in jobs for case in job.cases}
    assert cases == {(each.operation, each.case) for each in found.shapes}


def test_only_the_operations_asked_for_are_run(tmp_path: Path) -> None:
    found = of(tmp_path, LLAMA, 1, 8, 8)
    jobs = plan(Selection(("attention", "sigmoid"), dtypes=("bfloat16",), workloads=(found,)), CPU)
    assert [(job.op.name, len(job.cases)) for job in jobs] == [("attention", 1)]
    with pytest.raises(
        UsageError, match="the model has shapes of add_rms_norm, matmul, rope, attention, silu_mul, not of sigmoid"
    ):
        plan(Selection(("sigmoid",), workloads=(found,)), CPU)
    with pytest.raises(UsageError, match="leave out --shape and --inputs"):
        plan(Selection(("matmul",), shapes=("4096",), workloads=(found,)), CPU)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ("{", "no JSON"),
        ("[]", "no configuration of a model"),
        ({"hidden_size": 8}, "model_type is 'None'; known are llama"),
        ({**LLAMA, "model_type": "mamba"}, "model_type is 'mamba'"),
        ({**LLAMA, "hidden_size": None}, "no hidden_size or n_embd"),
        ({**LLAMA, "intermediate_size": "big"}, "intermediate_size is big; expected a positive number"),
        ({**LLAMA, "num_key_value_heads": 5}, "32 attention heads are no multiple of 5"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_other_files_are_refused_in_one_line(tmp_path: Path, config: Any, complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        of(tmp_path, config)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_command_writes_what_compare_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = of(tmp_path, LLAMA, 1, 64, 64)
    assert suite(monkeypatch, "shapes", "config.json", "--seq", "64") == 0
    said = capsys.readouterr().err
    assert "compare --op add_rms_norm --op matmul --op rope --op attention --op silu_mul --shapes-from" in said
    assert "--dtype bf16" in said
    assert shapes_from(Path("llamaforcausallm-b1-s64.json")) == ([], expected)
    assert suite(monkeypatch, "shapes", "config.json", "--seq", "8", "--queries", "9") == 2
    assert_one_error(capsys, "must lie between 1 and --seq 8")
    assert suite(monkeypatch, "shapes", "none.json") == 2
    assert suite(monkeypatch, "shapes", "config.json", "--out", "llamaforcausallm-b1-s64.json") == 0
    capsys.readouterr()
    assert suite(monkeypatch, "shapes", "config.json", "--out", "config.json") == 2
    assert_one_error(
        capsys, "config.json is not a file of this command and is left alone; give another file with --out"
    )
    assert of(tmp_path, LLAMA, 1, 64, 64) == expected


def test_the_example_of_the_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    expected = page.split("--out llama.json\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    assert suite(monkeypatch, "shapes", ROOT / "examples" / "llama3_8b.json", "--out", "llama.json") == 0
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"layers": 0}, "layers is 0; expected a positive number"),
        ({"shapes": []}, "shapes is empty"),
        ({"shapes": [{"name": "a", "count": 1, "operation": "fft", "N": 4}]}, "unknown operation 'fft'"),
        ({"shapes": [{"name": "a", "count": 1, "operation": "matmul", "M": [4]}]}, "neither a size nor an option"),
    ],
    ids=["layers", "empty", "operation", "size"],
)
def test_a_damaged_workload_is_refused(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    document = {**of(tmp_path, LLAMA).document(), **change}
    path = tmp_path / "shapes.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(UsageError, match=complaint):
        shapes_from(path)


def test_sizes_and_options_that_an_operation_lacks_are_refused() -> None:
    about = {"model": "m", "layers": 1, "batch": 1, "seq": 1, "queries": 1, "dtype": ""}
    for shape, complaint in (
        ({"M": 4}, "missing N, K"),
        ({"M": 4, "N": 4, "K": 4, "layout": "xx"}, "--layout: unknown 'xx'"),
        ({"M": 4, "N": 4, "K": 4, "causal": True}, "is not an option of matmul"),
    ):
        found = from_document({**about, "shapes": [{"name": "a", "count": 1, "operation": "matmul", **shape}]})
        with pytest.raises(UsageError, match=complaint):
            plan(Selection(("matmul",), workloads=(found,)), CPU)
    assert ops.get("matmul").dims == ("M", "N", "K")
