"""Access to the kernels' autotuners: the launches that look up a configuration, and changes of their choices.

`triton_kernels/_runtime/autotuner.py` defines the choice. Import this only after `Adapter.prepare` of Triton.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from triton import AsyncCompileMode, Config
from triton.runtime.autotuner import Autotuner

from triton_kernels._runtime.autotuner import Key, kernel_name, named, plain
from triton_kernels._runtime.kept import forget

__all__ = ["Launch", "autotuners", "compile_all", "emptied_caches", "launches", "named", "plain", "reached", "text"]


def autotuners(module: ModuleType) -> dict[str, Autotuner]:
    """The autotuned kernels that a module defines or imports, by `kernel_name`."""
    found = [each for each in vars(module).values() if isinstance(each, Autotuner)]
    return {kernel_name(each): each for each in found}


def reached(module: ModuleType) -> list[Autotuner]:
    """The autotuned kernels of a module and of the modules of its package that it imports from, at any depth."""
    package, modules, found = module.__name__.partition(".")[0], [module], {}
    for each in modules:  # grows while it is read
        for value in vars(each).values():
            if isinstance(value, Autotuner):
                found[id(value)] = value
            known = sys.modules.get(str(getattr(value, "__module__", "")))
            origin = value if isinstance(value, ModuleType) else known
            if origin is not None and origin not in modules and origin.__name__.startswith(f"{package}."):
                modules.append(origin)
    return [*found.values()]


def text(config: Config) -> str:
    """`BLOCK_M=128, BLOCK_N=256, num_warps=8, num_stages=3`."""
    return ", ".join(f"{name}={value}" for name, value in plain(config).items())


class LastConfigCache(dict[Key, Config]):
    """An autotuner's cache that gives unknown keys the configuration of the kernel's last launch."""

    def __init__(self, known: dict[Key, Config], last: Config) -> None:
        super().__init__()
        self.known, self.last = known, last

    def __contains__(self, key: object) -> bool:
        return True

    def __getitem__(self, key: Key) -> Config:
        return self.known.get(key, self.last)


@contextlib.contextmanager
def use_last_configs(kernels: Iterable[Autotuner]) -> Iterator[None]:
    """While open, new keys get the configuration of the kernel's last launch. A kernel without one is tuned."""
    launched = [kernel for kernel in kernels if getattr(kernel, "best_config", None) is not None]
    caches = [kernel.cache for kernel in launched]
    for kernel in launched:
        kernel.cache = LastConfigCache(kernel.cache, kernel.best_config)
    try:
        yield
    finally:
        forget()
        for kernel, cache in zip(launched, caches, strict=True):
            kernel.cache = cache


@contextlib.contextmanager
def compiling_only(kernels: Iterable[Autotuner]) -> Iterator[None]:
    """While open, configurations are compiled in place of being timed. Any of them is launched; no choice is kept."""

    def compiled(kernel: Autotuner) -> Callable[..., Any]:
        def compile_one(*args: Any, config: Config, **kwargs: Any) -> list[float]:
            with contextlib.suppress(Exception):  # the launch raises it again
                Launch(kernel, (), args, kwargs).compile(config)
            return [0.0] * 3

        return compile_one

    kernels = list(kernels)
    for kernel in kernels:
        kernel._bench = compiled(kernel)
        kernel._keep = lambda *_: None
    try:
        yield
    finally:
        for kernel in kernels:
            del kernel._bench, kernel._keep  # restores the methods


@dataclass(frozen=True)
class Launch:
    """One launch through an autotuner, with the arguments to repeat it with another configuration."""

    kernel: Autotuner
    key: Key
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def constants(self) -> dict[str, Any]:
        return {name: value for name, value in self.kwargs.items() if name not in ("grid", "warmup")}

    @property
    def arguments(self) -> dict[str, Any]:
        return dict(zip(self.kernel.arg_names, self.args, strict=False))

    def candidates(self, space: Callable[..., Sequence[Config]]) -> list[Config]:
        """The autotuner's short list for these arguments, then the additions of `space`, the file's `tuning_space`."""
        self.kernel.nargs = self.arguments
        try:
            short = self.kernel.prune_configs(self.constants)
        finally:
            self.kernel.nargs = None
        return list(dict.fromkeys([*short, *space(self.arguments, **self.constants)]))

    def compile(self, config: Config) -> None:
        """Compile the kernel for this launch without launching it."""
        if config.pre_hook is not None:
            config.pre_hook({**self.arguments, **self.constants, **config.all_kwargs()})
        self.kernel.fn.run(*self.args, **{**self.kwargs, "warmup": True}, **config.all_kwargs())

    def choose(self, config: Config) -> None:
        """Make `config` the autotuner's choice for this key."""
        self.kernel.cache[self.key] = config
        forget()


@contextlib.contextmanager
def emptied_caches(kernels: Iterable[Autotuner]) -> Iterator[None]:
    """While open, the autotuners have no choices, and read none from files. Afterwards the earlier ones return."""
    before = [(kernel, kernel.cache, kernel.remembers) for kernel in kernels]
    for kernel, *_ in before:
        kernel.cache, kernel.remembers = {}, False
    forget()
    try:
        yield
    finally:
        forget()
        for kernel, cache, remembers in before:
            kernel.cache, kernel.remembers = cache, remembers


def launches(kernels: Iterable[Autotuner], call: Callable[[], Any]) -> list[Launch]:
    """The launches of `call` with keys for which these autotuners had no choice."""
    found: list[Launch] = []

    def recorded(kernel: Autotuner) -> Callable[..., Any]:
        run = kernel.run

        def run_and_record(*args: Any, **kwargs: Any) -> Any:
            before = set(kernel.cache)
            result = run(*args, **kwargs)
            found.extend(Launch(kernel, key, args, kwargs) for key in kernel.cache if key not in before)
            return result

        return run_and_record

    kernels = list(kernels)
    for kernel in kernels:
        kernel.run = recorded(kernel)
    try:
        call()
    finally:
        for kernel in kernels:
            del kernel.run  # restores the method
    return found


def compile_all(launch: Launch, configs: Sequence[Config], threads: int, on_compiled: Callable[[], None]) -> None:
    """Compile in parallel ahead of the launches, which repeat any error. `on_compiled` is called after each."""
    with (
        ThreadPoolExecutor(threads) as pool,
        AsyncCompileMode(pool, ignore_errors=True) as mode,
    ):
        for config in configs:
            with contextlib.suppress(Exception):
                launch.compile(config)
        for _ in as_completed(mode.raw_futures):
            on_compiled()
