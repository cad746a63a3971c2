"""Certificates of one model against the true divergence of its posteriors."""

from dataclasses import dataclass

import jax
import numpy as np

from private_mcmc.errors import UnsupportedModel
from private_mcmc.model import read
from private_mcmc.preflight import verdict as decision
from private_mcmc.target import Target
from tests.soundness.divergence import Posteriors, worst
from tests.soundness.grammar import Written, write
from tests.soundness.outcomes import CERTIFIABLE

ADJACENCIES = ("replace_one", "add_remove", "zero_out")
_EPSILONS = (0.0, 0.5, 1.0)
# Of the grid in one and in two dimensions: relative, and absolute.
_ERROR = {1: (0.005, 1e-5), 2: (0.03, 1e-3)}


@dataclass(frozen=True)
class Verdict:
    """Whether a model in one or two dimensions was certified, and which claims are false."""

    certified: bool
    false: tuple[str, ...]


def small(seed: int) -> Written:
    """A model with few latents, whose rows often have bounded influence."""
    return write(seed, size=1, wild=seed % 3 % 2, outcome=CERTIFIABLE[seed % len(CERTIFIABLE)])


def judge(written: Written, *, ascend: bool) -> Verdict | None:
    """Check every certificate of a model; ``None`` if it is refused or has more than two dimensions."""
    rng = np.random.default_rng(written.seed)
    n, temper = int(rng.choice([2, 3, 6])), float(rng.choice([1.0, 0.3]))
    with jax.enable_x64(True):
        try:
            row_model = read(written.model, written.rows, n=n)
        except UnsupportedModel:
            return None
        if row_model.dim > 2:
            return None
        claims = {}
        known = decision.constants(row_model, None)
        for adjacency in ADJACENCIES:
            target = Target(1.0, 1e-3, adjacency)
            claims[adjacency] = decision.certificates(row_model, known, n=n, temper=temper, target=target)
        if not any(claims.values()):
            return Verdict(False, ())
        posteriors = Posteriors(written, row_model, temper, rng)
        false = []
        for adjacency, statements in claims.items():
            if statements:
                found = worst(posteriors, adjacency, n, _EPSILONS, rng, ascend=ascend)
                false += _violations(written, statements, found, row_model.dim)
    return Verdict(True, tuple(false))


def _violations(written: Written, statements, found, dim: int) -> list[str]:
    relative, absolute = _ERROR[dim]
    return [
        f"{statement.argument.theorem}, {statement.adjacency}: δ({epsilon}) = {statement.delta(epsilon):.3g} "
        f"claimed, {one.delta:.3g} found ({one.how})\n{written}"
        for statement in statements
        for epsilon, one in found.items()
        if one.delta > statement.delta(epsilon) * (1 + relative) + absolute
    ]
