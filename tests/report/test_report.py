"""Every block survives every renderer; nothing is fetched, nothing is lost, nothing is interpreted."""

import io
import json
import math
import re
import subprocess
import sys
import time
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from private_mcmc import report
from private_mcmc.report import Interval, Plot
from private_mcmc.report.document import _COLOURS, figure, say, svg, telling

PLOT = report.Plot(
    "Curve & target",
    "ε",
    "δ",
    (
        report.Line((0.0, 1.0, 2.0), (1e-1, 1e-2, 1e-3), "certificate"),
        report.Interval((0.5,), (0.1,), (0.2,), (0.3,), "interval", color=2),
        report.Rule("x", 1.0, "here"),
        report.Rule("y", 1e-2, "there"),
    ),
    "What the curve shows.",
    y_log=True,
    x_range=(0.0, 2.0),
    y_range=(1e-4, 1.0),
)
BLOCKS = (
    report.Verdict("not private", "One line.", "bad", ("first reason", "second `reason`")),
    report.Heading("Section"),
    report.Text("Words with `code`."),
    report.Note("A note.", "unsure"),
    report.Facts((("rows", 32561), ("gdp", 4.0), ("none", None), ("flag", True)), title="Facts"),
    report.Table(("name", "value"), (("a", 1.5), ("b", math.inf)), title="Table"),
    PLOT,
)


def shown(result: report.Report, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    result.show(console)
    return console.file.getvalue()


@pytest.mark.long
def test_every_word_reaches_terminal_html_and_json() -> None:
    result = report.Report("Title", BLOCKS)
    words = ["Title", "One line.", "first reason", "Section", "A note.", "32,561", "∞", "yes", "—"]
    for word in words:
        assert word in shown(result), word
        assert word in result.to_html(), word
    as_json = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert [block["kind"] for block in as_json["blocks"]] == [type(b).__name__.lower() for b in BLOCKS]
    assert as_json["blocks"][5]["rows"][1] == ["b", "inf"]
    assert as_json["blocks"][6]["drawn"][0]["y"] == [0.1, 0.01, 0.001]


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=30))
def test_no_text_is_read_as_markup(text: str) -> None:
    blocks = (
        report.Text(text),
        report.Facts(((text, text),)),
        report.Table((text,), ((text,),)),
        report.Note(text),
    )
    hostile = "<img onerror=x>" + text
    page = report.Report(
        hostile, (*blocks, report.Verdict(hostile, hostile, "good", (hostile,)))
    )._repr_html_()
    assert "<img" not in page
    assert "[/red]" in shown(report.Report("", (report.Text("[/red]" + text.replace("`", "")),)))


@pytest.mark.slow
@pytest.mark.parametrize("text", ["$\\foo$", "cost in $ of 1990 and $ of 2020", "[/red]", "length [cm]"])
def test_units_and_names_are_words_wherever_they_stand(text: str) -> None:
    """A name between two dollars was drawn as a formula, or nothing was; units in brackets were lost."""
    drawn = (Interval((1.0,), (0.0,), (1.0,), (2.0,), text), report.Rule("x", 1.0, text))
    plot = Plot(text, text, text, drawn, y_ticks=((1.0, text),))
    said = " ".join("".join(ElementTree.fromstring(svg(plot)).itertext()).split())
    assert text in said or text.replace("[", " [") in said
    page = report.Report(text, (report.Facts(((text, text),), text), report.Table((text,), ((text,),), text)))
    assert shown(page, 200).count(text) == 7


def test_a_long_name_is_not_broken_where_eighty_letters_are_enough() -> None:
    """The last bracket of a threshold stood on a line of its own."""
    names = ("term", "unit", "mean", "sd", "odds ratio (median)", "90% interval")
    row = ("thresholds[poor|fair]", "dollars", "6.268e-6", "5.386e-7", "1.0000063", "1.0000054 to 1.0000071")
    rows = row, ("thresholds[very good|excellent]", *row[1:])
    text = shown(report.Report("x", (report.Table(names, rows),)), 80)
    assert row[0] in text and row[-1] in text and max(map(len, text.splitlines())) <= 80


