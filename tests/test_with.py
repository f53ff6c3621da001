"""Kernels of one's own: what `--with` accepts, what it refuses and with which line, and that others do not notice."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cuda_ref import _rewrite
from suite import ops
from suite.core.errors import UsageError
from suite.core.paths import ROOT
from suite.hardware.device import Device
from suite.implementations.builtin import Implementation
from suite.implementations.external import module as guest
from suite.implementations.external import source as brought
from suite.problem.case import Case
from suite.runner import compare as run
from suite.runner.plan import Job, plan
from suite.runner.selection import Selection
from suite.worker.pool import Pool, WorkerDiedError

CPU = Device("cpu", name="CPU")
CASE = ops.get("vector_add").case((100,))
RIGHT = "def vector_add(a, b):\n    return a + b\n"
CUDA_FILE = """#include "common.cuh"

template <typename T>
__global__ void add(const T* a, const T* b, T* out, int64_t n, int64_t stride_a, int64_t stride_b) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) out[i] = from_float<T>(to_float(a[i * stride_a]) + to_float(b[i * stride_b]));
}

extern "C" int vector_add(const void* a, const void* b, void* out, int64_t n, int64_t stride_a, int64_t stride_b,
                          int64_t dtype, cudaStream_t stream, LaunchRecord* record) {
    const dim3 grid(unsigned(ceil_div<int64_t>(n, 256)));
    record->set(grid, 256);
    return by_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        add<T><<<grid, 256, 0, stream>>>(static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(out), n,
                                         stride_a, stride_b);
    });
}
"""
TRITON_FILE = """import torch
import triton
import triton.language as tl


@triton.jit
def kernel(a, b, out, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offs, tl.load(a + offs, offs < N) + tl.load(b + offs, offs < N), offs < N)


def vector_add(a, b):
    out = torch.empty_like(a)
    kernel[(triton.cdiv(a.numel(), 64),)](a, b, out, a.numel(), BLOCK=64)
    return out
