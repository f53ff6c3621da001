"""Facts that are read from a user's file before anything runs."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest
from external_files import CPU, CUDA_FILE, RIGHT, TRITON_FILE, external, write

from suite import ops
from suite.core.errors import UsageError
from suite.core.files import MAX_SOURCE_BYTES
from suite.external.implementation import from_files
from suite.runner.compare import compare
from suite.runner.options import Options
from suite.runner.plan import Job, plan
from suite.runner.selection import Selection

UNUSABLE: dict[str, tuple[str, str | bytes, str]] = {
    "empty": ("k.py", "", "k.py has no function vector_add; it defines nothing"),
    "no_such_function": (
        "k.py",
        "import torch\nframework = 'torch'\ndef add(a, b): ...\nclass Other: ...\n_x = 1\n",
        "k.py has no function vector_add; it defines add, Other",
    ),
    "only_in_a_class": ("k.py", "class A:\n    def vector_add(self): ...\n", "it defines A"),
    "syntax": ("k.py", "x = 1\ndef vector_add(a, b):\n    return a +\n", "SyntaxError: invalid syntax (k.py:3)"),
    "not_utf8": ("k.py", b"x = 1\ny = '\xff'\n" + RIGHT.encode(), "(k.py"),
    "null_byte": ("k.py", RIGHT.encode() + b"\0", "null bytes"),
    "nested": ("k.py", "x = " + "(" * 5000 + ")" * 5000 + "\n", "Error: "),
    "framework": ("k.py", RIGHT + "framework = 'mxnet'\n", "framework must be one of 'triton', 'jax', 'cuda'"),
    "framework_computed": ("k.py", "framework = 'j' + 'ax'\n" + RIGHT, "written out (k.py:1)"),
    "requires": (
        "k.py",
        RIGHT + "REQUIRES = 'gpu'\n",
        "REQUIRES must be 'cuda' or such as 'sm_90', written out (k.py:3)",
    ),
    "cu_empty": ("k.cu", "", 'k.cu has no extern "C" int vector_add(...); it defines nothing'),
    "cu_other": ("k.cu", CUDA_FILE.replace("vector_add", "add2"), "it defines add2"),
    "cu_in_a_comment": ("k.cu", "// " + CUDA_FILE.split("\n\n")[2].split("\n")[0], "it defines nothing"),
    "cu_parameters": (
        "k.cu",
        CUDA_FILE.replace("int64_t dtype", "float dtype"),
        "int64_t, float), but must take (pointer",
    ),
    "cu_line": ("k.cu", CUDA_FILE.replace("int64_t dtype, ", ""), "see `list vector_add` (k.cu:9)"),
    "cu_no_record": ("k.cu", CUDA_FILE.replace(", LaunchRecord* record", ""), "LaunchRecord* record) (k.cu:9)"),
    "cu_not_utf8": ("k.cu", b"//\n// \xff\n" + CUDA_FILE.encode(), "UnicodeDecodeError: not UTF-8 (k.cu:2)"),
    "cu_requires": ("k.cu", "// requires: hopper\n" + CUDA_FILE, "requires: an architecture such as sm_80"),
}


@pytest.mark.parametrize(("name", "text", "reason"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_fault_that_reading_shows_is_reported_before_anything_runs(
    name: str, text: str | bytes, reason: str, tmp_path: Path
) -> None:
    line = external(write(tmp_path / name, text))
    assert line.name == "with/k"
    status, shown = line.obstacle(CPU) or ("", "")
    assert status == "error"
    assert reason in shown
    assert "\n" not in shown


def test_a_path_without_a_source_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    write(tmp_path / "gene.py", RIGHT)
    write(tmp_path / "k.txt", RIGHT)
    write(tmp_path / "k", RIGHT)
    (tmp_path / "loop.py").symlink_to(tmp_path / "loop.py")
    for name, complaint in {
        "gone.py": "there is no such file; did you mean gene.py?",
        "far.py": "there is no such file",
        "gone/gone.py": "there is no such file",
        ".": "is a folder; give a .py or .cu file",
        "pipe.py": "is not a regular file",
        "k.txt": "is neither a .py nor a .cu file",
        "k": "is neither a .py nor a .cu file",
    }.items():
        with pytest.raises(UsageError, match=f"{re.escape(f'--with {tmp_path / name}: {complaint}')}$"):
            external(tmp_path / name)
    with pytest.raises(UsageError, match=r"--with .*loop\.py: cannot be read"):
        external(tmp_path / "loop.py")


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        (RIGHT, "torch"),
        ("framework = 'jax'\n" + RIGHT, "jax"),
        ("framework: str = 'numpy'\n" + RIGHT, "numpy"),
        ("import triton.language as tl\n" + RIGHT, "triton"),
        (RIGHT + "    from triton import jit\n", "triton"),
        ("import triton\nframework = 'torch'\n" + RIGHT, "torch"),
        ("from .triton import x\n" + RIGHT, "torch"),
    ],
)
def test_the_framework_is_what_the_file_says_or_imports(text: str, framework: str, tmp_path: Path) -> None:
    assert external(write(tmp_path / "k.py", text)).framework == framework


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nvector_add = torch.add\n",
        "from torch import add as vector_add\n",
        "try:\n    import x\nexcept ImportError:\n    def vector_add(a, b): ...\n",
        "if True:\n    vector_add, other = 1, 2\n",
        "async def vector_add(a, b): ...\n",
    ],
)
def test_a_name_bound_at_module_level_is_an_operation(text: str, tmp_path: Path) -> None:
    assert not external(write(tmp_path / "k.py", text)).fault


def test_constants_apply(tmp_path: Path) -> None:
    line = external(write(tmp_path / "k.py", "VENDOR = 'cuBLAS'\nREQUIRES = 'sm_90'\nDETERMINISTIC = True\n" + RIGHT))
    assert line.vendor == "cuBLAS"
    assert line.deterministic
    assert line.obstacle(CPU) == ("unsupported", "needs an NVIDIA GPU (sm_90); this is a CPU")


def test_two_files_with_one_row_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one, two = write(tmp_path / "k.py", RIGHT), write(tmp_path / "other" / "k.cu", CUDA_FILE)
    for pair in ([one, two], [one, one]):
        with pytest.raises(UsageError, match=r"with/k is .*k\.py already; rename one"):
            from_files(pair, [ops.get("vector_add")])
    for name in ("a\nb.py", "\x1b[31m.py", "\udc80.cu", "/"):
        with pytest.raises(UsageError, match="cannot be shown; rename it"):
            from_files([Path(name)], [ops.get("vector_add")])


def test_the_version_of_the_file_is_part_of_its_row(tmp_path: Path) -> None:
    first = external(write(tmp_path / "k.py", RIGHT)).versions()
    assert re.search(r"^torch [\d.]+\S*, k\.py sha256 [0-9a-f]{12}$", first)
    assert external(write(tmp_path / "k.py", RIGHT + "\n")).versions() != first


def test_a_file_that_is_too_large_or_endless_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "large.py", b"#" * (MAX_SOURCE_BYTES + 1))
    (tmp_path / "endless.py").symlink_to("/dev/zero")
    with pytest.raises(UsageError, match=r"large\.py: has more than 4 MiB, the most that is read"):
        external(tmp_path / "large.py")
    with pytest.raises(UsageError, match=r"endless\.py: is not a regular file"):
        external(tmp_path / "endless.py")


HELPERS = {
    "module": ("k.py", "import helper\n" + RIGHT, "helper.py"),
    "from": ("k.py", "def vector_add(a, b):\n    from helper import f\n", "helper.py"),
    "package": ("k.py", "import helper.deep.inner\n" + RIGHT, "helper/deep/inner.py"),
    "package itself": ("k.py", "import helper.deep\n" + RIGHT, "helper/__init__.py"),
    "member of a package": ("k.py", "from helper import inner\n" + RIGHT, "helper/inner.py"),
    "through another": ("k.py", "import one\n" + RIGHT, "two.py"),
    "header": ("k.cu", '#include "mine.cuh"\n' + CUDA_FILE, "mine.cuh"),
    "header of a header": ("k.cu", '#include "one.cuh"\n' + CUDA_FILE, "deep/two.cuh"),
}


@pytest.mark.parametrize(("name", "text", "helper"), HELPERS.values(), ids=HELPERS.keys())
def test_the_version_of_a_file_includes_what_it_takes_from_beside_it(
    name: str, text: str, helper: str, tmp_path: Path
) -> None:
    write(tmp_path / "one.py", "import two\n")
    write(tmp_path / "one.cuh", '#include "deep/two.cuh"\n')
    (tmp_path / helper).parent.mkdir(exist_ok=True, parents=True)
    if helper.startswith("helper/"):
        write(tmp_path / "helper" / "__init__.py", "")
    first = write(tmp_path / helper, "// 1\n" if name == "k.cu" else "f = 1\n")
    path = write(tmp_path / name, text)
    before = external(path).digest
    assert external(path).digest == before
    write(first, "// 2\n" if name == "k.cu" else "f = 2\n")
    assert external(path).digest != before
    write(tmp_path / "unrelated.py", "")
    write(first, "// 1\n" if name == "k.cu" else "f = 1\n")
    assert external(path).digest == before


def test_the_version_of_a_file_that_stands_alone_is_its_sha256(tmp_path: Path) -> None:
    text = "import torch, os.path\nfrom . import missing\n" + RIGHT
    assert external(write(tmp_path / "k.py", text)).digest == hashlib.sha256(text.encode()).hexdigest()[:12]


def chosen(paths: list[Path], *operations: str, patterns: tuple[str, ...] = ()) -> dict[str, list[str]]:
    found = plan(Selection(tuple(operations), tuple(patterns), files=tuple(paths)), CPU)
    return {job.op.name: [line.name for line in job.implementations] for job in found}


def test_a_file_joins_the_operations_that_it_defines_and_impl_does_not_exclude_it(tmp_path: Path) -> None:
    two = write(tmp_path / "two.py", RIGHT + "def sigmoid(x): ...\n")
    none = write(tmp_path / "none.py", "def other(): ...\n")
    with_two = chosen([two], "all")
    assert {name for name, lines in with_two.items() if "with/two" in lines} == {"vector_add", "sigmoid"}
    assert with_two["sigmoid"][:-1] == chosen([], "sigmoid")["sigmoid"]
    assert chosen([two], "all", patterns=("torch",))["sigmoid"] == ["torch", "with/two"]
    assert chosen([two, none], "all", patterns=("with/*",)) == {
        name: ["with/two", "with/none"] if name in ("vector_add", "sigmoid") else ["with/none"] for name in ops.names()
    }
    assert chosen([two], "all", patterns=("with/two",)).keys() == {"vector_add", "sigmoid"}
    with pytest.raises(UsageError, match=r"matches none of .*, with/two"):
        chosen([two], "sigmoid", patterns=("with/three",))


def test_a_sweep_shows_external_files_that_it_leaves_out(tmp_path: Path) -> None:
    files = [write(tmp_path / "mine.py", TRITON_FILE), write(tmp_path / "none.py", "x = 1\n")]
    (job,) = plan(Selection(("vector_add",), ("with/*",), sweep=True, files=tuple(files)), CPU)
    job = Job(job.op, job.cases[:1], job.implementations)
    rows = {row.implementation: row for row in compare([job], Options(CPU, native_only=True))}
    assert rows["with/mine"].reason == "interpreted here, and a sweep runs native implementations only"
    assert (rows["with/mine"].status, rows["with/none"].status) == ("unsupported", "error")
