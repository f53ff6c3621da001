"""Where the package's files are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds `suite/` and the kernel folders."""
