"""The largest weight of the likelihood at which the posterior itself is certified."""

from __future__ import annotations

from private_mcmc.accounting import Statement
from private_mcmc.errors import NotPrivate
from private_mcmc.model import RowModel
from private_mcmc.preflight.advice import largest_temper
from private_mcmc.preflight.certify.certificates import certificates, meets
from private_mcmc.preflight.certify.constants import constants
from private_mcmc.target import Target


def certified_temper(reading: RowModel, target: Target, n: int) -> tuple[float, Statement]:
    """A weight ``w ≤ 1`` and the certificate that one exact draw of ``exp(−K − wΣv)`` meets the target.

    Raises:
        NotPrivate: if no weight is certified.
    """
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
