"""The largest number of rows that a statement under ``add_remove`` is for."""

from __future__ import annotations

from dataclasses import replace

from private_mcmc.accounting.assumptions import no_more_rows
from private_mcmc.accounting.statement import Statement


def capped(statement: Statement, num_rows: int) -> Statement:
    """``statement``, which quotes its bound on the number of rows where the adjacency hides that number.

    Under ``add_remove`` a number of rows in the constants is the public ``n_max``: the statement is for pairs
    of data sets neither of which has more. Elsewhere the number is public and the same in both.
    """
    line = no_more_rows(num_rows)
    argument = statement.argument
    if statement.adjacency != "add_remove" or line in argument.assumptions:
        return statement
    return replace(statement, argument=replace(argument, assumptions=(*argument.assumptions, line)))
