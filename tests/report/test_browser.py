"""The page in a browser: sorting, filtering, details, colours, keyboard, phone, print; no request, no error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from report.browser import BINARY, Page, browser
from report.rows import RECORD, failed, row, square

from suite.models.workload import LayerShape, Workload
from suite.report import html as page_of_runs
from suite.report.html import html
from suite.report.load import Run, load_runs
from suite.report.plots import Plot, plots_of
from suite.results.row import Row
from suite.results.samples import SUFFIX, to_npz

pytestmark = pytest.mark.skipif(
    BINARY is None, reason="needs Chromium or Chrome: apt-get install --no-install-recommends chromium"
)
ROWS = "document.querySelector('[data-table=rows]')"
PHONE, PAPER = 360, 1030
"""Pixels of CSS: a small phone; A4 across, without its margins."""


def rather(first: object, *others: object) -> list[object]:
    """Parameter sets, of which `make test` has the first."""
    return [first, *(pytest.param(each, marks=pytest.mark.thorough) for each in others)]


WORKLOAD = Workload("AModelForCausalLM", 32, 1, 4096, 4096, "bfloat16", [
    LayerShape("query, output", 2, "matmul", {"M": 512, "N": 512, "K": 512}),
    LayerShape("gate, up", 2, "matmul", {"M": 2048, "N": 2048, "K": 2048}),
])  # fmt: skip


def every_outcome() -> list[Row]:
    """A case for each outcome, so that the bar has as many parts as possible; five for one of them."""
    ends = [("triton", 1.5, 1.5), ("jax/pallas", 1.5, 1.5), ("cuda", 1.5, 1.5), ("cuda", 1.0, 1.0), ("cuda", 0.9, 1.1),
            ("cuda", 0.5, 0.5), *[("cuda", 1.5, 1.5)] * 4]  # fmt: skip
    rows = []
    for place, (name, low, high) in enumerate(ends, 1):
        size = 3000 * place
        values = {"operation": "vector_add", "vs_best_low": low, "vs_best_high": high}
        rows += [row("torch", size=size, operation="vector_add"), row(name, (low + high) / 2, size, **values)]
    return rows


def slow_rates() -> list[Row]:
    """Rows of some megabytes a second, without a limit."""
    values = {"operation": "softmax", "limit": "", "of_limit": None, "tflops": 1e-6}
    return [
        row(name, speed, size, gb_per_s=0.003 * speed * size / 512, **values)
        for size in (512, 1024)
        for name, speed in (("torch", 1.0), ("triton", 0.5))
    ]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of two runs on two devices."""
    from diff.rows import folder

    root = tmp_path_factory.mktemp("report")
    first = [*square(512), *square(1024), *square(2048, reason="</script><b>"), failed("numpy", "unsupported")]
    first += [row("with/mine", 1.5, 512, operation="sigmoid", status="wrong", device_us=None, error_ratio=7.5)]
    first += every_outcome()
    for each in first:
        each.sample_us = (100.5, 100.0, 100.4, 103.0, 100.6) if each.implementation == "torch" else ()
    other = {**RECORD, "device": {**RECORD["device"], "name": "NVIDIA H100 80GB HBM3"}}
    runs = [
        folder(root / "a", first, {**RECORD, "workload": WORKLOAD.document()}),
        folder(root / "b", [*square(1024), *slow_rates()], other),
    ]
    (root / "a" / f"matmul{SUFFIX}").write_bytes(to_npz([each for each in first if each.operation == "matmul"]))
    path = root / "report.html"
    with pytest.MonkeyPatch.context() as patch:  # drawing takes most of the time of a page
        patch.setattr(page_of_runs, "plots_of", every_plot_once)
        path.write_text(html(load_runs(runs)), encoding="utf-8")
    return path


def every_plot_once(run: Run) -> list[Plot]:
    """The plots of a run; of the second run the rates alone, which it has at other scales."""
    return [plot for plot in plots_of(run) if plot.name.startswith("rate") or len(run.entries) > 20]


