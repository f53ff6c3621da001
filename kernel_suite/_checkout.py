"""In a checkout: `kernel_suite.NAME` is another name for the module `NAME`. The installed package does not use this."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
PREFIX = "kernel_suite."
FOLDERS = {each.parent.name for each in ROOT.glob("*/__init__.py")} - {"kernel_suite", "validation"}
"""`suite` and the folders of the frameworks."""


class _Finder(MetaPathFinder, Loader):
    """Finds FOLDERS in the checkout, whatever else has their names, and the same modules under PREFIX."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in FOLDERS:
            return PathFinder.find_spec(name, [str(ROOT)])
        real = name.removeprefix(PREFIX)
        return ModuleSpec(name, self) if real != name and real.split(".")[0] in FOLDERS else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(spec.name.removeprefix(PREFIX))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the spec of the module, which has run under its own name. The import system replaced it."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Make the names known. Raises `ImportError` if this process has imported another module called like a folder."""
    for name in FOLDERS:
        file = getattr(sys.modules.get(name), "__file__", None)
        if name in sys.modules and (file is None or not Path(file).resolve().is_relative_to(ROOT / name)):
            raise ImportError(
                f"kernel_suite runs from a checkout, whose module {name!r} would have the name of one that is imported "
                f"already ({file}); install it instead: pip install {ROOT}"
            )
    sys.meta_path.insert(0, _Finder())
