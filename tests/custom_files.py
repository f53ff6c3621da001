"""Operations in files, loaded in this process."""

from __future__ import annotations

from pathlib import Path

import torch

from suite import custom
from suite.checking.judge import Verdict, judge
from suite.custom.file import source_of
from suite.custom.operation import CustomOperation
from suite.problem.case import Case
from suite.problem.source import Kind

CPU = torch.device("cpu")
HEAD = "import torch\nfrom torch import Tensor\nfrom jaxtyping import Float\n\n"


def operation(folder: Path, text: str, name: str = "mine", kind: Kind = "reference") -> CustomOperation:
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    return custom.find(source_of(path, kind))


def verdict(op: CustomOperation, case: Case, output: torch.Tensor, inputs: tuple[torch.Tensor, ...]) -> Verdict:
    return judge(output, op.truth(inputs, case), shape=op.output_shape(case), dtype=op.output_dtype(case))
