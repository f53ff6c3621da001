"""`--shapes-from FILE`: CSV, JSON and YAML. An unusable file is refused in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from suite.cli.shape_files import shapes_from
from suite.core.errors import UsageError

TWO = ["M=1,N=2,K=3", "M=4,N=5,K=6"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.csv", "M,N,K\n1,2,3\n4,5,6\n"),
        ("s.json", '[{"M": 1, "N": 2, "K": 3}, "M=4,N=5,K=6"]'),
        ("s.yaml", "- {M: 1, N: 2, K: 3}\n- M=4,N=5,K=6\n"),
    ],
)
def test_shapes_are_read(tmp_path: Path, name: str, text: str) -> None:
    if name.endswith(".yaml"):
        pytest.importorskip("yaml", reason="PyYAML not installed: pip install pyyaml")
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert shapes_from(path) == (TWO, None)


def test_no_file_is_no_shape() -> None:
    assert shapes_from(None) == ([], None)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("s.json", "{", "not readable"),
        ("s.json", "{}", "no list of shapes"),
        ("s.json", "[]", "no list of shapes"),
        ("s.json", "[3]", "entry 1 is '3'"),
        ("s.csv", "", "no list of shapes"),
        ("s.csv", "M,N\n1,2,3\n", "s.csv, line 2, column 3: 3 fields instead of 2"),
        ("s.csv", "M,N\n\n1\n", "s.csv, line 3, column 2: 1 fields instead of 2"),
        ("s.csv", "M,N,K\n1,2,3\n4,five,6\n", "s.csv, line 3, column N: 'five' is not a whole number"),
        ("s.csv", "M,N,K\n1,2,3\n4,,6\n", "s.csv, line 3, column N: '' is not a whole number"),
        ("s.csv", 'M,N,K\n1,2,"3', "s.csv, line 2: unexpected end of data"),
        ("s.csv", "M,N,Q\n1,2,3\n", "s.csv, line 2: unknown dimension 'Q'; matmul has M, N, K"),
        ("s.csv", "M,N,K\n1,2,3\n1,-2,3\n", "s.csv, line 3: N=-2 must be at least 0"),
        ("s.json", '["M=1,N=2,K=3", {"M": 1}]', "s.json, entry 2: missing N, K"),
        ("s.json", '["M=1,\nN=2"', "line 1 column 7"),
        ("s.txt", "M=1", "unknown kind of file; valid are .csv, .json, .yaml"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        shapes_from(path, ["matmul"])
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_missing_yaml_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"none\.csv: not readable"):
        shapes_from(tmp_path / "none.csv")
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "s.yaml").write_text("[]", encoding="utf-8")
    with pytest.raises(UsageError, match=r"PyYAML not installed: pip install pyyaml; or give a \.json"):
        shapes_from(tmp_path / "s.yaml")
