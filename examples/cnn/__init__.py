"""The parts of examples/train_cnn.py: digits, the network, and its training by three frameworks."""

import os
import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2]))  # the suite and its kernels
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # other frameworks use the GPU too
