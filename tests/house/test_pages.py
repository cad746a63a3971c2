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
def test_links_lead_to_files(page):
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_that_is_called_as_a_file_leads_to_that_file(page):
    links = NAMED.findall(page.read_text(encoding="utf-8"))
    assert [pair for pair in links if Path(pair[0]).name != Path(pair[1]).name] == []


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
