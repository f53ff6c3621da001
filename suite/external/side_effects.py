"""Finds the side effects of a user's file on its process, with their source lines, and undoes them.

    remarks = Remarks(path)
    with SideEffects(remarks):
        ...                 # the file's code runs
    remarks.texts()         # ["printed to stdout (mine.py:7)", "changed the working directory, undone (mine.py:9)"]

Hooks in `os` and `sys.stdout` report prints, `os._exit` and changes of folder or environment as they happen; the stack
gives the line. Random states and framework settings are compared before and after. With `traced=True` they are compared
after each line of the file too, which gives the line. Random states are not restored.
"""

from __future__ import annotations

import os
import sys
from types import FrameType, TracebackType

from suite.core.package import PREFIX
from suite.external import hooks
from suite.external.line_tracer import LineTracer
from suite.external.remarks import Remarks
from suite.external.settings import settings
from suite.external.stdout import Stdout

FRAMEWORKS = ("torch", "triton", "jax", "numpy")
"""Prefixes of modules that may set environment variables: such changes get no remark, and are not undone."""
ENVIRONMENT_MODULES = ("os", "_collections_abc", "contextlib")
"""Modules on the stack between the code that changes a variable and `os.putenv`."""


class SideEffects:
    """Context manager. While entered, prints and changes are added to `remarks`; on exit the changes are undone.

    After the exit, `changed` is true if something had to be undone, and `unplaced` if the line of a side effect is
    unknown.
    """

    def __init__(self, remarks: Remarks, *, traced: bool = False) -> None:
        self.path = remarks.path
        self.remarks = remarks
        self.changed = self.unplaced = False
        self._traced = traced
        self._variables: dict[str, int | None] = {}
        self._chdir_line: int | None = None

    def __enter__(self) -> SideEffects:
        hooks.install()
        self._outer = hooks.activate(self)
        self._environ, self._environment = os.environ, os.environ.copy()
        self._folder = _working_directory()
        self._settings = settings()
        self._before = [setting.get() for setting in self._settings]
        self._stdout = Stdout()
        self._tracer = LineTracer(str(self.path), self._settings, self._before, self._record_native_prints)
        if self._traced:
            self._previous_trace = sys.gettrace()
            sys.settrace(self._tracer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._traced:
            sys.settrace(self._previous_trace)
        hooks.activate(self._outer)
        self._stdout.restore_streams()
        self._record_native_prints(self._tracer.line)
        self._stdout.restore()
        self._restore_folder()
        self._restore_environment()
        self._restore_settings()

    def line(self, frame: FrameType | None) -> int | None:
        """The innermost line of the file on the stack that ends in `frame`."""
        while frame is not None:
            if frame.f_code.co_filename == str(self.path):
                return frame.f_lineno
            frame = frame.f_back
        return None

    def printed(self, frame: FrameType | None) -> None:
        self.remarks.add("printed to stdout", self.line(frame))

    def changed_folder(self, frame: FrameType | None) -> None:
        self._chdir_line = self.line(frame)

    def changes_variable(self, variable: str, frame: FrameType | None) -> None:
        while frame is not None and frame.f_globals.get("__name__") in ENVIRONMENT_MODULES:
            frame = frame.f_back
        if frame is not None and str(frame.f_globals.get("__name__", "")).removeprefix(PREFIX).startswith(FRAMEWORKS):
            self._variables.pop(variable, None)
            return
        self._variables[variable] = self.line(frame)

    def _record_native_prints(self, line: int | None) -> None:
        """Attribute to `line` the prints of C code or child processes since the last call."""
        if self._stdout.has_grown():
            self.unplaced |= line is None
            self.remarks.add("printed to stdout", line)

    def _restore_folder(self) -> None:
        if self._folder is not None and _working_directory() != self._folder:
            hooks.real_chdir(self._folder)
            self._undone("the working directory", self._chdir_line)

    def _restore_environment(self) -> None:
        if os.environ is not self._environ:
            os.environ = self._environ  # noqa: B003 (the original object)
            self._undone("os.environ", None)
        for variable, line in self._variables.items():
            before = self._environment.get(variable)
            if os.environ.get(variable) != before:
                self._undone(f"the environment variable {variable}", line)
            if before is None:
                os.environ[variable] = ""  # a bare os.putenv bypasses os.environ, whose `del` needs an entry
                del os.environ[variable]
            else:
                os.environ[variable] = before

    def _restore_settings(self) -> None:
        self._tracer.compare()
        for setting, before in zip(self._settings, self._before, strict=True):
            if setting.get() != before:
                line = self._tracer.changed_by.get(setting.what)
                if setting.put is None:
                    self._changed(setting.what, line)
                else:
                    self._undone(setting.what, line)
        for _ in range(2):  # one of torch's settings may change another when it is restored
            for setting, before in zip(self._settings, self._before, strict=True):
                if setting.put is not None and setting.get() != before:
                    setting.put(before)

    def _undone(self, what: str, line: int | None) -> None:
        self.changed = True
        self._changed(f"{what}, undone", line)

    def _changed(self, what: str, line: int | None) -> None:
        self.unplaced |= line is None
        self.remarks.add(f"changed {what}", line)


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return None
