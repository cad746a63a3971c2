"""Stages chosen one after the other, under a Gaussian DP budget fixed beforehand."""

from __future__ import annotations

import math
from fractions import Fraction

from private_mcmc.accounting.assumptions import BUDGET_FIRST, RELATION, STAGES_HOLD
from private_mcmc.accounting.curves.curve import Gaussian
from private_mcmc.accounting.rounding import norm_up
from private_mcmc.accounting.statement import Argument, Statement
from private_mcmc.errors import DeclarationError, NotPrivate
from private_mcmc.target import Adjacency, check_adjacency


def adaptive(budget: float, adjacency: Adjacency, stages: tuple[Statement, ...]) -> Statement:
    """``B``-GDP for stages ``m_1, m_2, …`` with ``Σ m_j² ≤ B²``, each chosen from what was released before.

    **Guarantee**: ``budget``-GDP, the declared budget and never the realised sum.
    **Assumptions**: the budget was fixed before the first stage; every stage's ``m_j`` holds given the
    earlier outputs. Source: Smith, Thakurta 2022 (fully adaptive composition of Gaussian DP).

    Raises:
        NotPrivate: if the stages cost more than the budget or one of them has no Gaussian statement.
        DeclarationError: for stages under another adjacency, or a budget that is not positive.
    """
    if not 0 < budget < math.inf:
        raise DeclarationError(f"budget={budget}: must be positive and finite.")
    spent = Fraction(0)
    for stage in stages:
        if stage.adjacency != adjacency:
            raise DeclarationError(
                f"a stage is stated under {stage.adjacency!r}, the budget under {adjacency!r}."
            )
        if stage.gdp is None:
            raise NotPrivate(f"the stage {stage.argument.theorem!r} has no Gaussian DP statement.")
        if stage.gdp == math.inf:
            raise NotPrivate(f"the stage {stage.argument.theorem!r} has no finite Gaussian DP statement.")
        spent += Fraction(stage.gdp) ** 2
    if not spent <= Fraction(budget) ** 2:
        cost = norm_up(stage.gdp for stage in stages if stage.gdp is not None)
        raise NotPrivate(f"the stages cost {cost:.12g}-GDP, more than the budget {budget:.12g}.")
    argument = Argument(
        "fully adaptive composition under a Gaussian DP budget (Smith, Thakurta 2022)",
        (BUDGET_FIRST, STAGES_HOLD, RELATION[check_adjacency(adjacency)]),
        {"budget": float(budget)},
        "adaptive",
    )
    return Statement(adjacency, (Gaussian(float(budget)),), argument, parts=stages)
