"""Triton's autotuner with stored choices: configurations are timed only if no search or earlier process has done so.

The key of a choice is a tuple of the values of the arguments that the autotuner's `keys` name, then the dtypes of all
arguments that have one. The configuration for a key comes from the first of these that has one:

1. the file of tuned configurations of this device and version of Triton (`tuned.py`);
2. the choice that an earlier process has kept in Triton's cache folder;
3. timing the short list and the configurations that other versions of Triton were tuned to for this key.

Triton's own `cache_results` does not support configurations with a pre-hook.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import triton
from triton.runtime.autotuner import Autotuner as TritonAutotuner
from triton.runtime.cache import get_cache_manager

from triton_kernels._runtime import tuned as _tuned
from triton_kernels._runtime.bench import do_bench
from triton_kernels._runtime.tuned import Entry, Scalar

Key = tuple[Any, ...]
OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg")
"""Options of a configuration that are not parameters of the kernel."""
CHOICE = "choice.json"
TUNED, AUTOTUNED, KEPT = "tuned", "autotuned", "autotuned earlier"
"""Sources of a configuration."""


def autotune(
    configs: Sequence[triton.Config],
    key: Sequence[str],
    short_list: Callable[..., list[triton.Config]] | None = None,
) -> Callable[[Any], Autotuner]:
    """Decorator, as `triton.autotune`. `short_list(configs, arguments, **constants)` selects those to be timed."""
    return lambda kernel: Autotuner(kernel, list(configs), list(key), short_list)


def kernel_name(tuner: TritonAutotuner) -> str:
    """The kernel's module below its folder and its name: `matmul.persistent.persistent_matmul_kernel`."""
    folder = __package__.removesuffix("_runtime")
    return f"{tuner.base_fn.__module__.removeprefix(folder)}.{tuner.base_fn.__name__}"


