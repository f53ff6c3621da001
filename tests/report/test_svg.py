"""SVG files are short, and draw what matplotlib's draw."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
from report.rows import SWEEP, run_of, square

from suite.report.plots import Plot, data_of, plots_of, roofline
from suite.report.plots.figure import MAX_VECTORS, SETTINGS
from suite.report.plots.svg import compact

MOST_BYTES = 200 * 1024
PLACE = ("x", "y", "width", "height", "transform")
HREF = "{http://www.w3.org/1999/xlink}href"
Drawn = tuple[str, dict[str, str], dict[str, str], str]


def drawn(
    element: ElementTree.Element, shapes: dict[str, str], style: dict[str, str], clip: str = ""
) -> Iterator[Drawn]:
    """Each element with its inherited style and clip path, its place and size, and its text or shape."""
    own = element.attrib
    style = style | dict(re.findall(r"([\w-]+): ([^;]+)", own.get("style", "")))
    clip = own.get("clip-path", clip) and "clipped"
    kind = element.tag.rpartition("}")[2]
    if kind in ("path", "use", "text", "image"):
        target = own.get(HREF, "")
        shape = element.text or shapes.get(target[1:], target) or own.get("d", "")
        placed = {name: own[name] for name in PLACE if name in own and not re.match(r"rotate\(-?0 ", own[name])}
        yield kind + clip, style, placed, " ".join(shape.split())
    for child in element:
        if not child.tag.endswith(("metadata", "clipPath")):
            yield from drawn(child, shapes, style, clip)


def all_drawn(file: bytes) -> list[Drawn]:
    root = ElementTree.fromstring(file)
    shapes = {each.attrib["id"]: each.attrib.get("d", "") for each in root.iter() if "id" in each.attrib}
    return list(drawn(root, shapes, {}))


def short(text: str) -> str:
    return re.sub(r"(\.\d\d)\d+", r"\1", text)


def test_a_file_draws_the_same_and_has_the_data_of_the_plot(tmp_path: Path) -> None:
    rows = [*square(512), *square(1024), *SWEEP]
    for plot in plots_of(run_of(tmp_path / "run", rows)):
        file = plot.file("svg")
        assert data_of(file) == plot.data, plot.name
        long = io.BytesIO()
        with mpl.rc_context(SETTINGS):
            plot.draw(plot.data).savefig(long, format="svg", dpi=160)
        before, after = all_drawn(long.getvalue()), all_drawn(file)
        assert len(before) == len(after) > 10, plot.name
        for (kind, style, place, shape), (new_kind, new_style, new_place, new_shape) in zip(before, after, strict=True):
            assert new_kind == kind, plot.name
            assert new_style == {name: short(value) for name, value in style.items()}, plot.name
            assert new_place == {name: short(value) for name, value in place.items()}, plot.name
            assert new_shape == (shape if kind.startswith("text") else short(shape)), plot.name


def test_marks_in_a_group_have_its_style() -> None:
    """Opacity stays with each mark: a group's is that of all of it at once. What fills a mark is inherited."""
    red, blue, clear = (
        f'<use x="1" y="2" style="fill: {each}"/>' for each in ("#ff0000", "#0000ff", "#000000; opacity: 0.5")
    )
    bare = '<use x="1" y="2"/>'
    groups = [f'<g style="fill: {each}">\n{bare}\n{bare}\n</g>' for each in ("#ff0000", "#0000ff")]
    marks = f"{red}\n{red}\n{blue}\n{blue}\n{clear}\n{clear}"
    assert compact(f"<g>{marks}</g>", "i") == "\n".join([*groups, clear, clear])


def test_texts_keep_what_is_left_out_of_tags() -> None:
    text = "<g id='none'><text>0.123456 rotate stroke-linecap: butt;</text></g>".replace("'", '"')
    assert compact(text, "i") == "<text>0.123456 rotate stroke-linecap: butt;</text>"


def test_a_plot_of_the_most_single_marks_is_a_file_of_results() -> None:
    """Files of results have a largest size (tests/test_architecture.py), which a roofline of any run keeps to."""
    points = [[0.1 + 7.77 * n, 0.5 + n / 3] for n in range(MAX_VECTORS)]
    of_each = {name: points[start::4] for start, name in enumerate(("triton", "jax", "cuda", "torch"))}
    data = {"tb_per_s": 4.8, "roofs": [[989.0, "bf16"]], "points": of_each, "operations": {"matmul": [1.0, 2.0]}}
    assert len(Plot("roofline", "Roofline", "", data, roofline.draw).file("svg")) < MOST_BYTES