"""


def bring(path: Path, operation: str = "vector_add") -> Implementation:
    (found,) = brought.bring([path], [operation])[operation]
    return found


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# What reading tells, before anything runs.

UNUSABLE: dict[str, tuple[str, str | bytes, str]] = {
    "other_suffix": ("k.txt", RIGHT, "k.txt is neither a .py nor a .cu file"),
    "no_suffix": ("k", RIGHT, "k is neither a .py nor a .cu file"),
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
        "int64_t, float), and must take (pointer",
    ),
    "cu_line": ("k.cu", CUDA_FILE.replace("int64_t dtype, ", ""), "see docs/own_kernels.md (k.cu:9)"),
    "cu_no_record": ("k.cu", CUDA_FILE.replace(", LaunchRecord* record", ""), "LaunchRecord* record) (k.cu:9)"),
    "cu_not_utf8": ("k.cu", b"//\n// \xff\n" + CUDA_FILE.encode(), "UnicodeDecodeError: not UTF-8 (k.cu:2)"),
    "cu_requires": ("k.cu", "// requires: hopper\n" + CUDA_FILE, "requires: an architecture such as sm_80"),
}


@pytest.mark.parametrize(("name", "text", "reason"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_what_reading_tells_is_told_before_anything_runs(
    name: str, text: str | bytes, reason: str, tmp_path: Path
) -> None:
    line = bring(write(tmp_path / name, text))
    assert line.name == "with/k"
    status, told = line.obstacle(CPU) or ("", "")
    assert status == "error"
    assert reason in told
    assert "\n" not in told


def test_paths_that_are_no_files_are_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    assert bring(tmp_path / "gone.py").fault == f"{tmp_path / 'gone.py'}: there is no such file"
    assert bring(tmp_path).fault == f"{tmp_path.name} is a folder; --with takes a .py or .cu file"
    assert bring(tmp_path / "pipe.py").fault == "pipe.py is not a regular file"
    (tmp_path / "loop.py").symlink_to(tmp_path / "loop.py")
    assert "loop.py: " in bring(tmp_path / "loop.py").fault


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
    assert bring(write(tmp_path / "k.py", text)).framework == framework


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
    assert not bring(write(tmp_path / "k.py", text)).fault


def test_constants_count_but_nobody_becomes_a_vendor(tmp_path: Path) -> None:
    line = bring(write(tmp_path / "k.py", "VENDOR = 'cuBLAS'\nREQUIRES = 'sm_90'\nDETERMINISTIC = True\n" + RIGHT))
    assert line.vendor is None
    assert line.deterministic
    assert line.obstacle(CPU) == ("unsupported", "needs an NVIDIA GPU (sm_90); this is a CPU")


def test_two_files_of_one_name_cannot_be_told_apart(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one, two = write(tmp_path / "k.py", RIGHT), write(tmp_path / "other" / "k.cu", CUDA_FILE)
    for pair in ([one, two], [one, one]):
        with pytest.raises(UsageError, match=r"with/k is .*k\.py already; rename one"):
            brought.bring(pair, ["vector_add"])
    for name in ("a\nb.py", "\x1b[31m.py", "\udc80.cu", "/"):
        with pytest.raises(UsageError, match="cannot be shown; rename it"):
            brought.bring([Path(name)], ["vector_add"])


def test_the_version_of_the_file_is_part_of_its_row(tmp_path: Path) -> None:
    first = bring(write(tmp_path / "k.py", RIGHT)).versions()
    assert re.search(r"^torch [\d.]+\S*, k\.py sha256 [0-9a-f]{12}$", first)
    assert bring(write(tmp_path / "k.py", RIGHT + "\n")).versions() != first


def chosen(paths: list[Path], *operations: str, patterns: tuple[str, ...] = ()) -> dict[str, list[str]]:
    found = plan(Selection(operations, patterns, files=tuple(paths)), CPU)
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


def test_a_sweep_shows_what_it_leaves_out_of_what_was_brought(tmp_path: Path) -> None:
    files = [write(tmp_path / "mine.py", TRITON_FILE), tmp_path / "gone.py"]
    (job,) = plan(Selection(("vector_add",), ("with/*",), sweep=True, files=tuple(files)), CPU)
    job = Job(job.op, job.cases[:1], job.implementations)
    rows = {row.implementation: row for row in run.compare([job], run.Options(CPU, native_only=True))}
    assert rows["with/mine"].reason == "interpreted here, and a sweep is for what runs natively"
    assert (rows["with/mine"].status, rows["with/gone"].status) == ("unsupported", "error")


# What running shows.

WITNESS = """import os, random, jax, numpy, torch, triton
def vector_add(a, b):
    settings = torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_device()
    drawn = random.random(), numpy.random.rand(), torch.rand(1).item()
    raise ValueError(f"{os.getcwd()} {os.environ.get('FOO')} {'PATH' in os.environ} {settings} {drawn}")
