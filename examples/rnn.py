"""Recurrent networks: an embedding, several layers of a vanilla RNN or of LSTM, and a last linear layer.

    python examples/rnn.py [--layers 2] [--hidden 64] [--steps 300] [--folder cuda_ref]

Both learn the next character of the licence of this repository, by PyTorch: the loss is in bits a character. Then the
operations of the suite compute the trained LSTM: one `lstm` with all layers, and one `matmul` for the linear layer. The
difference to PyTorch's logits is that of roundings. The CUDA kernels run emulated without a GPU.

A vanilla RNN has one product a step: h = tanh(x W_ih^T + h W_hh^T + b). LSTM adds a state that three gates keep, forget
and show, so that a gradient lasts over more steps.
"""

from __future__ import annotations

import argparse
import math
import sys
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
LENGTH, BATCH, RATE = 48, 32, 5e-3
WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
"""Names of a layer's parameters in torch.nn.LSTM, which has two biases; their sum is that of the operation."""


class VanillaLayer(nn.Module):
    """A layer of h = tanh(x W_ih^T + h W_hh^T + b), step after step; x (T, B, I), result (T, B, H)."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.from_input, self.from_state = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h, found = x.new_zeros(x.shape[1], self.from_state.in_features), []
        for step in self.from_input(x):
            h = torch.tanh(step + self.from_state(h))
            found.append(h)
        return torch.stack(found)


class Lstm(nn.Module):
    """Layers of LSTM by PyTorch; x (T, B, I), result (T, B, H)."""

    def __init__(self, inputs: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.inner = nn.LSTM(inputs, hidden, layers)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x)[0]
        return found


class Model(nn.Module):
    """Logits of the next character (T, B, characters), from numbers of characters (T, B)."""

    def __init__(self, kind: str, characters: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding, self.last = nn.Embedding(characters, hidden), nn.Linear(hidden, characters)
        vanilla = nn.Sequential(*(VanillaLayer(hidden, hidden) for _ in range(layers)))
        self.recurrent = vanilla if kind == "rnn" else Lstm(hidden, hidden, layers)

    def forward(self, text: Tensor) -> Tensor:
        found: Tensor = self.last(self.recurrent(self.embedding(text)))
        return found


def batch(text: Tensor, source: torch.Generator) -> Tensor:
    """Draw (LENGTH + 1, BATCH) neighbouring characters."""
    starts = torch.randint(len(text) - LENGTH - 1, (BATCH,), generator=source)
    return torch.stack([text[start : start + LENGTH + 1] for start in starts.tolist()], 1)


def train(model: Model, text: Tensor, steps: int) -> float:
    """Train by Adam; return the mean loss of the last tenth in bits a character."""
    optimizer, source, losses = torch.optim.Adam(model.parameters(), RATE), torch.Generator().manual_seed(0), []
    for _ in range(steps):
        drawn = batch(text, source).to(model.last.weight.device)
        loss = nn.functional.cross_entropy(model(drawn[:-1]).flatten(0, 1), drawn[1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    last = losses[-max(1, steps // 10) :]
    return sum(last) / len(last) / math.log(2.0)


@torch.no_grad()
def by_operations(model: Model, text: Tensor, folder: str) -> Tensor:
    """Compute a trained LSTM's logits by the operations of a folder."""
    lstm, matmul = (getattr(import_module(f"{folder}.{name}"), name) for name in ("lstm", "matmul"))
    assert isinstance(model.recurrent, Lstm)
    inner, x = model.recurrent.inner, model.embedding.weight[text]
    layers = range(inner.num_layers)
    w_ih, w_hh, b_ih, b_hh = ([getattr(inner, f"{name}_l{layer}") for layer in layers] for name in WEIGHTS)
    zero = x.new_zeros(len(layers), x.shape[1], inner.hidden_size)
    upper = torch.stack(w_ih[1:]) if len(layers) > 1 else zero.new_zeros(0, *w_hh[0].shape)
    bias = torch.stack(b_ih) + torch.stack(b_hh)
    y, _, _ = lstm(x, w_ih[0].detach(), torch.stack(w_hh), bias, zero, zero, upper)
    logits: Tensor = matmul(y.flatten(0, 1), model.last.weight.detach().T) + model.last.bias
    return logits.view(*text.shape, -1)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--folder", default="triton_kernels" if device == "cuda" else "cuda_ref")
    given = parser.parse_args()
    letters = (ROOT / "LICENSE").read_text(encoding="utf-8")
    alphabet = sorted(set(letters))
    text = torch.tensor([alphabet.index(each) for each in letters])
    torch.manual_seed(0)
    for kind in ("rnn", "lstm"):
        model = Model(kind, len(alphabet), given.hidden, given.layers).to(device)
        print(f"{kind:>4}: {train(model, text, given.steps):.3f} bits a character", flush=True)
    some = batch(text, torch.Generator().manual_seed(1))[:-1].to(device)
    with torch.no_grad():
        difference = (by_operations(model, some, given.folder) - model(some)).abs().max()
    print(f"largest difference of the logits by {given.folder}: {difference:.1e}")


if __name__ == "__main__":
    main()
