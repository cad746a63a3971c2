"""What every statement can do: answer, print itself, travel through JSON."""

import json
import math
import re

import pytest

from private_mcmc import accounting as acc
from private_mcmc.accounting.curves import curve_of
from private_mcmc.errors import DeclarationError
from private_mcmc.records import plain, unplain
from tests.accounting.every_statement import statements

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
