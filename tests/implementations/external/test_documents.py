"""What README.md and docs/own_kernels.md say of a user's file."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from external_files import CPU, check, external, status, write

from cuda_ref import _rewrite
from cuda_ref.compiler import missing
from suite import ops
from suite.core.paths import ROOT
from suite.implementations.external.implementation import signature
from suite.worker.pool import Pool

DOCUMENT = (ROOT / "docs" / "own_kernels.md").read_text(encoding="utf-8")


def fenced(language: str) -> str:
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE))


def normal(signature: str) -> str:
    return " ".join(signature.split()).replace("( ", "(")


def test_the_documented_launchers_are_those_of_the_tree() -> None:
    documented = fenced("cuda")
    assert set(_rewrite.launchers(documented)) == set(ops.names())
    for name in ops.names():
        source = (ROOT / "cuda_ref" / f"{name}.cu").read_text(encoding="utf-8")
        ours, theirs = (re.search(rf'extern "C" int {name}\(([^)]*)\)', text) for text in (source, documented))
        assert ours is not None
        assert theirs is not None
        assert normal(theirs[1]) == normal(ours[1])
        assert _rewrite.parameters(documented, name) == _rewrite.parameters(source, name)


def test_the_documented_functions_are_those_of_the_tree() -> None:
    documented = {line.partition("(")[0]: line for line in fenced("python").splitlines() if line}
    assert set(documented) == set(ops.names())
    for name, line in documented.items():
        assert ast.dump(ast.parse(line.replace("*, ", ""))) == ast.dump(ast.parse(signature(name).replace("*, ", "")))


@pytest.mark.skipif(missing("cpu") is not None, reason="needs a C++ compiler")
def test_the_readmes_example_is_true(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    story = text[text.index("## Your own kernel") : text.index("## Where the GPU starts to win")]
    naive, triton_file = re.findall(r"^```python\n(.*?)^```", story, re.DOTALL | re.MULTILINE)
    (cuda_file,) = re.findall(r"^```cuda\n(.*?)^```", story, re.DOTALL | re.MULTILINE)
    wrong, right = "return 1 / (1 + torch.exp(-x))", "return (1 / (1 + torch.exp(-x.float()))).to(x.dtype)"
    assert wrong in naive
    assert right in story
    assert external(write(tmp_path / "my_sigmoid.py", ""), "sigmoid").fault in story
    files = {"n.py": naive, "s.py": naive.replace(wrong, right), "t.py": triton_file, "c.cu": cuda_file}
    case = ops.get("sigmoid").case((5000,), "float16")
    with Pool(CPU) as pool:
        found = {
            name: status(check(pool, external(write(tmp_path / name, each), "sigmoid"), case))
            for name, each in files.items()
        }
    assert found == {
        "n.py": "wrong",
        "s.py": "ok",
        "t.py": "ok",
        "c.cu": "ok",
    }


def test_the_documents_say_that_the_file_runs_with_the_users_rights() -> None:
    for text in (DOCUMENT, (ROOT / "README.md").read_text(encoding="utf-8")):
        assert re.search(r"`--with` runs your code with your rights", text)
