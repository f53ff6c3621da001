"""Any command line ends with a known exit status and at most a line of error, never with a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import PLAIN, call
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thinning import THOROUGH

from suite.core.errors import ResultsError
from suite.results.row import Row
from suite.runner import compare as run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a complete run."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        assert call(patch, "compare", *PLAIN, "--out", folder) == 0
    return folder


words = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=12)
VALUES = {
    "--op": ["all", "matmul", "vector_add", "attention", "sigmoid", "../../x"],
    "--impl": ["torch", "*", "cuda*", "[", "with/x"],
    "--dtype": ["float32", "float16", "bfloat16", "float64", "bf16"],
    "--precision": ["ieee", "tf32", "fp8"],
    "--shape": [
        "N=64",
        "M=16,N=16,K=16",
        "M=0,N=1,K=1",
        "M=,N",
        "N=99999999999999999999",
        "N=-1",
        "B=1,H=2",
        "4096",
        "2^[1:99]",
        "N=1,2",
    ],
    "--shapes-from": ["/nonexistent.csv", ".", "/dev/null"],
    "--columns": ["execution", "speed", "a,,b"],
    "--sort": ["device_us", "speed", ""],
    "--baseline": ["torch", "with/x", ""],
    "--exclude": ["torch", "*", "["],
    "--layout": ["nn", "tt", "zz"],
    "--inputs": ["normal", "nan", "all", "huge"],
    "--device": ["cpu", "cuda", "cuda:7", "tpu", "[red]"],
    "--cache": ["cold", "warm", "tepid"],
    "--seed": ["0", "-1", "1e3", "9" * 30],
    "--timeout": ["120", "0", "nan", "inf", "-1", "1e99"],
    "--with": ["/nonexistent.py", ".", "/dev/null"],
    "--threshold": ["0.1", "nan"],
}
FLAGS = [
    "--causal",
    "--no-causal",
    "--sweep",
    "--transfers",
    "--compile",
    "--no-time",
    "--json",
    "--wide",
    "--quiet",
    "--resume",
    "--measure",
]
FLAGS += ["--markdown", "--help", "--wat", "--"]
options = st.one_of(
    st.sampled_from(FLAGS).map(lambda flag: [flag]),
    st.sampled_from(sorted(VALUES)).flatmap(
        lambda name: (st.sampled_from(VALUES[name]) | words).map(lambda value: [name, value])
    ),
    words.map(lambda word: [word]),
)
arguments = st.tuples(st.sampled_from(["compare", "compare", "compare", "diff", "list"]), st.lists(options, max_size=6))


@pytest.mark.parametrize("examples", [20, pytest.param(100, marks=THOROUGH)])
def test_no_command_line_shows_a_traceback(
    examples: int, finished: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 0, 1, 2 or 130. Nothing is measured; all the rest is real."""

    @settings(deadline=None, max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(arguments, st.sampled_from([None, None, KeyboardInterrupt(), ResultsError("the disk is [full]")]))
    def ends_as_it_should(given: tuple[str, list[list[str]]], ending: BaseException | None) -> None:
        name, options = given
        flat = [word for option in options for word in option]
        folder = tmp_path_factory.mktemp("lines")

        def stub(*_: object, **__: object) -> list[Row]:
            if ending is not None:
                raise ending
            return []

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run, "compare", stub)
            patch.setattr("suite.hardware.environment_record", lambda *_: {"device": {"name": "D"}, "packages": {}})
            patch.chdir(folder)
            more = ["--op", "vector_add", "--out", str(folder / "out")] if name == "compare" else []
            more = [str(finished), str(finished)] if name == "diff" else more
            status = call(patch, name, *more, *flat)
        out, err = capsys.readouterr()
        assert status in (0, 1, 2, 130)
        assert "Traceback" not in out + err
        assert {path.name for path in folder.iterdir()} <= {"out"}, "nothing is written anywhere else"

    ends_as_it_should()
