"""Trains a small language model on the documents of this tree, and keeps some of its weights for `--inputs weights`.

    python validation/train_weights.py

It takes about a minute on one core of a CPU. The model predicts the next byte from the 16 before it, by an embedding
and three layers. The kept numbers are weights of its layers, each divided by the deviation of its layer's weights.
Their tails are heavier than those of a normal distribution.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "suite" / "problem" / "weights.npy"
CONTEXT, WIDTH, STEPS, BATCH, KEPT = 16, 192, 1500, 256, 1 << 14


def text() -> torch.Tensor:
    paths = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
    return torch.frombuffer(bytearray(b"\n".join(path.read_bytes() for path in paths)), dtype=torch.uint8).long()


def model() -> nn.Sequential:
    return nn.Sequential(
        nn.Embedding(256, 32),
        nn.Flatten(),
        nn.Linear(32 * CONTEXT, WIDTH),
        nn.GELU(),
        nn.Linear(WIDTH, WIDTH),
        nn.GELU(),
        nn.Linear(WIDTH, 256),
    )


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.manual_seed(0)
    data, network = text(), model()
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for step in range(STEPS):
        at = torch.randint(len(data) - CONTEXT, (BATCH,))
        loss = nn.functional.cross_entropy(network(data[at[:, None] + torch.arange(CONTEXT)]), data[at + CONTEXT])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if step % 250 == 0 or step == STEPS - 1:
            print(f"step {step:5d}  loss {loss.item():.3f}", flush=True)
    layers = [each.weight.detach().flatten() for each in network if isinstance(each, nn.Linear)]
    everything = torch.cat([each / each.std() for each in layers])
    kept = everything[torch.randperm(len(everything))[:KEPT]].half().numpy()
    np.save(FILE, kept)
    kurtosis = float(((kept.astype(np.float64) / kept.astype(np.float64).std()) ** 4).mean())
    print(
        f"{FILE.relative_to(ROOT)}: {KEPT} weights, kurtosis {kurtosis:.2f} (normal: 3), largest {abs(kept).max():.1f}"
    )


if __name__ == "__main__":
    main()