class Autotuner(TritonAutotuner):
    """An autotuner with the sources above. fault: the reason why a tuned entry cannot be used."""

    def __init__(
        self,
        kernel: Any,
        configs: list[triton.Config],
        key: list[str],
        short_list: Callable[..., list[triton.Config]] | None = None,
    ) -> None:
        prune = {"early_config_prune": short_list} if short_list is not None else None
        super().__init__(
            kernel, kernel.arg_names, configs, key, None, None,
            prune_configs_by=prune, do_bench=do_bench, cache_results=True,
        )  # fmt: skip
        self.name = kernel_name(self)
        self.remembers = True
        """True if tuned configurations and kept choices are used, and choices kept."""
        self.fault = ""
        self.origins: dict[Key, str] = {}
        self._borrowed: list[triton.Config] = []

    @property
    def origin(self) -> str:
        """The source of the configuration of the last launch."""
        found = (origin for key, origin in self.origins.items() if self.cache.get(key) is self.best_config)
        return next(found, AUTOTUNED)

    def short_list(self, constants: Mapping[str, Any]) -> list[triton.Config]:
        """The configurations to be timed for the present arguments (`nargs`), by the short list alone."""
        found: list[triton.Config] = super().prune_configs(dict(constants))
        return found

    def prune_configs(self, kwargs: dict[str, Any]) -> list[triton.Config]:
        """The configurations to be timed for the present arguments; a single one if the choice is known.

        Triton calls it for every key that its cache does not have.
        """
        short = self.short_list(kwargs)
        self._borrowed = []
        if not self.remembers:
            return short
        key = self._key(kwargs)
        values, dtypes = named(self, key)
        full_key = _tuned.full_key(self.name, values, dtypes)
        entries = _tuned.entries_of(torch.cuda.get_device_name())
        self.fault = entries.fault
        if full_key in entries.here and (config := self._config(entries.here[full_key])) is not None:
            self.origins[key] = TUNED
            return [config]
        known = [plain(config) for config in short]
        for entry in entries.elsewhere.get(full_key, ()):
            config = self._config(entry)
            if config is not None and plain(config) not in known:
                known.append(plain(config))
                self._borrowed.append(config)
        candidates = [*short, *self._borrowed]
        kept = self._kept(key, candidates)
        self.origins[key] = AUTOTUNED if kept is None else KEPT
        return candidates if kept is None else [kept]

    def check_disk_cache(self, tuning_key: Key, configs: list[triton.Config], bench_fn: Callable[[], None]) -> bool:
        """Times `configs`, unless there is only one, and keeps the choice. Returns True if nothing was timed."""
        if len(configs) == 1:
            self.cache[tuning_key] = configs[0]
            self.configs_timings: dict[triton.Config, Any] = {}
            return True
        bench_fn()
        if self.remembers:
            self._keep(tuning_key, configs)
        return False

    def _bench(self, *args: Any, config: triton.Config, **meta: Any) -> Any:
        """Times one configuration. Times are infinite if it fails, as one from another version of Triton may."""
        try:
            return super()._bench(*args, config=config, **meta)
        except Exception:
            if not any(config is each for each in self._borrowed):
                raise
            return [float("inf")] * 3

    def _key(self, kwargs: Mapping[str, Any]) -> Key:
        """The key of the present arguments, as Triton's `run` forms it."""
        given = {name: value for name, value in {**self.nargs, **kwargs}.items() if name in self.arg_names}
        dtypes = [str(value.dtype) for value in given.values() if hasattr(value, "dtype")]
        return (*(given[name] for name in self.keys if name in given), *dtypes)

    def _config(self, entry: Entry) -> triton.Config | None:
        try:
            return config_of(self, entry.config)
        except ValueError as error:
            self.fault = str(error)
            return None

    def _choices(self, key: Key, candidates: Sequence[triton.Config]) -> Any:
        """Triton's cache entry for this key and for the source, device, version of Triton and candidates."""
        values, dtypes = named(self, key)
        of = [
            _tuned.version(),
            torch.cuda.get_device_name(),
            self.fn.cache_key,
            _tuned.full_key(self.name, values, dtypes),
            [plain(config) for config in candidates],
        ]
        return get_cache_manager(hashlib.sha256(json.dumps(of).encode()).hexdigest())

    def _kept(self, key: Key, candidates: Sequence[triton.Config]) -> triton.Config | None:
        """The choice that an earlier process kept; None if there is none that can be read."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            path = self._choices(key, candidates).get_file(CHOICE)
            if path is not None:
                chosen = json.loads(Path(path).read_text(encoding="utf-8"))["config"]
                return next((config for config in candidates if plain(config) == chosen), None)
        return None

    def _keep(self, key: Key, candidates: Sequence[triton.Config]) -> None:
        """Keeps the choice for later processes if the cache can be written. Triton renames a complete file."""
        text = json.dumps({"config": plain(self.cache[key])})
        with contextlib.suppress(OSError, RuntimeError):
            self._choices(key, candidates).put(text, CHOICE, binary=False)


def named(kernel: TritonAutotuner, key: Key) -> tuple[dict[str, Scalar], tuple[str, ...]]:
    """Splits a key into values by name, and dtypes. Values other than JSON scalars become text, such as `fp16`."""
    values = dict(zip(kernel.keys, key, strict=False))
    return {n: v if isinstance(v, Scalar) else str(v) for n, v in values.items()}, key[len(values) :]


def plain(config: triton.Config) -> dict[str, Scalar]:
    """A configuration as a dict, without num_ctas=1."""
    return {name: value for name, value in config.all_kwargs().items() if (name, value) != ("num_ctas", 1)}


def config_of(kernel: TritonAutotuner, found: Mapping[str, Scalar]) -> triton.Config:
    """The inverse of `plain`, with the pre-hook of this kernel's configurations.

    Raises `ValueError` for parameters that the kernel's configurations do not have.
    """
    tile = {name: value for name, value in found.items() if name not in OPTIONS}
    options: dict[str, Any] = {name: found[name] for name in OPTIONS if name in found}
    like = next((config for config in kernel.configs if config.kwargs.keys() == tile.keys()), None)
    if like is None or not {"num_warps", "num_stages"} <= options.keys():
        expected = ", ".join([*kernel.configs[0].kwargs, "num_warps", "num_stages"])
        raise ValueError(f"a configuration has {', '.join(found) or 'nothing'}; this kernel's have {expected}")
    samples = {**like.kwargs, **dict.fromkeys(OPTIONS, 1)}
    for name, value in found.items():
        if type(value) is not type(samples[name]):
            raise ValueError(f"{name}={value!r} in a configuration: must be of type {type(samples[name]).__name__}")
    return triton.Config(tile, **options, pre_hook=like.pre_hook)
