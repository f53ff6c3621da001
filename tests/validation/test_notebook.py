"""The notebook of the examples: its cells run, and what does not depend on a clock is as printed there."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from suite.core.paths import ROOT
from validation.notebook import code_cells, outputs

NOTEBOOK = json.loads((ROOT / "examples" / "compare.ipynb").read_text(encoding="utf-8"))


def kinds(cell_outputs: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    return [(each["output_type"], sorted(each.get("data", {}))) for each in cell_outputs]


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the printed results are those of a CPU")
@pytest.mark.thorough
def test_the_cells_print_what_the_notebook_has() -> None:
    cells = code_cells(NOTEBOOK)
    for cell, found in zip(cells, outputs(cells), strict=True):
        source = "".join(cell["source"])
        assert kinds(found) == kinds(cell["outputs"]), source
        if "measured" not in cell["metadata"].get("tags", []):
            assert found == cell["outputs"], source


def test_a_viewer_that_has_no_styles_can_show_the_notebook() -> None:
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in NOTEBOOK["cells"]}) == len(NOTEBOOK["cells"])
    assert "<script" not in json.dumps(NOTEBOOK)