@pytest.fixture(scope="module")
def tab() -> Iterator[Page]:
    with browser() as found:
        yield found


@pytest.fixture
def page(tab: Page, file: Path) -> Iterator[Page]:
    """The page, newly loaded. Asserts at the end that it requested no other file and that the console is empty."""
    tab.requests.clear()
    tab.prefer(color_scheme="light")
    tab.open(file)
    yield tab
    assert {url for url in tab.requests if not url.startswith("data:")} == {file.resolve().as_uri()}
    assert tab.complaints == []


def column(page: Page, head: str) -> list[str]:
    """The cells of the column with this head."""
    return page.js(f"""(() => {{
        const heads = [...{ROWS}.querySelectorAll('thead th')].map(cell => cell.textContent);
        return [...{ROWS}.querySelectorAll('tbody tr')].map(row => row.cells[heads.indexOf('{head}')].textContent);
    }})()""")


def press_head(page: Page, head: str) -> None:
    page.js(f"[...{ROWS}.querySelectorAll('thead button')].find(each => each.textContent === '{head}').click()")


def choose(page: Page, name: str, text: str) -> None:
    page.js(f"""(() => {{
        const select = {ROWS}.querySelector('select[data-column="{name}"]');
        select.value = [...select.options].find(option => option.textContent === '{text}').value;
        select.dispatchEvent(new Event('change'));
    }})()""")


def test_a_head_sorts_up_and_down_and_rows_without_a_number_stay_last(page: Page) -> None:
    press_head(page, "device us")
    up = column(page, "device us")
    numbers = [float(text.replace(",", "")) for text in up if text]
    assert numbers == sorted(numbers)
    assert (up[0], up[-1]) == ("", ""), "the wrong row stays first"
    assert page.js(f"{ROWS}.querySelector('[aria-sort]').ariaSort") == "ascending"
    press_head(page, "device us")
    down = column(page, "device us")
    assert down == ["", *up[1:-1][::-1], ""]
    assert page.js(f"{ROWS}.querySelectorAll('[aria-sort]').length") == 1


def test_numbers_in_texts_sort_as_numbers(page: Page) -> None:
    press_head(page, "case")
    assert column(page, "case")[1] == "M=512,N=512,K=512"


@pytest.mark.parametrize(
    ("name", "text"),
    [("operation", "sigmoid"), ("implementation", "cuda/tiled"), ("device", "NVIDIA H100 80GB HBM3"), ("status", "ok")],
)
def test_a_choice_leaves_its_rows(page: Page, name: str, text: str) -> None:
    everything = column(page, name)
    choose(page, name, text)
    assert column(page, name) == [text] * everything.count(text)


def test_a_search_needs_all_its_words_and_reset_brings_everything_back(page: Page) -> None:
    everything = column(page, "case")
    page.js(f"""(() => {{ const search = {ROWS}.querySelector('input[type=search]');
        search.value = 'cuda 2048'; search.dispatchEvent(new Event('input')); }})()""")
    assert set(column(page, "implementation")) == {"cuda", "cuda/tiled", "cuda/wgmma"}
    assert "3 of" in page.js(f"{ROWS}.querySelector('[aria-live]').textContent")
    page.js(f"{ROWS}.querySelector('.reset').click()")
    assert column(page, "case") == everything


def test_the_keyboard_opens_a_row_and_a_text_is_no_markup(page: Page) -> None:
    choose(page, "implementation", "triton")
    choose(page, "operation", "matmul")
    page.js(f"[...{ROWS}.querySelectorAll('td button')].at(-2).focus()")
    page.press("Enter")
    assert page.js("document.getElementById('row').open")
    details = page.js("document.querySelector('#row dl').textContent")
    assert "</script><b>" in details
    assert "device us, low" in details
    page.press("Escape")


