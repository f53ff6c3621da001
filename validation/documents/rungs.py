"""docs/lab/rungs.md: the times of all implementations of ours in one run on an H100."""

from __future__ import annotations

import json
from collections.abc import Sequence

from suite import ops
from suite.results.csv_file import read_rows
from suite.results.render import pipe_table
from suite.results.row import Row, Status
from validation.documents import ROOT
from validation.documents.rows import H100, wrapped

PAGE = ROOT / "docs" / "lab" / "rungs.md"
RESULTS = H100 / "rungs"
MAX_CASES = 2
"""Number of cases of an operation without an entry in CHOSEN: the first ones of its table."""
ATTENTION = "B=4,H=16,H_kv=16,S_q=4096,S_k=4096,D=128"
CHOSEN = {
    "matmul": [("M=4096,N=4096,K=4096", kind) for kind in ("bfloat16 ieee", "float32 tf32", "float32 ieee")],
    "attention": [(ATTENTION, "bfloat16 ieee"), (f"{ATTENTION},causal", "bfloat16 ieee")],
    "vector_add": [("N=268435456", "bfloat16 ieee"), ("N=268435456", "float32 ieee")],
    "sigmoid": [("N=268435456", "bfloat16 ieee"), ("N=268435456", "float32 ieee")],
    **{
        name: [(sizes, "bfloat16 ieee") for sizes in ("M=32768,N=4096", "M=1024,N=131072")]
        for name in ("softmax", "rms_norm", "layer_norm")
    },
    "linear_sigmoid": [(sizes, "bfloat16 ieee") for sizes in ("M=4096,N=4096,K=4096", "M=16,N=14336,K=4096")],
    "lstm": [(sizes, "bfloat16 ieee") for sizes in ("T=512,B=1,I=1024,H=1024", "T=128,B=256,I=512,H=512")],
    "matrix_add": [
        ("M=16384,N=16384", "bfloat16 ieee"),
        ("M=16384,N=16384", "float32 ieee"),
        ("M=16384,N=16384,layout=nt", "bfloat16 ieee"),
    ],
}
"""Cases and types that are shown. Each line covers one of them."""
HEAD = """# All rungs on an H100

Microseconds of `torch` and of our implementations without the choosers, and in brackets torch's time over each one's:
above 1 is faster than torch. A cell is empty where an implementation does not cover the case. Cold L2 cache, random
normal inputs; {device}, driver {driver}, torch {torch}, triton {triton}.
The [results](../../results/nvidia-h100-80gb-hbm3/rungs) have more cases.
`python -m validation.documents --write` makes this page. The commands of the two runs:

```
{commands}
```
"""


def cell(row: Row | None, vendor: Row | None) -> str:
    """`171.3 (1.02)`; empty without a time."""
    if row is None or row.device_us is None:
        return ""
    time = f"{row.device_us:,.0f}" if row.device_us >= 1000.0 else f"{row.device_us:.1f}"
    if vendor is None or vendor.device_us is None or row is vendor:
        return time
    return f"{time} ({vendor.device_us / row.device_us:.2f})"


def table(rows: Sequence[Row], chosen: Sequence[tuple[str, str]]) -> str:
    """A line for each implementation but the choosers, which run one of the others; a column for each case."""
    found = {(r.case, f"{r.dtype} {r.precision}", r.implementation): r for r in rows if r.status is Status.OK}
    names = list(dict.fromkeys(row.implementation for row in rows if not row.implementation.endswith("/auto")))

    def slowness(name: str) -> list[float]:
        times = [found[*key, name].device_us or 0.0 if (*key, name) in found else 0.0 for key in chosen]
        return [-(next((time for time in times if time), 0.0)), *times]

    body = []
    for name in sorted(names, key=slowness):
        cells = [cell(found.get((*key, name)), found.get((*key, "torch"))) for key in chosen]
        if any(cells):
            body.append([f"`{name}`", *cells])
    heads = ["line", *(f"{case} {kind.removesuffix(' ieee')}" for case, kind in chosen)]
    return pipe_table(heads, body, right=set(heads[1:]))


def page() -> str:
    """The contents of the page."""
    environment = json.loads((RESULTS / "environment.json").read_text(encoding="utf-8"))
    packages = environment["packages"]
    lines = [
        HEAD.format(
            device=environment["device"]["name"],
            driver=environment["device"]["driver"],
            torch=packages["torch"],
            triton=packages["triton"],
            commands="\n".join(map(wrapped, environment["commands"])),
        )
    ]
    for operation in ops.names():
        path = RESULTS / f"{operation}.csv"
        if not path.exists():
            continue
        rows = read_rows(path)
        cases = list(dict.fromkeys((row.case, f"{row.dtype} {row.precision}") for row in rows))
        lines += [f"## {operation}", "", table(rows, CHOSEN.get(operation, cases[:MAX_CASES])), ""]
    return "\n".join(lines)


def filled(text: str) -> str:
    """Return the page, which is generated as a whole."""
    return page()
