"""The shapes that the programs about matmul draw."""

from __future__ import annotations

import argparse
from pathlib import Path

from validation import matmul_shapes


def given(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    matmul_shapes.add_arguments(parser, draws=5)
    return parser.parse_args(arguments)


def test_drawn_shapes_are_those_of_the_seed_and_odd_ones_are_among_them() -> None:
    shapes = matmul_shapes.drawn(200, 1)
    assert shapes == matmul_shapes.drawn(200, 1) != matmul_shapes.drawn(200, 2)
    for M, N, K in shapes:
        small = M * N <= matmul_shapes.SMALL_OUTPUT
        most = matmul_shapes.LONG_K if small else 16384
        assert all(size in range(1, 16385) for size in (M, N))
        assert K in range(1, most + 1)
    assert any(K > 16384 for *_, K in shapes)
    aligned = sum(all(size % 8 == 0 for size in shape) for shape in shapes)
    assert 60 < aligned < 140
    assert sum(min(shape) <= 16 for shape in shapes) > 40
    assert sum(max(shape) > 4096 for shape in shapes) > 40


def test_served_products_are_layers_of_models_with_few_and_many_tokens() -> None:
    shapes = matmul_shapes.served(500, 1)
    layers = {pair for model in matmul_shapes.MODELS for pair in matmul_shapes.matrices(model)}
    assert {(N, K) for _, N, K in shapes} == layers
    tokens = sorted(M for M, _, _ in shapes)
    assert tokens[0] == 1
    assert 4096 < tokens[-1] <= matmul_shapes.MAX_TOKENS
    assert 30 < tokens[250] < 250  # log-uniform: the median is near the square root of the most


def test_a_seed_draws_the_same_shapes_and_another_seed_others(tmp_path: Path) -> None:
    for kind in ([], ["--served"]):
        first, again, other = (matmul_shapes.chosen(given(*kind, "--seed", seed)) for seed in "112")
        assert first == again != other
        assert len(first) == 5
    path = tmp_path / "list.csv"
    path.write_text("M,N,K\n3,4,5\n")
    assert matmul_shapes.chosen(given("--served", "--shapes", str(path))) == [(3, 4, 5)]


def test_the_layer_of_a_model_whose_heads_are_wider_than_its_tokens() -> None:
    assert matmul_shapes.matrices("qwen3_32b") == [(10240, 5120), (5120, 8192), (51200, 5120), (5120, 25600)]