def test_a_row_shows_the_distribution_of_its_samples_if_the_run_has_kept_them(page: Page) -> None:
    choose(page, "operation", "matmul")
    for name, shown in (("torch", True), ("triton", False)):
        choose(page, "implementation", name)
        page.js(f"{ROWS}.querySelector('td button').click()")
        assert page.js("!document.querySelector('#row figure').hidden") is shown
        if shown:
            assert "median 100.5 us" in page.js("document.querySelector('#row svg').ariaLabel")
            bins = page.js(
                "[...document.querySelectorAll('#row .bin')].map(each => Number(each.getAttribute('height')))"
            )
            assert max(bins) == 130
            assert min(bins) == 0
        page.press("Escape")


def test_dark_by_preference_and_by_choice(page: Page) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.js(ground)
    page.prefer(color_scheme="dark")
    dark = page.js(ground)
    assert dark != light
    page.js("document.querySelector('input[value=light]').click()")
    assert page.js(ground) == light
    page.prefer(color_scheme="light")
    page.js("document.querySelector('input[value=dark]').click()")
    assert page.js(ground) == dark
    assert page.js("getComputedStyle(document.querySelector('.plot svg text')).fill") != "rgb(26, 30, 36)"
    page.js("document.querySelector('input[value=auto]').click()")


@pytest.mark.parametrize("head", ["", *rather("device us", "implementation", "vs best vendor", "error / bound")])
def test_wrong_rows_come_first_however_the_table_is_sorted(page: Page, head: str) -> None:
    for _ in ("up", "down"):
        if head:
            press_head(page, head)
        assert column(page, "status")[0] == "wrong"
        assert column(page, "implementation")[0].startswith("with/mine")


@pytest.mark.parametrize(
    "head", rather("vs best vendor", "implementation", "case", "status", "error / bound", "device us")
)
def test_columns_that_decide_are_visible_without_scrolling(page: Page, file: Path, head: str) -> None:
    page.open(file, width=1280)
    right, edge = page.js(f"""[[...{ROWS}.querySelectorAll('thead th')].find(each => each.textContent === '{head}'),
        {ROWS}.querySelector('.scroll')].map(each => each.getBoundingClientRect().right)""")
    assert right <= edge


def test_a_table_of_some_hundred_rows_is_shown_whole(page: Page) -> None:
    shown, count = page.js(f"[{ROWS}.querySelectorAll('tbody tr').length, {ROWS}.explorer.table.count]")
    assert shown == count
    assert page.js(f"{ROWS}.querySelector('.count').textContent") == f"{count} of {count} rows"


@pytest.mark.parametrize("width", rather(PHONE, 390, 1280))
def test_the_length_of_a_winners_bar_is_its_number_of_cases(page: Page, file: Path, width: int) -> None:
    page.open(file, width=width)
    tallies = page.js("""[...document.querySelectorAll('.tally')].map(tally => ({
        cases: parseInt(tally.querySelector('h3').textContent.match(/([0-9]+) case/)[1]),
        counts: [...tally.querySelectorAll('.counts b')].map(each => Number(each.textContent)),
        lengths: [...tally.querySelectorAll('.part')].map(each => each.getBoundingClientRect().width),
        tops: [...tally.querySelectorAll('.part')].map(each => each.getBoundingClientRect().top)}))""")
    assert len(tallies) == 4
    for tally in tallies:
        assert sum(tally["counts"]) == tally["cases"]
        assert len(set(tally["tops"])) == 1
        unit = sum(tally["lengths"]) / tally["cases"]
        assert max(tally["counts"]) >= 5 * min(tally["counts"]) or tally["cases"] < 5
        assert tally["lengths"] == pytest.approx([unit * count for count in tally["counts"]], abs=0.5)


@pytest.mark.parametrize("width", rather(390, 1280))
def test_the_text_of_a_plot_is_neither_tiny_nor_huge(page: Page, file: Path, width: int) -> None:
    page.open(file, width=width)
    scales = page.js("""[...document.querySelectorAll('.plot svg')].map(
        each => each.getBoundingClientRect().width / each.viewBox.baseVal.width)""")
    assert len(scales) > 5
    assert min(scales) >= 1.09, "a text of 7 points has 7 pixels at least"
    assert max(scales) <= 1.51


