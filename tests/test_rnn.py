"""examples/rnn.py: the recurrent networks learn, and the suite's operations compute the same LSTM as PyTorch."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module

import pytest
import torch

from suite.core.paths import ROOT

EXAMPLE = ROOT / "examples" / "rnn.py"


@pytest.mark.thorough
def test_layers_of_lstm_by_the_operations_have_the_logits_of_pytorch() -> None:
    command = [sys.executable, EXAMPLE, "--layers", "3", "--hidden", "16", "--steps", "40", "--folder", "cuda_ref"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    bits = [float(each) for each in re.findall(r"([\d.]+) bits", done.stdout)]
    assert len(bits) == 2
    assert max(bits) < 5.0, "an even guess among the characters has 6 bits"
    assert float(done.stdout.split()[-1]) < 1e-5


def test_the_vanilla_layer_is_that_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    own = import_module("rnn").VanillaLayer(5, 7)
    theirs = torch.nn.RNN(5, 7)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(own.from_input.weight)
        theirs.weight_hh_l0.copy_(own.from_state.weight)
        theirs.bias_ih_l0.copy_(own.from_input.bias)
        theirs.bias_hh_l0.zero_()
        x = torch.randn(4, 3, 5)
        torch.testing.assert_close(own(x), theirs(x)[0])
