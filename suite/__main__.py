"""Runs the command line: `python -m suite`."""

import sys
from pathlib import Path


def main() -> None:
    from suite.core.lazy import import_when_used, without_collections
    from suite.core.signals import interruptible_command
    from suite.core.streams import open_standard_streams

    open_standard_streams()
    with interruptible_command():
        try:
            with without_collections():
                from suite.cli.main import main as command
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] in ("", "suite", "kernel_suite"):
                raise
            sys.exit(f"{error}: this Python lacks the suite's packages. In a checkout: . .venv/bin/activate")

        import_when_used("torch")
        command()


def without_current_folder(searched: Path) -> None:
    """Replace the current folder on `sys.path`, where `python -m` puts it first: a torch.py there is not PyTorch.

    `searched` is the folder in which Python finds the running package.
    """
    if not sys.flags.safe_path:
        sys.path[:1] = [] if str(searched) in sys.path[1:] else [str(searched)]


if __name__ == "__main__":
    without_current_folder(Path(__file__).resolve().parents[1])
    main()
