"""`python -m suite list` prints operations, implementations, and the kinds of inputs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from suite.cli.options import DeviceOption, JsonOption, OperationsOption, complete_operation, device, split

if TYPE_CHECKING:
    from rich.text import Text

    from suite.hardware.device import Device

MAX_VENDOR_LENGTH = 36
"""The largest number of characters of a library's name in the table."""


def list_operations(
    operations: Annotated[
        list[str] | None,
        typer.Argument(
            help="Operations, by name or pattern such as 'mat*'. Default: all.",
            metavar="OPERATION",
            autocompletion=complete_operation,
        ),
    ] = None,
    op: OperationsOption = None,
    device_text: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Operations with their dimensions, options and default cases; implementations: which run here, what each needs.

    Then the kinds of inputs that `compare --inputs` takes. With operations named, also the functions and launchers that
    files of `--with` define for them. Exit status: 0; 2 for an unknown operation.
    """
    from suite import ops
    from suite.problem import realistic

    given = (*split(operations), *split(op))
    names = tuple(dict.fromkeys(name for pattern in given or ["all"] for name in ops.matching(pattern)))
    where = device(device_text)
    entries = _implementations(names, where)
    if as_json:
        common = {key: kind.about for key, kind in realistic.KINDS.items()}
        inputs = {name: {k: kind.about for k, kind in ops.get(name).families.items()} | common for name in names}
        telling = {name: [each.name for each in ops.get(name).all_telling] for name in names}
        found = {"device": where.name, "implementations": entries, "inputs": inputs, "telling": telling}
        more = {"groups": ops.by_group(names), "signatures": {name: _signatures(name) for name in names}}
        print(json.dumps(found | more))
        return
    from suite.cli.console import print_lines, stdout
    from suite.results.render.layout import wrapped

    console = stdout()
    about = f"on {where.name}; `interpreted` and `emulated` implementations are checked, never timed"
    print_lines(console, wrapped(about, console.width))
    print_lines(console, _group_lines(names, console.width))
    for name in (name for group in ops.by_group(names).values() for name in group):
        own = [entry for entry in entries if entry["operation"] == name]
        print_lines(console, _operation_lines(name, where, own, console.width, bool(given)))
    print_lines(console, _input_lines(names, console.width))


def _group_lines(names: Sequence[str], width: int) -> list[Text]:
    """Lines with the operations of each group, unless there is only one operation."""
    from rich.text import Text

    from suite import ops
    from suite.results.render.layout import wrapped

    groups = ops.by_group(names).items() if len(names) > 1 else ()
    texts = [f"{group}: {', '.join(members)}" for group, members in groups]
    return [Text(line) for text in texts for line in wrapped(text, width, indent="  ")] + [Text()] * bool(texts)


def _implementations(names: Sequence[str], where: Device) -> list[dict[str, Any]]:
    """One entry for each implementation, with the values of the JSON output."""
    from suite.core.paths import ROOT
    from suite.implementations import builtin

    entries = []
    for name in names:
        for implementation in builtin.implementations(name):
            status, reason = implementation.obstacle(where) or ("ok", "")
            file = builtin.files(implementation.framework, name)[implementation.name.partition("/")[2]]
            entries.append(
                {
                    "operation": name,
                    "implementation": implementation.name,
                    "mode": implementation.adapter.mode(where) if status == "ok" else "",
                    "status": status,
                    "reason": reason,
                    "needs": _needs(implementation.requires),
                    "vendor": implementation.vendor or "",
                    "peer": implementation.peer or "",
                    "dtypes_beyond": implementation.dtypes_beyond,
                    "file": str(file.relative_to(ROOT)),
                }
            )
    return entries


def _needs(requires: str | None) -> str:
    """A requirement in words: `cuda`, or a smallest compute capability."""
    if requires is None:
        return ""
    return "a GPU" if requires == "cuda" else f"a GPU, {requires}"


def _signatures(name: str) -> dict[str, str]:
    """The definitions that a file of `--with` needs for the operation: the function of a .py, the launcher of a .cu."""
    from suite import ops
    from suite.external.implementation import signature
    from suite.external.source import launcher

    op = ops.get(name)
    returned = f" -> ({', '.join(op.outputs)})" if len(op.outputs) > 1 else ""
    return {".py": signature(op) + returned, ".cu": launcher(name)}


def _operation_lines(
    name: str, where: Device, entries: list[dict[str, Any]], width: int, signatures: bool
) -> list[Text]:
    """Lines on one operation: its purpose, dimensions, options, default cases, signatures and implementations."""
    from rich.text import Text

    from suite import ops
    from suite.numerics.formats import SHORT
    from suite.results.render.labels import short_case
    from suite.results.render.layout import Field, clipped, table, wrapped

    op = ops.get(name)
    cases = op.default_cases(where.type)
    example = ",".join(f"{dim}={size}" for dim, size in cases[0].dims)
    texts = [f"dimensions: {', '.join(op.dims)}; e.g. --shape {example}"]
    texts += [
        f"{option.flag}: {option.about}"
        + ("" if option.is_switch else f". Values: {option.valid}; default {option.values[0]}")
        for option in op.options
    ]
    labels: dict[str, dict[str, None]] = {}
    for case in cases:
        labels.setdefault(short_case(case.label), {})[SHORT[case.dtype]] = None
    defaults = [f"{label} in {', '.join(dtypes)}" for label, dtypes in labels.items()]
    texts.append(f"default cases: {'; '.join(defaults)}")
    if op.dtypes_beyond:
        texts.append(f"dtypes that run only if named: {', '.join(op.dtypes_beyond)}")
    if signatures:
        texts += [f"--with {kind}: {text}" for kind, text in _signatures(name).items() if text]
    lines = [Text(line, style="bold") for line in wrapped(f"{name}: {op.formula}", width, indent="  ")]
    lines += [Text(line) for text in texts for line in wrapped(f"  {text}", width, indent="    ")]
    fields = (
        Field("  implementation", [f"  {entry['implementation']}" for entry in entries], False),
        Field("here", [entry["mode"] or "no" for entry in entries], False),
        Field("needs", [entry["needs"] for entry in entries], False),
        Field("library", [clipped(entry["vendor"] or entry["peer"], MAX_VENDOR_LENGTH) for entry in entries], False),
    )
    lines += table(fields, width)
    reasons: dict[str, list[str]] = {}
    for entry in entries:
        if entry["status"] != "ok":
            reasons.setdefault(entry["reason"], []).append(entry["implementation"])
    refused = [f"  {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return [*lines, *(Text(line) for text in refused for line in wrapped(text, width, indent="    ")), Text()]


def _input_lines(names: Sequence[str], width: int) -> list[Text]:
    """Lines on the kinds of inputs, each with the operations that have it unless all of `names` do."""
    from rich.text import Text

    from suite import ops
    from suite.problem import realistic
    from suite.results.render.layout import wrapped

    kinds: dict[tuple[str, str], list[str]] = {}
    for name in names:
        for key, kind in ops.get(name).families.items():
            kinds.setdefault((key, kind.about), []).append(name)
    for key, common in realistic.KINDS.items():
        kinds[key, common.about] = list(names)
    texts = []
    for (key, about), having in kinds.items():
        texts.append(f"{key}: {about}" + ("" if len(having) == len(names) else f" ({', '.join(having)})"))
    for name in names:
        cases = ops.get(name).all_telling
        texts.append(f"telling: {len(cases)} small cases, checked in every run without --inputs ({name})")
    lines = [Text("values of compare --inputs", style="bold")]
    return lines + [Text(line) for text in texts for line in wrapped(f"  {text}", width, indent="    ")]
