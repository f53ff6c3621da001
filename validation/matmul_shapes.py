"""The shapes of the programs about matmul: a list, random ones, or those that a server of language models computes."""

from __future__ import annotations

import argparse
import csv
import math
import random
from pathlib import Path

from suite.core.integers import cdiv

Shape = tuple[int, int, int]
LONG_K, SMALL_OUTPUT = 131072, 2**16
"""Largest K that is drawn, where M N is at most SMALL_OUTPUT."""
MAX_PRODUCTS = 2**40
"""Largest number of multiplications of a drawn shape: larger ones take most of the time and add little."""
MAX_TOKENS = 8192
MODELS = {
    "bert_large": (1024, 1024, 1024, 4096, 1),
    "gemma2_9b": (3584, 4096, 2048, 14336, 2),
    "gemma3_4b": (2560, 2048, 1024, 10240, 2),
    "gemma3_27b": (5376, 4096, 2048, 21504, 2),
    "llama3_1b": (2048, 2048, 512, 8192, 2),
    "llama3_8b": (4096, 4096, 1024, 14336, 2),
    "llama3_70b": (8192, 8192, 1024, 28672, 2),
    "olmo2_7b": (4096, 4096, 4096, 11008, 2),
    "phi4": (5120, 5120, 1280, 17920, 2),
    "qwen2.5_0.5b": (896, 896, 128, 4864, 2),
    "qwen2.5_1.5b": (1536, 1536, 256, 8960, 2),
    "qwen2.5_7b": (3584, 3584, 512, 18944, 2),
    "qwen3_8b": (4096, 4096, 1024, 12288, 2),
    "qwen3_32b": (5120, 8192, 1024, 25600, 2),
    "whisper_large": (1280, 1280, 1280, 5120, 1),
}
"""Widths of public models: of a token, of all query heads, of all key heads, of the feed-forward layer, and the number
of matrices that lead into that layer (2: a gate and its factor, which are multiplied as one matrix)."""


def drawn(count: int, seed: int) -> list[Shape]:
    """Draw M, N and K log-uniform from 1 to 16384, K to 131072 for small outputs; half with multiples of 8."""
    source = random.Random(seed)
    shapes: list[Shape] = []
    while len(shapes) < count:
        sizes: list[int] = []
        for _ in range(3):
            most = LONG_K if len(sizes) == 2 and math.prod(sizes) <= SMALL_OUTPUT else 16384
            sizes.append(round(math.exp(source.uniform(0, math.log(most)))))
        if source.random() < 0.5:
            sizes = [cdiv(size, 8) * 8 for size in sizes]
        if math.prod(sizes) <= MAX_PRODUCTS:
            shapes.append((sizes[0], sizes[1], sizes[2]))
    return shapes


def matrices(model: str) -> list[tuple[int, int]]:
    """Return N and K of a layer's products x W^T: queries, keys and values in one; output; feed-forward in, out."""
    width, queries, keys, inner, inputs = MODELS[model]
    return [(queries + 2 * keys, width), (width, queries), (inputs * inner, width), (width, inner)]


def served(count: int, seed: int) -> list[Shape]:
    """Draw a matrix of a model in MODELS, and 1 to MAX_TOKENS tokens log-uniform, as M. The layout is nt."""
    source = random.Random(seed)
    shapes = []
    for _ in range(count):
        N, K = source.choice(matrices(source.choice(list(MODELS))))
        shapes.append((round(math.exp(source.uniform(0, math.log(MAX_TOKENS)))), N, K))
    return shapes


def listed(path: Path) -> list[Shape]:
    """Read the columns M, N and K of a CSV file."""
    with path.open(newline="") as file:
        return [(int(row["M"]), int(row["N"]), int(row["K"])) for row in csv.DictReader(file)]


def add_arguments(parser: argparse.ArgumentParser, draws: int) -> None:
    """Add the arguments that `chosen` reads."""
    parser.add_argument("--shapes", type=Path, help="CSV file with columns M, N and K")
    parser.add_argument("--draws", type=int, default=draws, help=f"random shapes, without --shapes ({draws})")
    parser.add_argument("--seed", type=int, default=1, help="of the shapes (1)")
    parser.add_argument(
        "--served", action="store_true", help="draw products of public models with 1 to 8192 tokens (layout nt)"
    )


def chosen(given: argparse.Namespace) -> list[Shape]:
    """Return the shapes that the arguments ask for."""
    if given.shapes:
        return listed(given.shapes)
    return (served if given.served else drawn)(given.draws, given.seed)
