"""What a statement means to one person: bounds on right guesses and on beliefs, against exact laws."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from private_mcmc import accounting
from private_mcmc.accounting.curves import Gaussian, Pure
from private_mcmc.accounting.risk import in_words, report, risk, whom
from private_mcmc.accounting.statement import Argument, Statement
from private_mcmc.target import Unit

WHY = Argument("a law", (), {}, "none")


def gaussian(m):
    return Statement("replace_one", (Gaussian(m),), WHY)


@given(m=st.floats(0.01, 5.0), chance=st.sampled_from([1e-9, 1e-6, 1e-3]))
def test_beliefs_are_bounded_where_the_law_is_known(m, chance):
    found = risk(gaussian(m), chance)
    # Between N(0, 1) and N(m, 1) the log likelihood ratio is N(m²/2, m²).
    for bound, share in ((found.usual, 0.05), (found.rare, chance)):
        exact = m * m / 2 + m * norm.isf(share)
        assert exact <= bound <= exact + 0.5 * m + 0.02
    assert found.right == pytest.approx(norm.cdf(m / 2), rel=1e-9)
    assert found.right >= norm.cdf(m / 2) * (1 - 1e-12)


@given(level=st.floats(0.01, 20.0), before=st.floats(0.01, 0.99))
def test_pure_beliefs_never_exceed_their_odds(level, before):
    found = risk(Statement("add_remove", (Pure(level),), WHY), 1e-6)
    odds = before / (1 - before) * math.exp(level)
    assert found.belief(before) <= odds / (1 + odds) * (1 + 1e-9)
    assert before <= found.belief(before, usually=True) <= found.belief(before) * (1 + 1e-12)


def test_randomised_response_attains_its_bound():
    # A true answer with probability 3/4: log 3.
    found = risk(Statement("replace_one", (Pure(math.log(3)),), WHY), 0.0)
    assert found.chance == 0 and found.belief(0.5) == pytest.approx(0.75)
    assert found.right == pytest.approx(0.75)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove", "zero_out"])
def test_the_words_say_who_is_protected_and_by_how_much(adjacency):
    found = risk(gaussian(0.6477), 1e-6)
    words = in_words(found, adjacency)
    assert "all but one of 1,000,000" in words and "62.7 %" in words
    of_person = whom(adjacency, Unit("id", 24)) + in_words(found, adjacency, Unit("id", 24))
    assert re.search("all (its |their )?rows of", of_person) and "every person's rows but yours" in of_person
    assert "number of rows" not in of_person and "your row " not in of_person
    no_limit = risk(gaussian(30.0), 0.0)
    assert "nearly 100 %" in in_words(no_limit, adjacency)


def test_a_statement_shows_itself():
    price = accounting.gaussian(adjacency="replace_one", sensitivity=1.0, scale=2.0)
    page = price._repr_html_()
    assert "2.254" in page and "guess right at most" in page and "<details>" in page
    assert "NOT VERIFIED" in report(gaussian(0.5)).to_html()
    assert np.isfinite(risk(price, 1e-6).usual)