"""
RUN: dict[str, tuple[str, str, str]] = {
    "right": (RIGHT, "ok", ""),
    "wrong": ("def vector_add(a, b):\n    return a - b\n", "wrong", "value: at [*"),
    "numpy": ("framework = 'numpy'\n" + RIGHT, "ok", ""),
    "jax": ("framework = 'jax'\nimport jax\n@jax.jit\n" + RIGHT, "ok", ""),
    "triton": (TRITON_FILE, "ok", ""),
    "claims": (
        "import random\nDETERMINISTIC = True\ndef vector_add(a, b):\n    return a + b * random.uniform(1, 2)\n",
        "wrong",
        "*not deterministic*changed the random state of random, undone (claims.py:4)",
    ),
    "not_covered": (
        "def vector_add(a, b):\n    raise NotImplementedError('only on Tuesdays')\n",
        "unsupported",
        "only on*",
    ),
    "signature": (
        "import torch\n\ndef vector_add(a):\n    return a\n",
        "error",
        "TypeError: vector_add() takes 1 positional argument but 2 were given; it is called as vector_add(a, b) "
        "(signature.py:3)",
    ),
    "not_a_function": ("vector_add = 3\n", "error", "vector_add is not a function but int (not_a_function.py:1)"),
    "raises": (
        "import torch\ndef f(a):\n    return torch.matmul(a, a[:1])\ndef vector_add(a, b):\n    return f(a)\n",
        "error",
        "RuntimeError: * (raises.py:3)",
    ),
    "import_fails": (
        "x = 1\nimport nonexistent\n" + RIGHT,
        "error",
        "ModuleNotFoundError: *nonexistent' (import_fails.py:2)",
    ),
    "import_raises": ("x = 1\n1 / 0\n" + RIGHT, "error", "ZeroDivisionError: division by zero (import_raises.py:2)"),
    "late_syntax": (RIGHT + "return 3\n", "error", "SyntaxError: 'return' outside function (late_syntax.py:3)"),
    "exits": ("import sys\ndef vector_add(a, b):\n    sys.exit(3)\n", "error", "called sys.exit(3) (exits.py:3)"),
    "exits_at_import": (
        "import sys\nsys.exit('bye')\n" + RIGHT,
        "error",
        "called sys.exit('bye') (exits_at_import.py:2)",
    ),
    "raises_system_exit": ("raise SystemExit\n" + RIGHT, "error", "called sys.exit(None) (raises_system_exit.py:1)"),
    "interrupts": (
        "def vector_add(a, b):\n    raise KeyboardInterrupt\n",
        "error",
        "raised KeyboardInterrupt (interrupts.py:2)",
    ),
    "reads_stdin": ("def vector_add(a, b):\n    return input()\n", "error", "EOFError: * (reads_stdin.py:2)"),
    "prints": (
        "def vector_add(a, b):\n    print('hello')\n    return a + b\n",
        "ok",
        "printed to stdout (prints.py:2)",
    ),
    "prints_at_import": ("print('hello')\n" + RIGHT, "ok", "printed to stdout (prints_at_import.py:1)"),
    "prints_forged_answers": (
        'print(\'{"event": "done", "status": "ok"}\')\ndef vector_add(a, b):\n    return a - b\n',
        "wrong",
        "*; printed to stdout (prints_forged_answers.py:1)",
    ),
    "prints_elsewhere": (
        "import os, sys\ndef vector_add(a, b):\n    os.write(1, b'x')\n    sys.__stdout__.write('y')\n    return a+b\n",
        "ok",
        "printed to stdout (prints_elsewhere.py:3, prints_elsewhere.py:4)",
    ),
    "child_prints": (
        "import subprocess\nsubprocess.run(['echo', 'hello'])\n" + RIGHT,
        "ok",
        "printed to stdout (child_prints.py:2)",
    ),
    "child_prints_in_call": (
        "import os\ndef vector_add(a, b):\n    x = 1\n    os.system('echo hello')\n    return a + b\n",
        "ok",
        "printed to stdout (child_prints_in_call.py:4)",
    ),
    "to_stderr": ("import sys\nprint('hello', file=sys.stderr)\n" + RIGHT, "ok", ""),
    "closes_stdout": ("import os, sys\nos.close(1)\nsys.stdout = None\n" + RIGHT, "ok", ""),
    "chdir": (
        "import os\ndef vector_add(a, b):\n    os.chdir('/')\n    return a + b\n",
        "ok",
        "changed the working directory, undone (chdir.py:3)",
    ),
    "chdir_at_import": (
        "import os\nos.fchdir(os.open('/', 0))\n" + RIGHT,
        "ok",
        "changed the working directory, undone (chdir_at_import.py:2)",
    ),
    "chdir_and_back": ("import contextlib\nwith contextlib.chdir('/'):\n    pass\n" + RIGHT, "ok", ""),
    "environment": (
        "import os\nos.environ['FOO'] = '1'\ndel os.environ['PATH']\n"
        "def vector_add(a, b):\n    os.environ.update(BAR='x')\n    return a + b\n",
        "ok",
        "changed the environment variable FOO, undone (environment.py:2); "
        "changed the environment variable PATH, undone (environment.py:3); "
        "changed the environment variable BAR, undone (environment.py:5)",
    ),
    "random": (
        "import random, numpy, torch\nrandom.seed(1)\nnumpy.random.rand()\n"
        "def vector_add(a, b):\n    x = 1\n    torch.manual_seed(x)\n    return a + b\n",
        "ok",
        "changed the random state of random, undone (random.py:2); "
        "changed the random state of numpy, undone (random.py:3); "
        "changed the random state of torch, undone (random.py:6)",
    ),
    "random_once": (
        "import random\ndone = []\ndef vector_add(a, b):\n    if not done:\n        done.append(random.random())\n"
        "    return a + b\n",
        "ok",
        "changed the random state of random, undone (random_once.py:3)",
    ),
    "settings": (
        "import torch\ntorch.set_default_dtype(torch.float64)\ntorch.set_num_threads(3)\n"
        "torch.backends.cuda.matmul.allow_tf32 = True\ntorch.set_default_device('meta')\n"
        "def vector_add(a, b):\n    torch.set_grad_enabled(False)\n    return a + b\n",
        "ok",
        "changed torch's default device, undone (settings.py:5); "
        "changed torch's default dtype, undone (settings.py:2); "
        "changed torch's number of threads, undone (settings.py:3); *undone (settings.py:4)*; "
        "changed whether torch records gradients, undone (settings.py:7)",
    ),
    "jax_settings": (
        "framework = 'jax'\nimport jax\njax.config.update('jax_enable_x64', True)\n" + RIGHT,
        "ok",
        "changed jax's setting jax_enable_x64, undone (jax_settings.py:3)",
    ),
    "threads_and_atexit": (
        "import atexit, threading, time\natexit.register(print, 'bye')\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n" + RIGHT,
        "ok",
        "",
    ),
    "reads_itself": (
        "import inspect, sys\nassert 'reads_itself' in __file__\nassert sys.modules[__name__].__file__ == __file__\n"
        + RIGHT
        + "assert inspect.getsource(vector_add).startswith('def vector_add')\n",
        "ok",
        "",
    ),
}


class Asker:
    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def check(self, line: Implementation, case: Case = CASE, **visa: Any) -> dict[str, Any]:
        request = {"do": "check", "case": case.to_json(), "implementation": line.name, "seed": 0}
        return self.pool.ask({**request, "visas": {line.name: {**line.visa(), **visa}}}, timeout_s=60.0)


@pytest.fixture(scope="module")
def worker() -> Iterator[Asker]:
    """One worker for all that does not kill it."""
    with Pool(CPU) as pool:
        yield Asker(pool)


@pytest.fixture(scope="module")
def witness(worker: Asker, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], str]:
    """Asks for what a file must leave as it was. The random numbers are drawn and put back each time."""
    line = bring(write(tmp_path_factory.mktemp("witness") / "witness.py", WITNESS))
    before: str = worker.check(line)["reason"]
    assert before.startswith("ValueError: /")

    def ask() -> str:
        after: str = worker.check(line)["reason"]
        assert after == before
        return after

    return ask


@pytest.mark.parametrize("name", RUN)
def test_what_running_shows_is_told_with_its_line_and_undone(
    name: str, worker: Asker, witness: Callable[[], str], tmp_path: Path
) -> None:
    text, status, reason = RUN[name]
    line = bring(write(tmp_path / f"{name}.py", text))
    answer = worker.check(line)
    pattern = ".*".join(map(re.escape, reason.split("*")))
    assert re.fullmatch(pattern, answer["reason"], re.DOTALL), answer["reason"]
    assert answer["status"] == status
    witness()
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.py"], "nothing is written beside the file"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("os._exit(3)", r"exit status 3: os\._exit\(3\) was called \(ends\.py:3\)"),
        ("ctypes.string_at(0)", r"SIGSEGV at ends\.py:3"),
    ],
)
def test_what_ends_the_process_is_told_with_its_line(body: str, message: str, tmp_path: Path) -> None:
    line = bring(write(tmp_path / "ends.py", f"import ctypes, os\ndef vector_add(a, b):\n    {body}\n"))
    with Pool(CPU) as pool, pytest.raises(WorkerDiedError, match=message):
        Asker(pool).check(line)


def test_files_beside_it_can_be_imported_and_shadow_nothing(worker: Asker, tmp_path: Path) -> None:
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder / "neighbour.py", f"X = {number}\n")
        for name in ("torch", "numpy", "suite", "json", "vector_add", "cuda_ref"):
            write(folder / f"{name}.py", "raise RuntimeError('this is not the real one')\n")
        text = (
            "import json, sys\nsys.path.insert(0, '')\nimport torch, numpy\nimport neighbour\ndef vector_add(a, b):\n"
        )
        text += f"    import neighbour as late\n    assert neighbour.X == late.X == {number}\n    return a + b\n"
        assert worker.check(bring(write(folder / f"beside{number}.py", text))) | {"first_call_s": 0} == {
            **worker.check(bring(write(tmp_path / f"alone{number}.py", RIGHT))),
            "first_call_s": 0,
        }


def test_a_file_that_changes_during_a_run_is_not_mistaken_for_what_it_was(worker: Asker, tmp_path: Path) -> None:
    line = bring(write(tmp_path / "edited.py", RIGHT))
    assert worker.check(line)["status"] == "ok"
    answer = worker.check(line, digest="0" * 12)
    assert answer["reason"] == "edited.py changed while the run was going on (edited.py:1)"


def test_a_call_that_changes_something_is_watched_while_timed_and_others_are_not(
    worker: Asker, witness: Callable[[], str], tmp_path: Path
) -> None:
    changes = (
        "import os, torch\ndef vector_add(a, b):\n    os.chdir('/')\n    torch.set_num_threads(3)\n    return a + b\n"
    )
    lines = [bring(write(tmp_path / "moves.py", changes)), bring(write(tmp_path / "stays.py", RIGHT))]
    request = {"do": "time", "case": CASE.to_json(), "implementations": ["torch", *(line.name for line in lines)]}
    request |= {"seed": 0, "cache": "cold", "transfers": False, "visas": {line.name: line.visa() for line in lines}}
    timings = worker.pool.ask(request, timeout_s=60.0)["timings"]
    assert all(timing["device_us"] > 0 for timing in timings.values())
    assert timings["with/moves"]["device_us"] > timings["with/stays"]["device_us"]
    witness()


@pytest.fixture
def no_nvcc_needed() -> None:
    from cuda_ref.compiler import missing

    if missing("cpu"):
        pytest.skip(str(missing("cpu")))


@pytest.mark.usefixtures("no_nvcc_needed")
def test_a_cu_file_is_built_and_launched_as_the_suites_own(worker: Asker, tmp_path: Path) -> None:
    right = bring(write(tmp_path / "own add.cu", CUDA_FILE))
    assert (right.name, right.framework, right.adapter.mode(CPU)) == ("with/own add", "cuda", "emulated")
    answer = worker.check(right)
    assert (answer["status"], answer["reason"]) == ("ok", "")
    broken = worker.check(bring(write(tmp_path / "broken.cu", CUDA_FILE.replace("out[i] =", "out[j] ="))))
    assert broken["status"] == "error"
    assert re.search(r"broken\.cu:6:\d+: error: .*j.* was not declared", broken["reason"])
    assert str(tmp_path) not in broken["reason"]
    refused = worker.check(bring(write(tmp_path / "refused.cu", CUDA_FILE.replace("grid, 256, 0", "grid, 9999, 0"))))
    assert re.fullmatch(r"CudaError: .*cudaErrorInvalid.* \(refused\.cu:9\)", refused["reason"])
    hopper = worker.check(bring(write(tmp_path / "hopper.cu", "// requires: sm_90a\n" + CUDA_FILE)))
    assert hopper["status"] == "unsupported"
    assert hopper["reason"] == "hopper.cu uses instructions of sm_90a, which the CPU does not have"


def test_the_whole_command(tmp_path: Path) -> None:
    """From a folder with a torch.py, with --transfers, --compile and --json."""
    write(tmp_path / "torch.py", "raise SystemExit('not the real one')\n")
    write(tmp_path / "typer.py", "raise SystemExit('not the real one')\n")
    write(tmp_path / "mine.py", "print('[red]hello')\n" + RIGHT)
    command = [sys.executable, "-m", "suite", "compare", "--op", "vector_add", "--with", "mine.py", "--with", "gone.py"]
    command += ["--impl", "with/*", "--shape", "N=1000", "--dtype", "float32", "--device", "cpu", "--out", "results"]
    command += ["--transfers", "--compile", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    mine, gone = json.loads(done.stdout)["rows"]
    assert (mine["implementation"], mine["status"], mine["mode"]) == ("with/mine", "ok", "native")
    assert mine["reason"] == "printed to stdout (mine.py:1)"
    assert "mine.py sha256 " in mine["versions"]
    for column in ("device_us", "latency_us", "program_us", "compile_s", "compile_warm_s"):
        assert mine[column] > 0, column
    assert mine["to_device_us"] == 0, "it is there already"
    assert (mine["vs_best"], mine["vendor"]) == (None, "")
    assert (gone["status"], gone["reason"]) == ("error", "gone.py: there is no such file")
    assert "with/mine" in (tmp_path / "results" / "vector_add.csv").read_text(encoding="utf-8")


@pytest.mark.gpu
def test_files_of_every_framework_are_timed_on_a_gpu(tmp_path: Path) -> None:
    from suite.hardware.device import resolve

    files = [
        write(tmp_path / "t.py", RIGHT),
        write(tmp_path / "tri.py", TRITON_FILE),
        write(tmp_path / "c.cu", CUDA_FILE),
    ]
    files.append(write(tmp_path / "j.py", "framework = 'jax'\nimport jax\n@jax.jit\n" + RIGHT))
    selection = Selection(("vector_add",), ("torch",), shapes=("N=1048576",), files=tuple(files))
    found = plan(selection, resolve("cuda"))
    rows = run.compare(found, run.Options(resolve("cuda")))
    assert {(row.implementation, row.status, row.mode) for row in rows} == {
        (name, "ok", "native") for name in ("torch", "with/t", "with/tri", "with/c", "with/j")
    }
    assert all(row.device_us and row.vs_best for row in rows)


# What is written about it.

DOCUMENT = (ROOT / "docs" / "own_kernels.md").read_text(encoding="utf-8")


def fenced(language: str) -> str:
    return "\n".join(re.findall(rf"^```{language}\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE))


def normal(signature: str) -> str:
    return " ".join(signature.split()).replace("( ", "(")


def test_the_documented_launchers_are_the_suites_own() -> None:
    documented = fenced("cuda")
    assert set(_rewrite.launchers(documented)) == set(ops.names())
    for name in ops.names():
        source = (ROOT / "cuda_ref" / f"{name}.cu").read_text(encoding="utf-8")
        ours, theirs = (re.search(rf'extern "C" int {name}\(([^)]*)\)', text) for text in (source, documented))
        assert ours is not None
        assert theirs is not None
        assert normal(theirs[1]) == normal(ours[1])
        assert _rewrite.parameters(documented, name) == _rewrite.parameters(source, name)


def test_the_documented_functions_are_the_suites_own() -> None:
    documented = {line.partition("(")[0]: line for line in fenced("python").splitlines() if line}
    assert set(documented) == set(ops.names())
    for name, line in documented.items():
        assert ast.dump(ast.parse(line.replace("*, ", ""))) == ast.dump(
            ast.parse(guest.signature(name).replace("*, ", ""))
        )


@pytest.mark.usefixtures("no_nvcc_needed")
def test_the_readmes_story_is_true(worker: Asker, tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    story = text[text.index("## Your own kernel") : text.index("## Where the GPU starts to win")]
    naive, triton_file = re.findall(r"^```python\n(.*?)^```", story, re.DOTALL | re.MULTILINE)
    (cuda_file,) = re.findall(r"^```cuda\n(.*?)^```", story, re.DOTALL | re.MULTILINE)
    wrong, right = "return 1 / (1 + torch.exp(-x))", "return (1 / (1 + torch.exp(-x.float()))).to(x.dtype)"
    assert wrong in naive
    assert right in story
    assert bring(write(tmp_path / "my_sigmoid.py", ""), "sigmoid").fault in story
    files = {"n.py": naive, "s.py": naive.replace(wrong, right), "t.py": triton_file, "c.cu": cuda_file}
    case = ops.get("sigmoid").case((5000,), "float16")
    found = {name: worker.check(bring(write(tmp_path / name, each), "sigmoid"), case) for name, each in files.items()}
    assert {name: answer["status"] for name, answer in found.items()} == {
        "n.py": "wrong",
        "s.py": "ok",
        "t.py": "ok",
        "c.cu": "ok",
    }


def test_documents_say_whose_rights_it_has() -> None:
    for text in (DOCUMENT, (ROOT / "README.md").read_text(encoding="utf-8")):
        assert re.search(r"`--with` runs your code with your rights", text)
