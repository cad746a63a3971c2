"""What every statement can do: answer, print itself, travel through JSON, and say what it means to a person.

Under ``add_remove`` every statement of a mechanism says that no data set has more than ``n`` rows.
"""

import json
import math
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

import private_mcmc as pmc
from private_mcmc import accounting
from private_mcmc import accounting as acc
from private_mcmc.accounting.conjugate import FAMILIES
from private_mcmc.accounting.curves import Gaussian, Pure, curve_of
from private_mcmc.accounting.risk import in_words, report, risk, whom
from private_mcmc.accounting.statement import RULES, Argument, Statement
from private_mcmc.errors import DeclarationError
from private_mcmc.records import plain, unplain
from private_mcmc.target import Unit
from tests.accounting.every_statement import CONVEX, SCHEDULES, statements

ALL = statements()


@pytest.mark.parametrize("name", ALL)
def test_json_round_trip_gives_an_equal_statement(name):
    statement = ALL[name]
    text = json.dumps(statement.to_dict(), allow_nan=False)
    assert acc.Statement.from_dict(json.loads(text)) == statement


@pytest.mark.some(2)
@pytest.mark.parametrize("name", ALL)
def test_statement_prints_its_numbers_theorem_assumptions_and_constants(name):
    statement = ALL[name]
    text = str(statement)
    assert statement.adjacency in text
    assert statement.argument.theorem in text
    for line in statement.argument.assumptions:
        assert line in text
    for key in statement.argument.constants:
        assert f"{key}=" in text
    assert len(text) < 20_000


@pytest.mark.some(2)
@pytest.mark.parametrize("name", ALL)
def test_curves_are_monotone_and_consistent(name):
    statement = ALL[name]
    deltas = [statement.delta(epsilon) for epsilon in (0.0, 0.5, 2.0, 8.0)]
    assert all(0 <= value <= 1 for value in deltas)
    assert deltas == sorted(deltas, reverse=True)
    assert statement.advantage == deltas[0]
    epsilon = statement.epsilon(1e-6)
    if math.isfinite(epsilon):
        assert statement.delta(epsilon * (1 + 1e-9)) <= 1e-6 * (1 + 1e-9)
    assert statement.epsilon(1e-3) <= epsilon


def test_gdp_is_the_smallest_gaussian_level_or_none():
    assert ALL["path"].gdp is not None
    assert ALL["laplace"].gdp is None
    assert ALL["poisson path"].gdp is not None
    assert ALL["poisson path"].epsilon(1e-6) < acc.gdp.epsilon(ALL["poisson path"].gdp, 1e-6)


def test_a_statement_needs_a_curve_and_a_known_adjacency():
    argument = ALL["path"].argument
    with pytest.raises(DeclarationError):
        acc.Statement("replace_one", (), argument)
    with pytest.raises(DeclarationError):
        acc.Statement("neighbour", ALL["path"].curves, argument)


def test_infinities_survive_json_and_nan_is_refused():
    value = {"a": (math.inf, -math.inf, 1.5), "b": None, "c": True, "d": {"e": (1, 2)}}
    assert unplain(json.loads(json.dumps(plain(value), allow_nan=False))) == value
    with pytest.raises(DeclarationError):
        plain({"a": math.nan})
    with pytest.raises(DeclarationError):
        plain(object())
    with pytest.raises(DeclarationError):
        curve_of({"kind": "hope"})


def test_summary_names_the_mechanism_price_at_the_asked_delta():
    text = ALL["path"].summary(delta=1e-9)
    assert f"{ALL['path'].epsilon(1e-9):.6g}" in text
    assert "(pure)" in str(ALL["laplace"])


NUMBER = re.compile(r"ε = ([\d.e−+-]+\d)|([\d.e−+-]+\d)-GDP")


def printed(text):
    """Every ε, and every GDP parameter, in a text."""
    found = NUMBER.findall(text)
    return [float(level) for level, _ in found if level], [float(m) for _, m in found if m]


@pytest.mark.parametrize("m", [0.123449, 0.2, 0.64812345, 1.23449, 3.33333, 12.34444])
def test_no_price_is_printed_below_what_is_proved(m):
    """Digits that are left out are rounded up: half of all prices were said to be smaller than they are."""
    delta = 1.0000049e-6
    noised = acc.gaussian(adjacency="replace_one", sensitivity=m, scale=1.0)
    pure = acc.laplace(m, adjacency="replace_one", sensitivity=m, scale=1.0)
    levels, parameters = printed(noised.summary(delta))
    assert levels and all(level >= noised.epsilon(1.00001e-6) * (1 - 1e-9) for level in levels)
    assert parameters and all(each >= m * (1 - 1e-9) for each in parameters)
    assert "δ = 1e-06" not in noised.summary(delta)
    assert all(level >= pure.epsilon(0.0) * (1 - 1e-9) for level in printed(pure.summary(0.0))[0])


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


LINE = re.compile(r"no data set has more than n = (\d+) rows")


def all_of(statement):
    """The statement and all that it is composed of."""
    return [statement, *(inner for part in statement.parts for inner in all_of(part))]


def quoted(statement):
    """The bounds on the number of rows that a statement itself quotes."""
    return [int(found[1]) for line in statement.argument.assumptions if (found := LINE.fullmatch(line))]


def test_where_the_number_is_public_nothing_is_quoted():
    for adjacency in ("replace_one", "zero_out"):
        assert not quoted(acc.langevin_statement(replace(SCHEDULES["path"], adjacency=adjacency), CONVEX))


PRIVATE_NUMBERS = {
    f"{name}, {number}": part
    for name, statement in statements().items()
    for number, part in enumerate(all_of(statement))
    if part.adjacency == "add_remove"
}


def test_every_rule_that_knows_a_private_number_of_rows_is_among_them():
    assert {part.argument.rule for part in PRIVATE_NUMBERS.values()} == {
        rule for rule in RULES if rule != "composition" and rule.removeprefix("posterior.") not in FAMILIES
    }


@pytest.mark.parametrize("name", PRIVATE_NUMBERS)
def test_a_statement_whose_number_of_rows_is_not_quoted_any_more_is_not_verified(name):
    """Noise was verified without: its rounding, and what is summed, is for at most so many rows."""
    made = PRIVATE_NUMBERS[name]
    assert quoted(made) and made.verify()
    silent = tuple(line for line in made.argument.assumptions if not LINE.fullmatch(line))
    more = tuple(line.replace("n = ", "n = 9") for line in made.argument.assumptions)
    for words in (silent, more):
        assert not replace(made, argument=replace(made.argument, assumptions=words)).verify()
    unknown = {key: value for key, value in made.argument.constants.items() if key != "num_rows"}
    for words in (silent, made.argument.assumptions):
        changed = replace(made.argument, assumptions=words, constants=unknown)
        verified = replace(made, argument=changed).verify()
        # A budget alone, that says nothing of rows, is one: its stages do.
        assert not verified or (made.argument.rule == "adaptive" and words == silent)


def test_noise_is_not_stated_for_a_private_number_of_rows_without_its_bound():
    given = {"adjacency": "add_remove", "sensitivity": 1.0, "scale": 2.0}
    for make in (acc.gaussian, partial(acc.laplace, 0.5)):
        with pytest.raises(pmc.DeclarationError, match="num_rows"):
            make(**given)
    with pytest.raises(pmc.DeclarationError, match="num_rows"):
        acc.posterior_bounded_gradient(1.0, 2.0, "add_remove")
