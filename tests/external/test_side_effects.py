"""A run of a user's file shows its errors with their line, and its side effects, which are undone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from external_files import CASE, CPU, RIGHT, TRITON_FILE, SharedProcess, check, external, status, write

from suite.external.fork_server import ExternalForkServer
from suite.worker.pool import Pool
from suite.worker.protocol import Failed, TimeExternalRequest, TimeReply

WITNESS = """import os, jax, numpy, torch, triton
def vector_add(a, b):
    settings = torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_device()
    raise ValueError(f"{os.getcwd()} {os.environ.get('FOO')} {'PATH' in os.environ} {settings}")
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
        "*not deterministic*changed the random state of random (claims.py:4)",
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
        "changed the random state of random (random.py:2); "
        "changed the random state of numpy (random.py:3); "
        "changed the random state of torch (random.py:4)",
    ),
    "random_once": (
        "import random\ndone = []\ndef vector_add(a, b):\n    if not done:\n        done.append(random.random())\n"
        "    return a + b\n",
        "ok",
        "changed the random state of random (random_once.py:3)",
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
    "switches": (
        "import torch\ntorch.backends.mkldnn.enabled = False\ntorch.backends.cuda.enable_flash_sdp(False)\n"
        "torch.backends.cuda.enable_mem_efficient_sdp(False)\ntorch.backends.cuda.enable_math_sdp(False)\n"
        "torch.backends.cudnn.enabled = False\n"
        "def vector_add(a, b):\n    torch.set_flush_denormal(True)\n    return a + b\n",
        "ok",
        "changed whether torch uses FlashAttention, undone (switches.py:3); "
        "changed whether torch uses memory-efficient attention, undone (switches.py:4); "
        "changed whether torch uses plain attention, undone (switches.py:5); "
        "changed whether torch uses oneDNN, undone (switches.py:2); "
        "changed whether torch uses cuDNN, undone (switches.py:6); "
        "changed whether torch flushes subnormal numbers, undone (switches.py:8)",
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


@pytest.fixture(scope="module")
def worker() -> Iterator[Pool]:
    """One worker for all files that do not end it."""
    with Pool(CPU) as pool:
        yield pool


@pytest.fixture(scope="module")
def witness(shared: SharedProcess, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], None]:
    """Asserts that the process is as it was at first."""
    line = external(write(tmp_path_factory.mktemp("witness") / "witness.py", WITNESS))
    before = shared.check(line).reason
    assert before.startswith("ValueError: /")

    def ask() -> None:
        assert shared.check(line).reason == before

    return ask


@pytest.mark.parametrize("name", RUN)
def test_errors_and_side_effects_are_reported_with_their_line_and_undone(
    name: str, shared: SharedProcess, witness: Callable[[], None], tmp_path: Path
) -> None:
    text, expected, reason = RUN[name]
    line = external(write(tmp_path / f"{name}.py", text))
    reply = shared.check(line)
    pattern = ".*".join(map(re.escape, reason.split("*")))
    assert re.fullmatch(pattern, reply.reason, re.DOTALL), reply.reason
    assert status(reply) == expected
    witness()
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.py"], "nothing is written beside the file"


DRAWS = """import random, numpy, torch
drawn = []
def vector_add(a, b):
    drawn.append((random.random(), numpy.random.rand(), torch.rand(1).item()))
    if len(drawn) == 3:
        raise ValueError([len({each[i] for each in drawn}) for i in range(3)], drawn[0])
    return a + b
"""


def test_calls_draw_other_random_numbers_and_so_do_processes(
    external_server: ExternalForkServer, tmp_path: Path
) -> None:
    """A kernel that is wrong by chance would be judged on the same numbers again and again otherwise."""
    reasons = []
    line = external(write(tmp_path / "draws.py", DRAWS))
    for _ in range(2):
        process = SharedProcess(external_server)
        reasons.append(process.check(line).reason)
        process.close()
    assert all(reason.startswith("ValueError: ([3, 3, 3], (") for reason in reasons), reasons
    first, second = (reason.split("(")[-2].split(")")[0] for reason in reasons)
    assert not set(first.split(", ")) & set(second.split(", "))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("os._exit(3)", r"exit status 3: os\._exit\(3\) was called \(ends\.py:3\)"),
        ("ctypes.string_at(0)", r"SIGSEGV at ends\.py:3"),
    ],
)
def test_the_end_of_the_process_is_reported_with_its_line(
    body: str, message: str, worker: Pool, tmp_path: Path
) -> None:
    line = external(write(tmp_path / "ends.py", f"import ctypes, os\ndef vector_add(a, b):\n    {body}\n"))
    reply = check(worker, line)
    assert isinstance(reply, Failed)
    assert (reply.status, reply.implementation) == ("error", "with/ends")
    assert re.search(message, reply.reason), reply.reason
    assert status(check(worker, external(write(tmp_path / "right.py", RIGHT)))) == "ok", "the worker goes on"


def test_files_beside_it_can_be_imported_and_shadow_nothing(worker: Pool, tmp_path: Path) -> None:
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
        beside = check(worker, external(write(folder / f"beside{number}.py", text)))
        alone = check(worker, external(write(tmp_path / f"alone{number}.py", RIGHT)))
        measured = {"first_call_s": 0, "judged": 0}
        assert replace(beside, **measured) == replace(alone, **measured)  # type: ignore[arg-type]
        assert status(alone) == "ok"


def test_a_file_that_changes_during_a_run_is_an_error(worker: Pool, tmp_path: Path) -> None:
    line = external(write(tmp_path / "edited.py", RIGHT))
    assert status(check(worker, line)) == "ok"
    reply = check(worker, replace(line, digest="0" * 12))
    assert reply.reason == "edited.py, or a file that it uses, changed while the run was going on (edited.py:1)"


def test_a_call_with_side_effects_is_timed_with_their_removal(worker: Pool, tmp_path: Path) -> None:
    moves = (
        "import os, torch\ndef vector_add(a, b):\n    assert os.getcwd() != '/'\n    os.chdir('/')\n    return a + b\n"
    )
    line = external(write(tmp_path / "moves.py", moves))
    request = TimeExternalRequest(CASE, line.reference, 0, "cold", transfers=False, vendor="torch", vendor_us=1e6)
    reply = worker.ask(request, timeout_s=60.0)
    assert isinstance(reply, TimeReply)
    assert reply.timings[line.name].device_us
    assert reply.timings[line.name].vs_best


@pytest.mark.parametrize("changes", [True, False], ids=["changes", "changes_nothing"])
def test_a_call_without_side_effects_is_timed_without_the_search_for_them(changes: bool, tmp_path: Path) -> None:
    body = "    os.chdir('/')\n" if changes else ""
    line = external(write(tmp_path / "file.py", f"import os\ndef vector_add(a, b):\n{body}    return a + b\n"))
    function = line.for_case(CASE).function_for(CASE, 2)
    timed = line.function_to_time(function, lambda: function(torch.ones(3), torch.ones(3)))
    assert (timed is function) == changes
    assert (timed is function.function) == (not changes)
