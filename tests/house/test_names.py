"""Every name of the library that a message, a docstring or a page tells the reader to use is there."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import private_mcmc

ROOT = Path(__file__).parents[2]
PAGES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))

DOTTED = re.compile(r"(?<![\w./-])(?:private_mcmc|pmc)((?:\.[A-Za-z_]\w*)+)")
IMPORT = re.compile(r"from (private_mcmc[\w.]*) import (\([^)]*\)|[^\n`]*)")


def sources():
    """Module names of the package (and of the models shipped in it) with their text."""
    for folder, package in (("private_mcmc", "private_mcmc"), ("models", "private_mcmc.models")):
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            yield ".".join((package, *parts)), path.read_text(encoding="utf-8")


def quoted():
    """Places and texts: the pages, and every string in the package, docstrings and messages among them."""
    for page in PAGES:
        # What a diff adds is not there yet.
        yield page.name, re.sub(r"(?m)^\+.*", "", page.read_text(encoding="utf-8"))
    for module, text in sources():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{module}:{node.lineno}", node.value


def missing_import(module, names):
    """What ``from module import names`` would not find."""
    found = importlib.import_module(module)
    wanted = [name.split(" as ")[0].strip() for name in names.split("#")[0].strip("()\n ").split(",")]
    return [f"{module}.{name}" for name in wanted if name and not hasattr(found, name)]


def resolves(dotted):
    """Whether ``private_mcmc`` followed by ``dotted`` is there after ``import private_mcmc``."""
    found = private_mcmc
    for name in dotted.strip(".").split("."):
        if not hasattr(found, name) and hasattr(found, "__path__"):
            try:
                importlib.import_module(f"{found.__name__}.{name}")
            except ImportError:
                return False
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return True


def unreachable(text):
    """The names in ``text`` that a reader could not use."""
    missing = [name for match in IMPORT.finditer(text) for name in missing_import(*match.groups())]
    dotted = {match.group(1) for match in DOTTED.finditer(IMPORT.sub("", text))}
    return missing + [f"private_mcmc{name}" for name in sorted(dotted) if not resolves(name)]


@pytest.mark.slow
def test_every_name_that_is_quoted_is_there():
    wrong = {place: names for place, text in quoted() if (names := unreachable(text))}
    assert wrong == {}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("give a private_mcmc.audit.Pair(first, second)", ["private_mcmc.audit.Pair"]),
        ("`pmc.Rows.from_tml`", ["private_mcmc.Rows.from_tml"]),
        ("from private_mcmc.auditing import Pair, Pear", ["private_mcmc.auditing.Pear"]),
        ("from private_mcmc.auditing import (\n    Pair,\n    Mechanism,\n)", []),
        ("see `pmc.PrivateMCMC.from_plan` and benchmarks.papers.bounds.", []),
    ],
)
def test_a_name_that_is_not_there_is_seen(text, names):
    assert unreachable(text) == names


@pytest.mark.long
def test_functions_named_like_their_packages_stay_functions():
    # A package that is imported becomes an attribute of its parent, where it would hide the function.
    code = (
        "from private_mcmc.auditing import Pair\nfrom private_mcmc.planning import Plan\n"
        "from private_mcmc.preflight import PreflightReport\nimport private_mcmc as pmc\n"
        "kinds = {type(f).__name__ for f in (pmc.audit, pmc.plan, pmc.preflight)}\n"
        "raise SystemExit(kinds != {'function'})"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
