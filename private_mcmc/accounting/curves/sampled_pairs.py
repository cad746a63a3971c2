"""The curve of many steps of a subsampled Gaussian mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from private_mcmc.accounting.curves import gdp, rdp
from private_mcmc.accounting.curves.curve import Curve, Gaussian
from private_mcmc.accounting.curves.mixtures import check_pair, renyi
from private_mcmc.accounting.curves.pld import Losses, Step, losses, worthwhile
from private_mcmc.accounting.rounding import product_up, root_up
from private_mcmc.errors import DeclarationError


@dataclass(frozen=True)
class Sampled(Curve):
    """``steps`` subsampled Gaussian steps with one dominating pair (see ``mixtures``).

    Attributes:
        pair: ``"add_remove"``, ``"replace_one"`` (Poisson) or ``"fixed"`` (without replacement).
        rate: ``q``.
        ratio: ``r/σ``, the shift of one present row over the noise's standard deviation.
        steps: how many such steps.
    """

    pair: str
    rate: float
    ratio: float
    steps: int
    kind = "sampled"

    def __post_init__(self) -> None:
        check_pair(self.pair, self.rate, self.ratio)
        if not self.steps >= 1:
            raise DeclarationError(f"steps={self.steps}: must be at least 1.")

    @property
    def unamplified(self) -> Gaussian:
        """What holds even if it were known which rows were drawn."""
        whole = self.ratio if self.pair == "add_remove" else 2 * self.ratio
        return Gaussian(product_up(whole, root_up(self.steps)))

    @property
    def zcdp(self) -> float:
        """That of the un-amplified Gaussian: no smaller constant holds at every order."""
        return self.unamplified.zcdp

    @cached_property
    def _losses(self) -> Losses:
        return losses(self.loss_steps)

    @property
    def loss_steps(self) -> tuple[Step, ...]:
        """Input of ``pld.losses``."""
        return (Step(self.pair, self.ratio, self.rate, self.steps),)

    def delta(self, epsilon: float) -> float:
        """From the composed privacy loss distribution; never above the un-amplified value."""
        best = self.unamplified.delta(gdp.check_epsilon(epsilon))
        if worthwhile(self.loss_steps):
            best = min(best, self._losses.delta(epsilon))
            if self._losses.resolves(best):
                return best
        return min(best, rdp.table_to_delta(self._divergences, epsilon))

    @cached_property
    def _divergences(self) -> tuple[float, ...]:
        """At ``rdp.ORDERS``: quadratures are worth keeping."""
        return tuple(self.rdp(alpha) for alpha in rdp.ORDERS)

    def rdp(self, alpha: float) -> float:
        """By quadrature, one step times ``steps``."""
        return product_up(self.steps, renyi(self.pair, self.rate, self.ratio, alpha))