def test_the_length_of_a_bar_in_a_plot_is_its_rate(page: Page) -> None:
    """A bar stands at the height of the text with its number."""
    bars, texts = page.js("""(() => {
        const figure = [...document.querySelectorAll('figure')].find(each =>
            each.querySelector('figcaption b')?.textContent === 'matmul: from slow to fast');
        const box = (each) => { const found = each.getBoundingClientRect();
            return { middle: (found.top + found.bottom) / 2, width: found.width, height: found.height }; };
        const bars = [...figure.querySelectorAll('path')].filter(each => each.getAttribute('d').trim().endsWith('z'));
        return [bars.map(box), [...figure.querySelectorAll('text')].map(each => [each.textContent, box(each).middle])];
    })()""")
    numbers = {middle: float(text.split()[0]) for text, middle in texts if text.endswith(")") and text[0].isdecimal()}
    scales = []
    for middle, number in numbers.items():
        (width,) = (each["width"] for each in bars if abs(each["middle"] - middle) < 3 and 5 < each["height"] < 40)
        scales.append(width / number)
    assert len(scales) == 6
    assert scales == pytest.approx([max(scales)] * 6, rel=0.04)


def test_the_labels_of_an_axis_differ_in_the_page(page: Page) -> None:
    """Texts that stand above each other label the vertical axis; those beside each other label the horizontal one."""
    texts = page.js("""(() => {
        const figure = [...document.querySelectorAll('figure')].find(each =>
            each.querySelector('figcaption b')?.textContent === 'softmax: rate against size');
        return [...figure.querySelectorAll('text')].map(each => {
            const box = each.getBoundingClientRect();
            return [each.textContent, Math.round(box.right), Math.round(box.bottom)]; });
    })()""")
    numbers = [each for each in texts if each[0].replace(".", "").isdecimal()]
    for end in (1, 2):
        axis: dict[int, list[str]] = {}
        for each in numbers:
            axis.setdefault(each[end], []).append(each[0])
        labels = max(axis.values(), key=len)
        assert len(labels) >= 2
        assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("width", rather(PHONE, 768, 1280))
def test_nothing_is_wider_than_the_window(page: Page, file: Path, width: int) -> None:
    page.open(file, width=width)
    assert page.js("innerWidth") == width
    assert page.js("document.documentElement.scrollWidth") <= width


def test_what_a_reader_presses_on_a_phone_has_a_name(page: Page) -> None:
    unnamed = page.js("""[...document.querySelectorAll('button, select, input, [role=img], [role=region]')].filter(
        each => !(each.textContent.trim() || each.ariaLabel || each.labels?.length)).map(each => each.outerHTML)""")
    assert unnamed == []


def test_two_runs_stand_side_by_side(page: Page) -> None:
    assert page.js("document.querySelectorAll('[data-table=pairs] tbody tr').length") == 6


def test_the_time_of_a_layer_is_that_of_the_run_with_a_workload(page: Page) -> None:
    assert page.js("document.querySelectorAll('#layer h3').length") == 1
    assert page.js("document.querySelector('#layer tbody').rows.length") == 2
    assert "32 layers take" in page.js("document.querySelector('#layer li').textContent")


def test_print_opens_every_section(page: Page) -> None:
    page.js("dispatchEvent(new Event('beforeprint'))")
    assert page.js("[...document.querySelectorAll('details')].every(each => each.open)")


def test_print_is_light_and_fits_the_paper(page: Page, file: Path) -> None:
    page.prefer("print", color_scheme="dark")
    page.open(file, width=PAPER)
    page.js("dispatchEvent(new Event('beforeprint'))")
    assert page.js("document.documentElement.scrollWidth") <= PAPER
    assert page.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
