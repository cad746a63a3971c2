"""Links lead to the files they name, every page is listed, every command of ``make`` named exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)(?:#[^)]*)?\)")
NAMED = re.compile(r"\[`?([\w./-]+\.\w+)`?\]\((?!https?://|#|mailto:)([^)#\s]+)(?:#[^)]*)?\)")
MAKE = re.compile(r"`make ([a-z-]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_one_that_is_called_as_a_file_to_that_file(page):
    text = page.read_text(encoding="utf-8")
    assert [link for link in LINK.findall(text) if not (page.parent / link).exists()] == []
    assert [pair for pair in NAMED.findall(text) if Path(pair[0]).name != Path(pair[1]).name] == []


def test_every_page_is_in_the_contents():
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if page not in contents] == []


def test_the_start_page_names_every_page():
    linked = set(LINK.findall((ROOT / "docs/index.md").read_text(encoding="utf-8")))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"} <= linked


def test_named_targets_of_make_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]
    assert {name for page in pages for name in MAKE.findall(page.read_text(encoding="utf-8"))} <= targets
