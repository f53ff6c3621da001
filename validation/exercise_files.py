"""Writes each exercise of the course from its answer, without what stands in the gap.

python validation/exercise_files.py            names the exercises that differ from their answers
python validation/exercise_files.py --write    writes them
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from suite.exercises.catalogue import exercises
from suite.exercises.gap import emptied


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the exercises")
    write = parser.parse_args().write
    texts = {each: emptied(each.answer.read_text(encoding="utf-8")) for each in exercises()}
    stale = [each for each, text in texts.items() if not each.file.exists() or each.file.read_text() != text]
    for each in stale:
        print(each.name)
        if write:
            each.file.write_text(texts[each], encoding="utf-8")
    return 0 if write else int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
