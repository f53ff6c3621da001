"""A problem of KernelBench: `Model`, `get_inputs` and `get_init_inputs`; solutions define `ModelNew`.

The integers that the file assigns as literals at module level, such as `batch_size = 4096`, are the dimensions
(`dimensions.py`). `--shape` replaces their values, and the file runs with these. Model and ModelNew are constructed
after the same seed; then ModelNew takes the parameters of Model that have the same names and shapes. Both stay in
training mode, as in KernelBench.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from suite.core.errors import UsageError
from suite.custom.about import About
from suite.custom.arguments import is_floating
from suite.custom.dimensions import literals
from suite.custom.file import parsed, run
from suite.custom.memory import formed
from suite.custom.program import Function, Program, mutates_of, seeded, signature_of
from suite.custom.varied import VARIED, is_constant, varied
from suite.numerics.formats import DTYPES
from suite.problem.case import Case
from suite.problem.source import Source

NEEDED = ("Model", "get_inputs", "get_init_inputs")
WEIGHTS_SEED = 42


class KernelBenchFile(Program):
    """The code of a file with a KernelBench problem."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._sizes = literals(parsed(source))
        self._modules: dict[tuple[tuple[str, int], ...], ModuleType] = {}
        self._models: dict[Case, torch.nn.Module] = {}
        module = run(source, {})
        if missing := [name for name in NEEDED if not callable(getattr(module, name, None))]:
            raise UsageError(f"{source.name} has no {', '.join(missing)}; a problem has {', '.join(NEEDED)}")
        self._modules[tuple(self._sizes.items())] = self._first = module
        self.parameters = list(inspect.signature(module.Model.forward).parameters)[1:]
        self.mutates = mutates_of(module, self.parameters, source.name)

    def about(self) -> About:
        name = "".join(letter if letter.isalnum() else "_" for letter in Path(self.source.path).stem)
        return About(
            name=name,
            entry="ModelNew",
            signature=signature_of("ModelNew(...)", self._first.Model.forward)
            .replace("(self, ", "(")
            .replace("(self)", "()"),
            formula=f"Model of {self.source.name}",
            dims=tuple(self._sizes),
            defaults=(tuple(self._sizes.values()),),
            dtypes=("float32",),
            beyond=tuple(dtype for dtype in DTYPES if dtype != "float32"),
            framework="torch",
        )

    def values(self, case: Case) -> list[Any]:
        return list(self._module(case).get_inputs())

    def reference(self, case: Case, dtype: torch.dtype, device: torch.device) -> Function:
        on_meta = device.type == "meta"
        model = self._constructed(case, "Model", device) if on_meta else self._copied(case).to(device)
        found: Function = _cast(model, getattr(torch, case.dtype), dtype)
        return found

    def weights(self, case: Case) -> dict[str, torch.Tensor]:
        return dict(self._model(case).named_parameters())

    def callable_of(self, entry: Any, case: Case) -> Function:
        """ModelNew with the parameters of Model. The first call constructs it, on the device of its inputs."""
        found: list[Function] = []

        def call(*tensors: torch.Tensor) -> Any:
            if not found:
                kind = getattr(torch, case.dtype)
                solution = _cast(self._solution(entry, case), kind, kind).to(tensors[0].device)
                found.append(super(KernelBenchFile, self).callable_of(solution, case))
            return formed(found[0](*tensors))

        return call

    def _kept(self, case: Case, given: Sequence[Any]) -> Collection[int]:
        """Positions of the tensors in float64 or a narrower type than 16 bits; all others follow the case's dtype."""
        follow = [getattr(torch, dtype) for dtype in DTYPES]
        return [i for i, each in enumerate(given) if is_floating(each) and each.dtype not in follow]

    def parameter_bytes(self, case: Case) -> int:
        return int(sum(each.numel() for each in self._model(case).parameters())) * case.element_bytes

    def _solution(self, entry: Any, case: Case) -> torch.nn.Module:
        """An instance of `entry` with the parameters of Model."""
        solution = self._instance(entry, case)
        theirs = solution.state_dict()
        ours = self._model(case).state_dict()
        same = {name: ours[name] for name, value in theirs.items() if name in ours and ours[name].shape == value.shape}
        if case.inputs == VARIED:
            same |= self._renamed(case, theirs, same)
        solution.load_state_dict(same, strict=False)
        return solution

    def _renamed(
        self, case: Case, theirs: Mapping[str, torch.Tensor], same: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Varied parameters that ModelNew has under other names: of the same shape and the same constant, in order."""
        plain = self._constructed(case, "Model", torch.device("cpu")).state_dict()
        left = {name: value for name, value in self.weights(case).items() if name not in same}
        found: dict[str, torch.Tensor] = {}
        for name, value in theirs.items():
            if name not in same and is_constant(value):
                twin = next((each for each in left if torch.equal(plain[each], value.cpu())), None)
                if twin is not None:
                    found[name] = left.pop(twin)
        return found

    def _module(self, case: Case) -> ModuleType:
        if case.dims not in self._modules:
            self._modules[case.dims] = run(self.source, dict(case.dims))
        return self._modules[case.dims]

    def _model(self, case: Case) -> torch.nn.Module:
        """Model on the CPU, in float32, with weights drawn from WEIGHTS_SEED.

        In the family VARIED, parameters that the model makes constant are drawn too.
        """
        if case not in self._models:
            self._models.clear()
            model = self._models[case] = self._constructed(case, "Model", torch.device("cpu"))
            for seed, parameter in enumerate(model.parameters()):
                if case.inputs == VARIED and is_constant(parameter):
                    parameter.copy_(varied(parameter, seed))
        return self._models[case]

    def _copied(self, case: Case) -> torch.nn.Module:
        """A copy of Model. A function that a module keeps would call the modules of the original: such a Model is
        constructed again."""
        model = self._model(case)
        if not any(inspect.isfunction(each) for module in model.modules() for each in vars(module).values()):
            return copy.deepcopy(model)
        made = self._constructed(case, "Model", torch.device("cpu"))
        made.load_state_dict(model.state_dict())
        return made

    def _constructed(self, case: Case, name: str, device: torch.device) -> torch.nn.Module:
        with device:
            return self._instance(getattr(self._module(case), name), case)

    def _instance(self, kind: Any, case: Case) -> torch.nn.Module:
        with seeded(WEIGHTS_SEED):
            given = self._module(case).get_init_inputs()
        with seeded(WEIGHTS_SEED):
            made = kind(*given)
        if not isinstance(made, torch.nn.Module):
            raise UsageError(f"{kind.__name__} must be a torch.nn.Module; got {type(made).__name__}")
        return made.requires_grad_(False)


def _cast(model: torch.nn.Module, rounded: torch.dtype, dtype: torch.dtype) -> Any:
    """The model with its float32 tensors rounded to a type, and then, for float64, with all in float64."""

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        found = tensor.to(rounded) if tensor.dtype is torch.float32 else tensor
        return found.to(dtype) if found.is_floating_point() and dtype is torch.float64 else found

    return model._apply(cast)
