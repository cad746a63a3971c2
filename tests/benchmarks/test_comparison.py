"""The page that compares libraries names the versions that are pinned, or installed, for the comparison."""

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/comparison.md").read_text(encoding="utf-8")


def named(library):
    """The version in the page's table."""
    return re.search(rf"^\| {re.escape(library)} \| ([\d.]+) \|", PAGE, re.MULTILINE)[1]


@pytest.mark.parametrize("library", ["d3p", "diffprivlib", "Opacus"])
def test_peers_in_environments_of_their_own_are_those_that_are_pinned(library):
    pins = (ROOT / f"benchmarks/peers/{library.lower()}.txt").read_text(encoding="utf-8")
    assert f"{library.lower()}=={named(library)}" in pins


@pytest.mark.parametrize("library", ["OpenDP", "jax-privacy"])
def test_peers_beside_us_are_those_that_are_installed(library):
    try:
        assert version(library.lower()) == named(library)
    except PackageNotFoundError:
        pytest.skip(f"{library} comes with the extra bench")


def test_errors_that_are_quoted_are_those_of_the_measured_page():
    measured = (ROOT / "benchmarks/measured/utility.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:5] for line in measured.splitlines() if line.startswith(("| 1 |", "| 3 |"))]
    first = {(one[0].strip(), one[1].strip()): one[3].split("±")[0].strip() for one in rows if len(one) == 4}
    for name, words in (("diffprivlib", "diffprivlib"), ("DP-SGD", "DP-SGD"), ("d3p", "d3p")):
        at_one, at_three = first["1", name], first["3", name]
        assert f"{words} {at_one} and {at_three}" in PAGE, (name, at_one, at_three)
