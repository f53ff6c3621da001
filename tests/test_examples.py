"""The examples do what they say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from kept_sources import kept_source
from thinning import THOROUGH

from cuda_ref.build import compiler
from suite.core.paths import ROOT

EXAMPLES = ROOT / "examples"


@pytest.mark.thorough
def test_the_tests_of_the_example_project_pass(tmp_path: Path) -> None:
    project = shutil.copytree(EXAMPLES / "pytest_project", tmp_path / "project")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir=."]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "== speed against baselines ==" in done.stdout
    assert list(project.glob("baselines/*/test_my_kernels.test_my_sigmoid_is_no_slower_than_before.csv"))
    assert re.search(r"\b\d+ passed, \d+ skipped", done.stdout), done.stdout


def test_weights_kept_in_float32_learn_on_where_16_bits_round_updates_away() -> None:
    command = [sys.executable, EXAMPLES / "mixed_precision.py", "--steps", "120"]
    done = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, check=True)
    header, *rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert header == ["step", "float32", "bfloat16"]
    first, *_, last = [[float(each) for each in row[1:]] for row in rows]
    assert first[0] == first[1] > 1.0
    assert last[0] < last[1] / 3


def test_the_workflow_and_the_slurm_script_run_every_night(tmp_path: Path) -> None:
    """The script submits its successor, and ends as `nightly` does; with stand-ins for the commands."""
    workflow = (EXAMPLES / "github_workflow.yml").read_text(encoding="utf-8")
    assert "python -m suite nightly --site site" in workflow[workflow.index("  nightly:") :]
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "activate").write_text("")
    for name, status in (("python", 3), ("sbatch", 0), ("scontrol", 0)):
        (tmp_path / name).write_text(f'#!/bin/bash\necho "{name} $*" >> calls\nexit {status}\n')
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_ID": "5"}
    done = subprocess.run(["bash", EXAMPLES / "nightly.sbatch"], env=environment, check=False)
    assert done.returncode == 3
    submitted, compared, updated = (tmp_path / "calls").read_text().splitlines()
    assert submitted.startswith("sbatch --begin=tomorrow 01:30 ")
    assert compared == "python -m suite nightly --site site"
    assert updated.startswith("scontrol update JobId=5 ")


PYTHON = """#!/bin/bash
echo "$(basename "$PWD"): $*" >> "$CALLS"
case "$3" in compare) exit 1;; diff) echo "| verdict |"; exit 3;; esac
"""
GH = """#!/bin/bash
echo "gh: $*" >> "$CALLS"
"""


def test_the_workflow_comments_the_difference_and_fails_if_a_row_is_slower(tmp_path: Path) -> None:
    """The steps run in order, as GitHub runs them, with stand-ins for `python` and `gh`."""
    steps = re.findall(r"run: \|\n((?: {10}.*\n)+)", (EXAMPLES / "github_workflow.yml").read_text(encoding="utf-8"))
    install, *others = steps[:5]
    assert "make -C new .venv/.ready" in install
    for name, text in (("python", PYTHON), ("gh", GH)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    for folder in ("base", "new"):
        (tmp_path / folder).mkdir()
    files = {name: str(tmp_path / name.lower()) for name in ("CALLS", "GITHUB_ENV", "GITHUB_STEP_SUMMARY")}
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "NUMBER": "7", "GITHUB_REPOSITORY": "me/suite", **files}
    statuses = []
    for step in others:
        done = subprocess.run(["bash", "-e", "-c", textwrap.dedent(step)], cwd=tmp_path, env=environment, check=False)
        statuses.append(done.returncode)
        kept = tmp_path / "github_env"
        environment |= dict(line.split("=") for line in kept.read_text().splitlines()) if kept.exists() else {}
    assert statuses == [0, 0, 0, 3]
    assert (tmp_path / "comment.md").read_text() == "| verdict |\n"
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == [
        "base: -m suite compare --op all --repeat 3 --out ../results/base",
        "new: -m suite compare --op all --repeat 3 --out ../results/new",
        "new: -m suite diff ../results/base ../results/new --markdown",
        "gh: pr comment 7 --repo me/suite --body-file comment.md --edit-last --create-if-none",
    ]


def emulated(path: Path) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "suite", "emulate", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.skipif(compiler.cxx() is None, reason="needs a C++ compiler")
def test_the_whole_cuda_program_runs_emulated() -> None:
    said = "vector_add.cu: emulated on the CPU\n"
    assert emulated(EXAMPLES / "vector_add.cu") == (0, "0 of 1000003 elements are wrong\n", said)


@pytest.mark.skipif(compiler.cxx() is None, reason="needs a C++ compiler")
def test_a_program_need_not_include_cuda_runtime() -> None:
    source = kept_source(
        "program.cu",
        "__global__ void nothing() {}\nint main() { nothing<<<1, 1>>>(); return cudaDeviceSynchronize(); }\n",
    )
    assert emulated(source) == (0, "", "program.cu: emulated on the CPU\n")


@pytest.mark.skipif(compiler.cxx() is None, reason="needs a C++ compiler")
def test_a_program_that_does_not_compile_has_the_lines_of_the_compiler(tmp_path: Path) -> None:
    source = tmp_path / "program.cu"
    source.write_text("int main() {\n    return missing;\n}\n")
    status, out, said = emulated(source)
    assert (status, out) == (1, "")
    assert said.startswith(f"error: {source}: the C++ compiler failed:\n")
    assert "\n    2 |     return missing;\n" in said


@pytest.mark.skipif(compiler.cxx() is None, reason="needs a C++ compiler")
def test_the_limits_of_the_emulation_are_printed_as_such() -> None:
    status, out, _ = emulated(EXAMPLES / "device_query.cu")
    assert status == 0
    assert out.startswith("emulated: ")
    assert re.search(r"^  threads that run at a time +8192$", out, re.MULTILINE)


@pytest.mark.skipif(not compiler.can_check(), reason="accesses are checked by GCC only; set CXX=g++")
@pytest.mark.parametrize(
    ("right", "wrong", "found"),
    [
        ("if (i < n) out[i]", "out[i]", "reads index 100"),
        pytest.param(
            "(device_a, device_b, device_out, n);",
            "(a, device_b, device_out, n);",
            "a pointer of the host",
            marks=THOROUGH,
        ),
        pytest.param(
            "check(cudaMemcpy(out, device_out,", "check(cudaMemcpy(device_out, out,", "invalid argument", marks=THOROUGH
        ),
        pytest.param(
            "check(cudaMemcpy(out, device_out,",
            "check(cudaMemcpyAsync(device_out, out,",
            "invalid argument",
            marks=THOROUGH,
        ),
    ],
    ids=["no guard", "host pointer", "copy in the wrong direction", "asynchronous copy in the wrong direction"],
)
def test_a_fault_of_the_whole_cuda_program_is_found(right: str, wrong: str, found: str) -> None:
    text = (EXAMPLES / "vector_add.cu").read_text(encoding="utf-8")
    assert right in text
    status, out, said = emulated(kept_source("program.cu", text.replace(right, wrong)))
    assert (status, out) == (1, "")
    assert found in said


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("name", ["vector_add", pytest.param("device_query", marks=THOROUGH)])
def test_the_whole_cuda_program_compiles(name: str, tmp_path: Path) -> None:
    subprocess.run(["nvcc", "-o", tmp_path / name, EXAMPLES / f"{name}.cu"], check=True)


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_the_whole_cuda_program_runs(tmp_path: Path) -> None:
    subprocess.run(["nvcc", "-arch=native", "-o", tmp_path / "vector_add", EXAMPLES / "vector_add.cu"], check=True)
    done = subprocess.run([tmp_path / "vector_add"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0 of 1000003 elements are wrong\n")


@pytest.mark.thorough
def test_the_examples_of_measuring_well_run() -> None:
    """Their figures depend on the machine. That each naive number misleads does not."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, EXAMPLES / "measuring_well.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    zeros, remembered, *_ = lines = done.stdout.splitlines()
    assert len(lines) == 5
    assert zeros.startswith("zeros               error on zeros 0; on normal numbers ")
    assert "the suite: stale" in remembered
