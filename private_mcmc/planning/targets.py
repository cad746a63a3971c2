"""What a target lets a plan have: a budget, a certified weight of the likelihood, and its statement."""

from __future__ import annotations

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.arguments import Guarantee
from private_mcmc.errors import DeclarationError, NotPrivate
from private_mcmc.model import RowModel
from private_mcmc.preflight.certificates import certificates, constants, largest_temper, meets
from private_mcmc.target import Target, Unit


def certified_temper(
    reading: RowModel, target: Target, n: int, guarantee: Guarantee
) -> tuple[float, Statement | None]:
    """A weight ``w ≤ 1`` and the certificate that one exact draw of ``exp(−K − wΣv)`` meets the target.

    Under ``guarantee="run"`` 1, without one.

    Raises:
        NotPrivate: if no weight is certified.
    """
    if guarantee == "run":
        return 1.0, None
    known = constants(reading, None, None)

    def certify(temper: float) -> tuple[Statement, ...]:
        found = certificates(reading, known, n=n, temper=temper, target=target)
        return tuple(statement for statement in found if meets(statement, target))

    temper = 1.0 if certify(1.0) else largest_temper(certify, 1.0, target)
    if temper is None:
        raise NotPrivate(
            "guarantee='posterior': no weight of the likelihood makes the posterior private by a certificate "
            "that this library knows; see preflight for why. guarantee='run' rests on the run's noise alone."
        )
    return temper, certify(temper)[0]


def gdp_budget(target: Target) -> float:
    """The largest ``m`` for which ``m``-GDP meets the target.

    Raises:
        DeclarationError: for a target with ``delta=0``, which no Gaussian noise meets.
    """
    if not target.delta > 0:
        raise DeclarationError(
            "delta=0: a plan releases paths with Gaussian noise, which is ε-DP for no ε, whatever its size. "
            "Choose delta > 0, far below 1/n, or release averages with Laplace noise, which are: "
            "PrivateMCMC(…, release=Expectations(…))."
        )
    return accounting.gdp.budget(target.epsilon, target.delta)


def policy_statement(
    target: Target, n: int, unit: Unit | None, parts: tuple[Statement, ...] = ()
) -> Statement:
    """Of the whole policy: what its stages may cost together, whatever of them has run."""
    return accounting.adaptive(gdp_budget(target), target.adjacency, parts, unit, n)
