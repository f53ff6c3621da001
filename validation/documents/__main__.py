"""Compares the pages with the results, or fills them: see `validation/documents/__init__.py`."""

from __future__ import annotations

import argparse
import difflib

from suite.core.files import write_atomically
from validation.documents import ROOT, documents


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m validation.documents", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the numbers of the results into the pages")
    write, stale = parser.parse_args().write, False
    for document in documents().values():
        before = document.PAGE.read_text(encoding="utf-8")
        after = document.filled(before)
        if before == after:
            continue
        stale = True
        name = str(document.PAGE.relative_to(ROOT))
        print(
            *difflib.unified_diff(before.splitlines(), after.splitlines(), name, "results", n=0, lineterm=""), sep="\n"
        )
        if write:
            write_atomically(document.PAGE, after)
    return int(stale and not write)


if __name__ == "__main__":
    raise SystemExit(main())
