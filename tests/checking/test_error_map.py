"""The map of wrong elements: tiles, shapes of any number of axes, text and back."""

from __future__ import annotations

import pytest
import torch

from suite.checking.error_map import ErrorMap, Tiles
from suite.core.errors import ResultsError


def map_of(wrong: torch.Tensor, pieces: int = 1) -> ErrorMap:
    """The map of a mask that is counted in so many pieces along its first axis."""
    tiles = Tiles(tuple(wrong.shape), wrong.device)
    for rows in torch.arange(wrong.shape[0]).chunk(pieces):
        part = (slice(int(rows[0]), int(rows[-1]) + 1), *(slice(0, size) for size in wrong.shape[1:]))
        tiles.add(wrong[part], part)
    return tiles.map()


@pytest.mark.parametrize("pieces", [1, 3])
def test_shares_of_tiles(pieces: int) -> None:
    wrong = torch.zeros(128, 70, dtype=torch.bool)
    wrong[:4, :4] = True
    wrong[4, 4] = True
    found = map_of(wrong, pieces)
    assert found.tile == (4, 4)
    assert found.rows[0] == "#" + "." * 17
    assert found.rows[1] == ".1" + "." * 16
    assert len(found.rows) == 32


def test_a_vector_has_one_row() -> None:
    wrong = torch.zeros(1000, dtype=torch.bool)
    wrong[999] = True
    assert map_of(wrong) == ErrorMap((1, 32), ("." * 31 + "2",))


def test_heads_are_rows_and_queries_columns() -> None:
    wrong = torch.zeros(2, 3, 8, 4, dtype=torch.bool)
    wrong[1, 2, 5] = True
    wrong[0, 1, 0, 0] = True
    found = map_of(wrong)
    assert found.tile == (1, 1)
    assert found.rows == ("." * 8, "3" + "." * 7, "." * 8, "." * 8, "." * 8, ".....#..")


def test_one_head_has_queries_downwards() -> None:
    wrong = torch.zeros(1, 1, 4, 2, dtype=torch.bool)
    wrong[0, 0, 3, 1] = True
    assert map_of(wrong).rows == ("..", "..", "..", ".#")


def test_text_and_back() -> None:
    found = ErrorMap((32, 16), ("....", ".12.", ".##."))
    assert str(found) == "32x16 ..../.12./.##."
    assert ErrorMap.parse(str(found)) == found
    assert found.shares()[1] == [0.0, 0.1, 0.2, 0.0]
    assert not found.is_uniform
    assert ErrorMap((1, 1), ("##", "##")).is_uniform


@pytest.mark.parametrize("text", ["", "32 ...", "axb ...", "1x1 .x."])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ResultsError, match="error_map is"):
        ErrorMap.parse(text)
