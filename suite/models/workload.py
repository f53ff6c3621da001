"""A model's layer as a list of cases with counts; `shapes` writes it, `compare --shapes-from` reads it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from suite import ops
from suite.core.errors import UsageError
from suite.core.names import unknown
from suite.core.text import one_line
from suite.problem.option import Value

SHAPE_KEYS = ("name", "count", "operation")
"""Keys of a shape in a document, besides sizes, options, and a dtype of its own."""


@dataclass(frozen=True)
class LayerShape:
    """One case of a layer. `name` lists the parts of the layer that need it, `count` how many there are.

    `dtype` is that of the case if it is not the layer's, as of products of codes; else empty.
    """

    name: str
    count: int
    operation: str
    dims: Mapping[str, int]
    options: Mapping[str, Value] = field(default_factory=dict)
    dtype: str = ""

    @property
    def case(self) -> str:
        """The column `case` of its rows: `M=4096,N=4096,K=4096,layout=nt`."""
        sizes = [f"{name}={size}" for name, size in self.dims.items()]
        plain = {option.name: option.values[0] for option in ops.options(self.operation)}
        chosen = {name: value for name, value in self.options.items() if value != plain.get(name)}
        return ",".join([*sizes, *(name if value is True else f"{name}={value}" for name, value in chosen.items())])


@dataclass(frozen=True)
class Workload:
    """The shapes of one layer of a model with `layers` layers.

    It serves `batch` sequences of `queries` new tokens that end at position `seq`. `dtype` is the configuration's;
    empty if it names none.
    """

    model: str
    layers: int
    batch: int
    seq: int
    queries: int
    dtype: str
    shapes: Sequence[LayerShape]

    @property
    def title(self) -> str:
        """The title of a report: `LlamaForCausalLM, batch 1, 4096 tokens`."""
        tokens = (
            f"{self.seq} tokens" if self.queries == self.seq else f"{self.queries} tokens after {self.cached_tokens}"
        )
        return f"{self.model}, batch {self.batch}, {tokens}"

    @property
    def new_tokens(self) -> str:
        """The head of a column: `1 token`, `64 tokens`."""
        count = self.batch * self.queries
        return f"{count} token{'s' if count > 1 else ''}"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text().encode()).hexdigest()[:8]

    @property
    def cached_tokens(self) -> int:
        """The number of tokens whose keys and values are already cached."""
        return self.seq - self.queries

    @property
    def operations(self) -> list[str]:
        return list(dict.fromkeys(shape.operation for shape in self.shapes))

    def document(self) -> dict[str, Any]:
        """The workload as a JSON document."""
        about = {name: value for name, value in asdict(self).items() if name != "shapes"}
        shapes = [
            {
                "name": each.name, "count": each.count, "operation": each.operation, **each.dims, **each.options,
                **({"dtype": each.dtype} if each.dtype else {}),
            }
            for each in self.shapes
        ]  # fmt: skip
        return {**about, "shapes": shapes}

    def text(self) -> str:
        """The text of the file: one line for each shape."""
        document = self.document()
        shapes = ",\n".join(f"    {json.dumps(shape)}" for shape in document.pop("shapes"))
        head = json.dumps(document, indent=2).removesuffix("\n}")
        return f'{head},\n  "shapes": [\n{shapes}\n  ]\n}}\n'


def kept_in(environment: Mapping[str, Any]) -> list[Workload]:
    """The workloads that an environment record names. Raises `UsageError` for a damaged record.

    An older record has a single one, under `workload`.
    """
    single = environment.get("workload")
    documents = environment.get("workloads", [] if single is None else [single])
    if not isinstance(documents, list):
        raise UsageError(f"workloads is {one_line(documents)[:40]!r}; expected a list")
    return [from_document(each) for each in documents]


def is_workload(contents: bytes) -> bool:
    """True for the contents of a file with the text of a `Workload`."""
    try:
        from_document(json.loads(contents))
    except (ValueError, RecursionError, UsageError):
        return False
    return True


def from_document(document: Any) -> Workload:
    """Read a workload from a document. Raises `UsageError` that names a missing key or a wrong type."""
    if not isinstance(document, dict):
        raise UsageError(f"a workload is an object with a list of shapes; got {one_line(document)[:60]!r}")
    about: dict[str, Any] = {}
    for name, kind in {"model": str, "layers": int, "batch": int, "seq": int, "queries": int, "dtype": str}.items():
        about[name] = _typed(document, name, kind)
    shapes = _typed(document, "shapes", list)
    if not shapes:
        raise UsageError("shapes is empty; give at least one")
    return Workload(**about, shapes=[_shape(each) for each in shapes])


def _shape(entry: Any) -> LayerShape:
    if not isinstance(entry, dict):
        raise UsageError(f"a shape is an object; got {one_line(entry)[:60]!r}")
    name, count, operation = (_typed(entry, key, kind) for key, kind in zip(SHAPE_KEYS, (str, int, str), strict=True))
    dtype = _typed(entry, "dtype", str) if "dtype" in entry else ""
    rest = {key: value for key, value in entry.items() if key not in (*SHAPE_KEYS, "dtype")}
    if operation not in ops.names():
        raise ops.unknown(operation)
    if dtype and dtype not in (valid := (*ops.get(operation).dtypes, *ops.get(operation).dtypes_beyond)):
        raise UsageError(f"dtype of shape {one_line(name)!r}: {unknown(dtype, valid)}")
    dims = {key: value for key, value in rest.items() if type(value) is int}
    options = {key: value for key, value in rest.items() if isinstance(value, bool | str)}
    if others := rest.keys() - dims.keys() - options.keys():
        raise UsageError(f"{one_line(sorted(others)[0])} of shape {one_line(name)!r} is neither a size nor an option")
    return LayerShape(name, count, operation, dims, options, dtype)


def _typed(document: Mapping[str, Any], name: str, kind: type) -> Any:
    value = document.get(name)
    if type(value) is not kind:
        given = "missing" if name not in document else f"{one_line(value)[:40]!r}"
        raise UsageError(f"{name} is {given}; expected {kind.__name__}")
    if isinstance(value, int) and not 0 < value < 1 << 40:
        raise UsageError(f"{name} is {value}; expected a positive number")
    return value
