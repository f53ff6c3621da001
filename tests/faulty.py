"""Faulty implementations, injected into workers as `torch/<name>` through a PYTHONPATH."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from suite.hardware.host import cpu_cache_bytes
from suite.implementations import builtin
from suite.implementations.implementation import Implementation
from suite.timing.target import EVICTION

ROOT = Path(__file__).resolve().parents[1]
MEMORY_BYTES = (1 << 30) + int(EVICTION * cpu_cache_bytes())
"""The memory that a worker may take: room for a fault beside the buffer that evicts the processor's cache."""
OUT_OF_MEMORY = rf"out of host memory: it took more than the {MEMORY_BYTES / 2**30:.1f} GiB that it may have"

CRASHES = {
    "right": "return a + b",
    "wrong": "return a - b",
    "raises": "raise RuntimeError('no luck\\ntoday')",
    "unsupported": "raise NotImplementedError('only on Tuesdays')",
    "segfault": "import ctypes; ctypes.string_at(0)",
    "kills_itself": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "is_terminated": "import os, signal, time; os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)",
    "is_interrupted": "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(60)",
    "exits": "import os; print('last words', flush=True); os._exit(3)",
    "quits": "raise SystemExit",
    "prints": 'print(\'{"event": "done", "status": "ok"}\'); return a - b',
    "prints_a_lot": "print('x' * 1000000); return a + b",
    "prints_forever": "while True: print('x' * 1000)",
    "sleeps": "import time; time.sleep(600)",
    "loops": "while True: pass",
    "loops_in_c": "import re; re.match('(a+)+$', 'a' * 64 + 'b')",
    "returns_nothing": "return None",
    "allocates": "held = []\n    while True: held.append(bytearray(1 << 26)); held[-1][::4096] = b'x' * (1 << 14)",
    "asks_for_200_gb": "import torch; torch.empty(200 << 30, dtype=torch.uint8).fill_(1); return a + b",
    "forks": "import os\n    if os.fork() == 0:\n        import time; time.sleep(600)\n    os._exit(5)",
    "answers_twice": "import os\n    os.fork()\n    return a + b",
    "answers_twice_in_c": "import ctypes\n    ctypes.CDLL(None).fork()\n    return a + b",
    "leaves_a_child": "import os, time\n    if os.fork() == 0: time.sleep(600)\n    return a + b",
    "speaks": "raise RuntimeError('\\x1b[31m[bold red]|<script>`*x*` \\x00 \\udc80 \\u202e,\"q\"\\r\\nsecond line')",
}
"""Bodies of `vector_add(a, b)`."""
LATER = """import torch
    global calls
    calls = globals().get('calls', 0) + (not torch._C._len_torch_dispatch_stack())
    if calls > 1: {fault}
    return a + b"""
"""Right when it is checked, in poisoned memory, and in the first call without; wrong when it is timed."""
TIMED = {
    "dies_later": LATER.format(fault="import ctypes; ctypes.string_at(0)"),
    "hangs_later": LATER.format(fault="import time; time.sleep(600)"),
    "raises_later": LATER.format(fault="raise RuntimeError('tired')"),
    "lazy_later": LATER.format(fault="return a"),
}


def inject(folder: Path, faults: Mapping[str, str]) -> str:
    """A PYTHONPATH for workers, whose sitecustomize adds `torch/<name>` to the implementations of vector_add.

    `faults` maps names to bodies of `vector_add(a, b)`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in faults.items():
        (folder / f"fault_{name}.py").write_text(f"def vector_add(a, b):\n    {body}\n", encoding="utf-8")
    (folder / "sitecustomize.py").write_text(
        "import dataclasses, suite.implementations.builtin as builtin\n"
        "real = builtin.implementations\n"
        f"names = {list(faults)}\n"
        "def implementations(operation):\n"
        "    plain = next(i for i in real(operation) if i.name == 'torch')\n"
        "    added = [dataclasses.replace(plain, name='torch/' + n, module='fault_' + n) for n in names]\n"
        "    return real(operation) + (tuple(added) if operation == 'vector_add' else ())\n"
        "builtin.implementations = implementations\n",
        encoding="utf-8",
    )
    return os.pathsep.join(filter(None, [str(folder), str(ROOT), os.environ.get("PYTHONPATH")]))


def named(*names: str) -> tuple[Implementation, ...]:
    """Implementations of vector_add by name, also injected ones."""
    real = {each.name: each for each in builtin.implementations("vector_add")}
    return tuple(
        real.get(name)
        or dataclasses.replace(real["torch"], name=name, module=f"fault_{name.removeprefix('torch/')}", vendor=None)
        for name in names
    )