def test_a_table_that_is_too_wide_is_shown_in_parts_that_have_its_first_column() -> None:
    """Each coefficient was a block of lines, seven for a line of the table."""
    names = ("term", *(letter * 12 for letter in "abcdefg"))
    rows = tuple((f"term{k}", *(f"{letter}{k}" * 6 for letter in "abcdefg")) for k in range(9))
    page = report.Report("", (report.Table(names, rows), report.Table(names, rows[:1])))
    lines = [line.split() for line in shown(page, 80).splitlines()]
    assert [line for line in lines if line[:1] == ["term8"]] == [[*rows[8][:5]], ["term8", *rows[8][5:]]]
    assert lines[-8:-1] == [[name, one] for name, one in zip(names, rows[0], strict=True)][1:]


def test_dates_prices_and_intervals_are_not_broken_in_a_browser() -> None:
    """A column of dates, 2026- on a line and 11-28 on the next, stood beside one of 0.265- and GDP."""
    assert report.Report("", (report.Text("0.9 to 1.1"),))._repr_html_().count('"whole">0.9 to 1.1<') == 1
    said = "made 2026-11-28, `0.2049-GDP`, ε-DP of 1985-1989; a well-known path /a/b-c and one-" + 30 * "x-1-"
    page = report.Report("", (report.Text(said),))._repr_html_()
    whole = re.findall(r'<span class="whole">(.*?)</span>', page)
    assert whole == ["2026-11-28", "0.2049-GDP", "ε-DP", "1985-1989"] and ".whole{white-space:nowrap}" in page
    assert " ".join(re.sub(r"<[^>]+>", "", page).split()).endswith(said.replace("`", ""))


def test_svg_is_well_formed_and_follows_the_theme() -> None:
    text = svg(PLOT)
    ElementTree.fromstring(text)
    assert "var(--c0)" in text
    assert not [colour for colour in _COLOURS.values() if colour in text]
    assert "certificate" in text


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (26.4, "26.4"),
        (1e-6, "1e-6"),
        (-0.0, "0"),
        (-1.5, "−1.5"),
        (math.inf, "∞"),
        (math.nan, "not a number"),
    ],
)
def test_numbers_are_written_short(value: float, words: str) -> None:
    assert report.number(value) == words


@given(st.floats(1e-300, 1e300), st.integers(1, 12))
def test_what_is_claimed_at_most_is_shown_at_its_least_number_above(value: float, digits: int) -> None:
    up, down = report.rounded_up(value, digits), report.rounded_down(value, digits)
    assert down * (1 - 1e-9) <= value <= up * (1 + 1e-9)
    assert up - down <= 1.01 * 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
    assert float(f"{up:.{digits}g}") == up and float(report.at_most(value, digits)) == up


def test_a_claim_that_is_said_in_full_has_no_digit_more() -> None:
    """Bounds are rounded up while they are computed, by less."""
    assert report.at_most(0.2 * (1 + 1e-12)) == "0.2"
    assert report.at_most(0.20000001) == "0.2001"
    assert report.at_most(math.inf) == "∞"


def test_matplotlib_and_rich_are_not_imported_until_needed() -> None:
    code = (
        "import sys, private_mcmc.report; print(sum(m in sys.modules for m in ('matplotlib', 'rich', 'jax')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"


@pytest.mark.parametrize(("low", "high"), [(0.63, 2.5), (0.9, 1.25), (0.98, 1.04), (0.4, 1.7), (0.2, 30.0)])
def test_an_axis_of_ratios_names_the_one_at_which_nothing_differs(low, high):
    interval = Interval((0.0,), (low,), (1.1,), (high,))
    (axes,) = figure(Plot("ratios", "ratio", "", (interval,), x_log=True)).axes
    first, last = axes.get_xlim()
    shown = [tick for tick in axes.get_xticks() if first <= tick <= last]
    assert 3 <= len(shown) <= 9 and min(abs(tick - 1) for tick in shown) < 1e-9


@pytest.mark.parametrize(("shown", "terminal"), [(True, True), (True, False), (False, True)])
def test_what_is_being_tried_is_said_on_a_terminal_alone(monkeypatch, shown, terminal):
    written = io.StringIO()
    monkeypatch.setattr(written, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.setenv("TERM", "xterm")
    say("before")
    with telling(shown):
        say("synthetic table 3 of 12")
        time.sleep(0.2)
    said = written.getvalue()
    say("after")
    assert ("table 3 of 12" in said) == (shown and terminal)
    assert "before" not in said
    assert written.getvalue() == said
