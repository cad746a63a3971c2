"""Mutants of the real source of releases and of their prices, and what each of them is audited on."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from private_mcmc.accounting import conjugate, langevin, mechanisms
from private_mcmc.release import ledger_state as ledger_filter
from private_mcmc.release import noise, price, sums
from tests.auditing.mutants import Change, changed_module
from tests.soundness.attacks import PairedMechanism
from tests.soundness.sweep import noised, posteriors
from tests.soundness.sweep.noised import edge_pair
from tests.soundness.sweep.settings import settings

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Swap:
    """A function, method or property of ``owner`` becomes what its changed source makes of it."""

    owner: ModuleType | type
    attribute: str
    old: str
    new: str

    @property
    def mutant(self) -> Any:
        """Changed code among the unchanged names of the module it was written in."""
        found = getattr(self.owner, self.attribute)
        function = found.fget if isinstance(found, property) else found
        module = sys.modules[function.__module__]
        broken = attrgetter(function.__qualname__)(changed_module(module, Change(module, self.old, self.new)))
        code = (broken.fget if isinstance(found, property) else broken).__code__
        moved = FunctionType(code, vars(module), function.__name__, function.__defaults__)
        moved.__kwdefaults__ = function.__kwdefaults__
        return property(moved) if isinstance(found, property) else moved


@dataclass(frozen=True)
class Scenario:
    """What is swapped, what is audited then, and at which (ε, δ)."""

    swaps: tuple[Swap, ...]
    mechanism: Callable[[], PairedMechanism]
    num_runs: int = 2_000
    points: Points = ((0.3, 0.1), (1.5, 1e-3))


# Without this change noise that is too small is not even built.
MAP_NOT_ASKED = Swap(noise._Noise, "confirmed", "if not loss <= promised:", "if False:")


def swap(*change: Any) -> tuple[Swap]:
    return (Swap(*change),)


def scaled(kind: str, factor: str) -> tuple[Swap, ...]:
    old = f"make_{kind.lower()}(*space, scale=self.scale"
    measured = Swap(getattr(noise, f"{kind}Noise"), "_measurement", old, f"{old} * {factor}")
    return measured, MAP_NOT_ASKED


def replace_one(name: str) -> Callable[[], PairedMechanism]:
    return lambda: noised.NOISED[name]("replace_one")


def posterior(name: str) -> Callable[[], PairedMechanism]:
    return lambda: posteriors.posterior_mechanism(name, "replace_one")


def far_second_moments() -> PairedMechanism:
    """Second moments of rows twice as long as the radius, which must be scaled down."""
    far = {"X": np.array([2.0, 0.0])}, {"X": np.array([0.0, 2.0])}
    pair = edge_pair(far, {"X": np.zeros(2)}, noised.ROWS - 1, "replace_one")
    return replace(noised.second_moments("replace_one"), pairs=lambda: (pair,))


SCENARIOS = {
    "Laplace scale halved": Scenario(scaled("Laplace", "0.5"), replace_one("Laplace sum")),
    "Gaussian noise scaled by 0.8": Scenario(scaled("Gaussian", "0.8"), replace_one("Gaussian sum"), 20_000),
    "noise of the second release forgotten": Scenario(
        scaled("Gaussian", "0.0"), replace_one("composed pair")
    ),
    "second release not charged": Scenario(
        swap(mechanisms, "_together", "tuple(dict.fromkeys(map(combine, product(*options))))", "options[0]"),
        replace_one("composed pair"),
        20_000,
    ),
    "filter that adds up an eighth of each cost": Scenario(
        swap(ledger_filter.Filter, "cost", "Fraction(level) ** 2", "Fraction(level) ** 2 / 8"),
        replace_one("ledger"),
        3_000,
    ),
    "second moments of rows beyond the radius": Scenario(
        swap(sums, "_into_ball", "norms > radius, radius / norms, 1.0", "norms > radius, 1.0, 1.0"),
        far_second_moments,
        400,
    ),
    "sensitivity of an average halved": Scenario(
        # In the accountant as well, which derives it anew.
        tuple(
            Swap(module, "average_sensitivity", "= sensitivity(schedule)", "= sensitivity(schedule) / 2")
            for module in (price, langevin)
        ),
        lambda: next(
            one for one in settings() if one.name == "loud mean, plain, expectations, replace_one"
        ).build(),
        1_000,
    ),
    "posterior drawn with its temper forgotten": Scenario(
        swap(posteriors, "posterior_mechanism", '(data["y"]), _TEMPER', '(data["y"]), 1.0'),
        posterior("Normal mean"),
        40_000,
    ),
    "certificate of a coin that moves by half a row": Scenario(
        swap(conjugate, "beta_binomial", "temper * trials", "temper * trials / 2"), posterior("coin"), 20_000
    ),
    "certificate of counts that knows one order only": Scenario(
        swap(conjugate, "gamma_poisson", "[0]) for up in (True, False)", "[0]) for up in (True,)"),
        posterior("counts"),
        80_000,
    ),
}
