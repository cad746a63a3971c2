"""Every public name but errors has an example in its docstring, and every example runs."""

import doctest
import inspect

import numpy as np
import pytest

import private_mcmc as pmc

# A package, whose names have docstrings of their own.
PACKAGES = {"accounting"}
NAMES = [
    name
    for name in pmc.__all__
    if name not in PACKAGES
    and not (inspect.isclass(made := getattr(pmc, name)) and issubclass(made, Exception))
]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def parsed(text, name):
    """The example in ``text``, with ``np`` and ``pmc`` imported as every page does."""
    return doctest.DocTestParser().get_doctest(text, {"np": np, "pmc": pmc}, name, None, None)


def failures(example):
    """What the example should have printed and did not; empty if it ran as written."""
    printed = []
    doctest.DocTestRunner(optionflags=OPTIONS, verbose=False).run(example, out=printed.append)
    return "".join(printed)


# Those that plan and fit; plans are made in tests/planning/, a fit from a table in tests/cli/test_fit.py.
LONG = {"Plan", "fit", "plan"}
EACH = [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in NAMES]


@pytest.mark.slow
@pytest.mark.parametrize("name", EACH)
def test_a_public_name_has_an_example_that_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = parsed(inspect.getdoc(getattr(pmc, name)) or "", name)
    assert any(name in step.source + step.want for step in example.examples), f"{name}: no example of it"
    assert failures(example) == ""


def test_an_example_that_is_wrong_is_seen():
    assert "Expected:\n    3" in failures(parsed(">>> 1 + 1\n3\n", "wrong"))
    assert failures(parsed(">>> 1 + 1\n2\n", "right")) == ""
