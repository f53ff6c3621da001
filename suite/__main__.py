"""Runs the command line: `python -m suite`."""

import os
import sys


def main() -> None:
    from suite.core.lazy import import_when_used
    from suite.core.signals import interruptible_command
    from suite.core.streams import open_standard_streams

    open_standard_streams()
    with interruptible_command():
        from suite.cli.main import main as command

        import_when_used("torch")
        command()


if __name__ == "__main__":
    if not sys.flags.safe_path:  # leaves out the current folder: a torch.py there is not PyTorch
        sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    main()
