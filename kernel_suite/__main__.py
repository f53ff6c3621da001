"""Runs the command line: `python -m kernel_suite`, or the command `kernel-suite`."""

from pathlib import Path

from kernel_suite.suite.__main__ import main, without_current_folder

if __name__ == "__main__":
    without_current_folder(Path(__file__).resolve().parents[1])
    main()
