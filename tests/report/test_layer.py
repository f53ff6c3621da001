"""The time of a model's layer: the sum of counts times times. A shape without a time leaves no sum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from diff.rows import folder
from report.rows import RECORD, row, run_of

from suite.core.errors import UsageError
from suite.models.workload import LayerShape, Workload
from suite.report.html import html
from suite.report.layer import Choice, Layer, layers, layers_of
from suite.report.layer_table import layer_tables
from suite.report.load import load_runs
from suite.report.markdown import markdown
from suite.results.row import Row

SHAPES = [
    LayerShape("up", 2, "matmul", {"M": 64, "N": 64, "K": 64}, {"layout": "nn"}),
    LayerShape("norms", 3, "rms_norm", {"M": 64, "N": 64}),
]
WORKLOAD = Workload("Small", 10, 1, 64, 64, "bfloat16", SHAPES)


def timed(implementation: str, us: float, **values: Any) -> Row:
    times = {"device_us": us, "device_us_low": us, "device_us_high": us}
    return row(implementation, **times, **{"case": "M=64,N=64,K=64", **values})


def rows(**norm: Any) -> list[Row]:
    found = [timed("torch", 100.0), timed("triton", 120.0), timed("cuda", 80.0)]
    norm = {"case": "M=64,N=64", "operation": "rms_norm", **norm}
    return [*found, timed("torch", 10.0, **norm), timed("triton", 8.0, **norm)]


def layer_of(path: Path, found: list[Row]) -> Layer:
    run = run_of(path / "run", found, {**RECORD, "workload": WORKLOAD.document()})
    (layer,) = layers([run])
    return layer


def test_the_sum_by_implementation(tmp_path: Path) -> None:
    layer = layer_of(tmp_path, rows())
    assert layer.whole_layer == [
        Choice("the fastest for each shape", 2 * 80.0 + 3 * 8.0),
        Choice("vendor libraries", 2 * 100.0 + 3 * 10.0),
        Choice("torch", 2 * 100.0 + 3 * 10.0),
        Choice("triton", 2 * 120.0 + 3 * 8.0),
    ]
    assert layer.choices("matmul") == [Choice("cuda", 160.0), Choice("torch", 200.0), Choice("triton", 240.0)]
    assert layer.sentences == [
        "A layer takes 184.0 us with the fastest for each shape and 230.0 us with vendor libraries alone, 1.250 times "
        "as long; 10 layers take 1.840 ms.",
        "With one implementation for each operation it takes 184.0 us: cuda for matmul, triton for rms_norm.",
    ]


def test_products_of_codes_are_parts_of_a_layer_in_16_bits() -> None:
    """A shape with a dtype of its own has that dtype in the layers of all others."""
    product = LayerShape("up", 2, "block_scaled_matmul", {"M": 64, "N": 64, "K": 64}, dtype="float8_e4m3fn")
    codes = {"operation": "block_scaled_matmul", "dtype": "float8_e4m3fn", "precision": "promoted"}
    of_norm: dict[str, Any] = {"operation": "rms_norm", "case": "M=64,N=64"}
    found = [
        timed("cuda", 40.0, **codes),
        timed("cuda", 10.0, dtype="bfloat16", **of_norm),
        timed("triton", 8.0, dtype="float16", **of_norm),
    ]
    workload = Workload("Small", 10, 1, 64, 64, "bfloat16", [product, SHAPES[1]])
    times = {each.arithmetic: each.whole_layer[0].us for each in layers_of([workload], found)}
    assert times == {"bfloat16": 2 * 40.0 + 3 * 10.0, "float16": 2 * 40.0 + 3 * 8.0}
    (alone,) = layers_of([workload], found[:1])
    assert (alone.arithmetic, alone.parts[0].us(alone.parts[0].pick)) == ("float8_e4m3fn promoted", 80.0)
    assert alone.sentences == ["There is no time of norms (rms_norm M=64,N=64): no sum of the layer."]


def test_a_run_ends_with_a_column_for_each_number_of_tokens() -> None:
    decoding = [
        LayerShape("up", 2, "matmul", {"M": 1, "N": 64, "K": 64}, {"layout": "nn"}),
        LayerShape("norms", 3, "rms_norm", {"M": 1, "N": 64}),
    ]
    found = [
        *rows(),
        timed("torch", 5.0, case="M=1,N=64,K=64"),
        timed("torch", 1.0, case="M=1,N=64", operation="rms_norm"),
    ]
    workloads = [Workload("Small", 10, 1, 64, 1, "bfloat16", decoding), WORKLOAD]
    text = [str(line) for line in layer_tables(layers_of(workloads, found), 80)]
    assert text[1] == "one of 10 layers of Small, bfloat16; sum of the device us of its calls"
    assert text[2].split("  ")[0] == "each part by"
    cells = {line[:26].strip(): line.split()[-2:] for line in text[3:7]}
    assert text[2].split()[3:] == ["1", "token", "64", "tokens"]
    assert cells["the fastest for each shape"] == ["13.0", "184.0"]
    assert any(line.split() == ["up", "matmul", "torch", "10.0", "cuda", "160.0"] for line in text)
    assert any(line.split() == ["norms", "rms_norm", "torch", "3.0", "triton", "24.0"] for line in text)
    assert any(line.startswith("64 tokens: A layer takes 184.0 us with the fastest for each shape") for line in text)
    assert all(len(line) <= 80 for line in text)


def test_a_choice_that_lacks_a_part_has_an_empty_cell() -> None:
    few = [each for each in rows() if each.implementation != "torch"]
    decoding = Workload("Small", 10, 1, 64, 1, "bfloat16", [LayerShape("norms", 3, "rms_norm", {"M": 1, "N": 64})])
    found = [*few, timed("torch", 1.0, case="M=1,N=64", operation="rms_norm")]
    text = [str(line) for line in layer_tables(layers_of([decoding, WORKLOAD], found), 80)]
    (torch,) = [line for line in text[3:] if line.startswith("torch ")]
    assert torch.split() == ["torch", "3.0"]


def test_a_record_of_a_single_workload_is_read(tmp_path: Path) -> None:
    several = run_of(tmp_path / "new", rows(), {**RECORD, "workloads": [WORKLOAD.document(), WORKLOAD.document()]})
    assert [each.whole_layer[0].us for each in layers([several])] == [184.0, 184.0]
    assert layer_of(tmp_path / "old", rows()).whole_layer[0].us == 184.0


def test_noisy_times_are_counted_and_said(tmp_path: Path) -> None:
    assert layer_of(tmp_path, rows(noisy=True)).sentences[-1] == "1 of these times are noisy."


def test_without_a_time_of_every_shape_there_is_no_sum(tmp_path: Path) -> None:
    layer = layer_of(tmp_path, rows(status="wrong"))
    assert layer.sentences == ["There is no time of norms (rms_norm M=64,N=64): no sum of the layer."]
    assert layer.whole_layer == []


def test_both_reports_have_it(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", rows(), {**RECORD, "workload": WORKLOAD.document()})
    for text in (html([run]), markdown([run], [], tmp_path)):
        assert "With one implementation for each operation it takes 184.0 us" in text
        assert "Small, batch 1, 64 tokens" in text
    assert "Time of a layer" not in markdown([run_of(tmp_path / "plain", rows())], [], tmp_path)


def test_a_folder_below_has_a_workload_of_its_own(tmp_path: Path) -> None:
    folder(tmp_path / "run", [timed("torch", 1.0)], RECORD)
    folder(tmp_path / "run" / "small", rows(), {**RECORD, "workload": WORKLOAD.document()})
    (layer,) = layers(load_runs([tmp_path / "run"]))
    assert layer.whole_layer[0].us == 184.0


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", rows(), {**RECORD, "workload": {"shapes": 3}})
    with pytest.raises(UsageError, match="the workload in its environment record is damaged: model is missing"):
        list(layers([run]))
