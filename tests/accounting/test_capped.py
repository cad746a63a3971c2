"""Under ``add_remove`` every statement of a mechanism says that no data set has more than ``n`` rows."""

import re
from dataclasses import replace
from functools import partial

import pytest

import private_mcmc as pmc
from private_mcmc import accounting as acc
from private_mcmc.accounting.conjugate import FAMILIES
from private_mcmc.accounting.statement import RULES
from tests.accounting.every_statement import CONVEX, SCHEDULES, statements

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
