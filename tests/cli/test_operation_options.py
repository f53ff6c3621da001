"""Options of the command line that come from operations' declarations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from suite import ops
from suite.cli import operation_options
from suite.cli.operation_options import NONE_GIVEN, declared, with_operation_options
from suite.problem.option import Option


@pytest.fixture
def command() -> tuple[typer.Typer, list[Mapping[str, Any]]]:
    """A command that records its arguments."""
    app, got = typer.Typer(), []

    @app.command()
    @with_operation_options
    def show(name: str, operation_options: Mapping[str, Any] = NONE_GIVEN, number: int = 3) -> None:
        got.append({"name": name, "number": number, **operation_options})

    return app, got


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {}),
        (["--causal"], {"causal": (True,)}),
        (["--no-causal", "--number", "5"], {"causal": (False,), "number": 5}),
        (["--layout", "nt", "--layout", "tt"], {"layout": ("nt", "tt")}),
    ],
    ids=["none", "switch", "switched off", "repeated"],
)
def test_a_command_gets_what_was_given_as_one_mapping(
    command: tuple[typer.Typer, list[Mapping[str, Any]]], arguments: list[str], expected: dict[str, Any]
) -> None:
    app, got = command
    found = CliRunner().invoke(app, ["it", *arguments])
    assert found.exit_code == 0, found.output
    assert got == [{"name": "it", "number": 3, **expected}]


def test_every_declared_option_is_in_the_help(
    command: tuple[typer.Typer, list[Mapping[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = CliRunner().invoke(command[0], ["--help"]).output
    for name in ops.names():
        for option in ops.options(name):
            assert option.flag.split("/")[0] in text
            assert name in text


def test_one_name_is_a_switch_everywhere_or_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"a": (Option("k", (False, True), "about"),), "b": (Option("k", ("1", "2"), "about"),)}
    monkeypatch.setattr(operation_options.ops, "names", lambda: tuple(options))
    monkeypatch.setattr(operation_options.ops, "options", options.__getitem__)
    with pytest.raises(TypeError, match="option 'k' is a switch of some operations"):
        declared()
