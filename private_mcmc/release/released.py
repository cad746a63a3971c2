"""Expectations declared before a run; what left the curator's side, free to use; what a budget has left."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import numpy.typing as npt
from jax.typing import ArrayLike

from private_mcmc.accounting import Statement
from private_mcmc.data.answers import draws_tree, for_arviz
from private_mcmc.errors import DeclarationError, ReleaseError
from private_mcmc.release.ledger_state import BELOW, DataSet
from private_mcmc.release.noise import FloatArray
from private_mcmc.report import at_least, at_most
from private_mcmc.schedule import Average

Bounds = tuple[float, float]
Sites = Mapping[str, jax.Array]
SiteFunction = Callable[[Sites], ArrayLike]
What = str | SiteFunction


@dataclass(frozen=True, init=False)
class Expectations:
    """Monte Carlo averages of functions of the constrained sites, released with noise.

    ``A = mean_n f(X_n) + noise``. Two chains on adjacent data that share start and noise stay within
    ``e_n`` of each other surely, so their averages differ by at most ``η = ℓ·mean e_n``, and by at most
    ``b − a`` when ``f`` is kept in ``[a, b]``; the smaller one sets the noise.

    **Guarantee**: pure ``ε``-DP, by Laplace noise. ``ℓ = 1`` of sites on the real line, clamped or not; sites
    on an interval have its range; any other function is clamped to ``bounds``. Nothing is taken on trust.
    **Cost**: known from ``plan`` before anything is spent. One run, one mechanism: all expectations
    share it and their costs add.
    Source: Bertazzi, Johnston, Roberts, Durmus, Prop. 3.7, with the synchronous coupling.

    Args:
        what: names of sites, functions of the dict of constrained sites, or dicts from a name to either.
        epsilon: the price; ``None`` takes the target's.
        bounds: ``(a, b)``, or a dict by name: values are clamped to it, NaN counts as ``a``.
        burn_in: steps left out of the average; ``None`` leaves out a fifth. It makes ``η`` larger.

    Raises:
        DeclarationError: for an empty declaration, repeated names, or numbers out of range.

    Example:
        >>> share = {"share": lambda sites: sites["w"][0] > 0}
        >>> declared = pmc.Expectations("w", share, bounds={"share": (0.0, 1.0)}, burn_in=20)
        >>> [name for name, _ in declared.items], declared.average(num_steps=100)
        (['w', 'share'], Average(first=21))
    """

    items: tuple[tuple[str, What], ...]
    epsilon: float | None
    bounds: Mapping[str, Bounds]
    burn_in: int | None

    def __init__(
        self,
        *what: What | Mapping[str, What],
        epsilon: float | None = None,
        bounds: Bounds | Mapping[str, Bounds] | None = None,
        burn_in: int | None = None,
    ) -> None:
        items = _named(what)
        if epsilon is not None and not 0 < epsilon < math.inf:
            raise DeclarationError(f"epsilon={epsilon}: must be positive and finite.")
        if burn_in is not None and not burn_in >= 0:
            raise DeclarationError(f"burn_in={burn_in}: a number of steps is needed.")
        names = [name for name, _ in items]
        if bounds is None:
            bounds = {}
        elif not isinstance(bounds, Mapping):
            bounds = dict.fromkeys(names, bounds)
        if unknown := sorted(set(bounds) - set(names)):
            raise DeclarationError(f"bounds for {unknown}: the declared expectations are {names}.")
        for name, pair in bounds.items():
            _check_bounds(name, pair)
        vars(self).update(items=items, epsilon=epsilon, bounds=dict(bounds), burn_in=burn_in)

    def with_burn_in(self, burn_in: int) -> Expectations:
        """The same with another burn-in."""
        return Expectations(dict(self.items), epsilon=self.epsilon, bounds=self.bounds, burn_in=burn_in)

    def average(self, num_steps: int) -> Average:
        """The schedule's release: averages over the steps after the burn-in.

        Raises:
            DeclarationError: when the burn-in leaves no step.
        """
        burn_in = num_steps // 5 if self.burn_in is None else self.burn_in
        if not burn_in < num_steps:
            raise DeclarationError(f"burn_in={burn_in}: leaves none of the {num_steps} steps.")
        return Average(first=burn_in + 1)


def _named(what: tuple[What | Mapping[str, What], ...]) -> tuple[tuple[str, What], ...]:
    items: list[tuple[str, What]] = []
    for position, item in enumerate(what):
        if isinstance(item, Mapping):
            items += [(str(name), value) for name, value in item.items()]
        elif isinstance(item, str):
            items.append((item, item))
        else:
            name = getattr(item, "__name__", "<lambda>")
            items.append((f"f{position}" if name == "<lambda>" else name, item))
    if not items:
        raise DeclarationError("Expectations(): name at least one site or function.")
    for name, value in items:
        if not isinstance(value, str) and not callable(value):
            raise DeclarationError(f"expectation {name!r}: a site's name or a function is needed.")
    names = [name for name, _ in items]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise DeclarationError(f"expectations {repeated}: each name once; give functions names with a dict.")
    return tuple(items)


def _check_bounds(name: str, pair: Bounds) -> None:
    try:
        low, high = (float(end) for end in pair)
    except (TypeError, ValueError):
        raise DeclarationError(f"bounds of {name!r}: a pair of numbers (a, b) is needed.") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise DeclarationError(f"bounds of {name!r} are ({low}, {high}): need finite a < b.")


def too_little_left(dataset: DataSet, cost: Fraction) -> str:
    """Why a release of this cost is refused, and what a data set has room for, in a ledger's words."""
    room, kept = dataset.remaining, dataset.filter
    offer = "Nothing more fits."
    if room > 0:
        whole, share = (at_least(float(room / one) * BELOW) for one in (kept.limit, cost))
        offer = f"What would fit: {dataset.what_fits()}, a share of {whole} of the whole squared budget; "
        offer += f"of a path {share} of its Langevin time."
    return (
        f"the budget of {dataset.name!r} (ε = {at_most(kept.epsilon)}, δ = {at_most(kept.delta)}) has "
        f"{kept.describe(room, left=True)} left; this release costs {kept.describe(cost)} "
        f"(ε = {at_most(kept.epsilon_of(cost))}). Nothing was run. {offer}"
    )


Array = npt.NDArray[np.float64]

SICK = "The chain is sick"
# Fewer states tell nothing of overshooting; of sizes and halves of chains, fewer draws.
_TELLING, _MANY = 8, 100
# A step that is right follows the state before it, or hardly: below this it overshoots the mode each time.
_OVERSHOT, _APART = -0.5, 1.05


def lag_one(states: Array) -> Array:
    """Autocorrelation of successive states ``(chains, draws, …)`` of each number; 0 where it never moves."""
    centred = states - states.mean(axis=1, keepdims=True)
    size = (centred**2).sum(axis=(0, 1))
    products = (centred[:, 1:] * centred[:, :-1]).sum(axis=(0, 1))
    return np.asarray(np.where(size > 0, products / np.where(size > 0, size, 1.0), 0.0))


def overshot(states: Array) -> npt.NDArray[np.bool_]:
    """Which numbers of ``(chains, draws, …)`` jump over their mode and back: their steps are too long."""
    if states.shape[1] < _TELLING:
        return np.zeros(states.shape[2:], dtype=bool)
    return np.asarray(lag_one(states) < _OVERSHOT)


def sickness(samples: Mapping[str, Array]) -> str:
    """What shows that draws ``(chains, draws, …)`` are not those of a posterior; ``""`` where nothing does.

    Steps that overshoot, an effective sample size that is none, halves of chains that disagree (r̂).
    """
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    found: dict[str, list[str]] = {}
    for name, values in samples.items():
        states = np.asarray(values, dtype=np.float64)
        if not np.all(np.isfinite(states)):
            found.setdefault("it diverged, to what is no number", []).append(name)
            continue
        if states.ndim < 2 or states.shape[1] < _TELLING or not states.size:
            continue
        if np.any(overshot(states)):
            found.setdefault("its steps overshoot", []).append(f"{name} {float(np.min(lag_one(states))):.2f}")
        if states.shape[1] < _MANY:
            continue
        with np.errstate(all="ignore"):  # of numbers that never move
            sizes, rhats = effective_sample_size(states), split_gelman_rubin(states)
        if np.any(np.asarray(sizes) <= 0):
            found.setdefault("its draws count for none", []).append(name)
        worst = float(np.nanmax(rhats, initial=1.0))
        if worst > _APART and math.isfinite(worst):
            found.setdefault("its halves or chains disagree (r̂)", []).append(f"{name} {worst:.2f}")
    if not found:
        return ""
    said = "; ".join(f"{what}: {', '.join(names[:5])}" for what, names in found.items())
    return f"{SICK}, and its draws are not those of the posterior: {said}."


if TYPE_CHECKING:
    from private_mcmc.data.answers import Exported


Samples = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False, repr=False)
class ReleasedStates:
    """Released states of one run, as values of the model's sites.

    Everything computed from them is post-processing and costs nothing.

    Attributes:
        samples: constrained sites and deterministics, arrays of shape ``(chains, kept, ...)``.
        steps: the step number of every kept state.
        num_warmup: states of the first ``num_warmup`` steps are released and paid for like the others,
            but left out of samples, summaries and ``posterior``.
        statement: what the release cost.
        provenance: where the randomness came from, as plain values.
        grid: the public grid the states were rounded to.

    Example:
        >>> from private_mcmc.release import ReleasedStates
        >>> price = pmc.accounting.gaussian(adjacency="replace_one", sensitivity=1.0, scale=2.0)
        >>> released = ReleasedStates({"w": np.array([[1.0, 2.0, 3.0]])}, (1, 2, 3), 1, price, {}, 2.0**-20)
        >>> released.get_samples()["w"].tolist(), float(released.expectation("w"))
        ([2.0, 3.0], 2.5)
    """

    samples: Samples
    steps: tuple[int, ...]
    num_warmup: int
    statement: Statement
    provenance: Mapping[str, str]
    grid: float

    @property
    def first_draw(self) -> int:
        """Index of the first state after warm-up."""
        return sum(step <= self.num_warmup for step in self.steps)

    def get_samples(self, group_by_chain: bool = False) -> Samples:
        """Draws of every site: ``(draws, ...)``, or ``(chains, draws, ...)`` with ``group_by_chain``."""
        kept = {name: value[:, self.first_draw :] for name, value in self.samples.items()}
        if group_by_chain:
            return kept
        return {name: value.reshape(-1, *value.shape[2:]) for name, value in kept.items()}

    def expectation(self, what: str | Callable[[Samples], Any]) -> Any:
        """Mean over the released draws of a site, or of a function of the dict of sites."""
        draws = self.get_samples()
        if isinstance(what, str):
            if what not in draws:
                raise DeclarationError(f"expectation of {what!r}: the released sites are {sorted(draws)}.")
            return np.mean(draws[what], axis=0)
        return np.mean(np.asarray(what(draws)), axis=0)

    def to_arviz(self, delta: float) -> Exported:
        """The released draws for ArviZ, warm-up in its own group, the statement an attribute."""
        attributes = {
            "privacy": self.statement.summary(delta),
            "privacy_statement": json.dumps(self.statement.to_dict()),
            "randomness": json.dumps(dict(self.provenance)),
            "grid": repr(self.grid),
        }
        before = {name: value[:, : self.first_draw] for name, value in self.samples.items()}
        draws, warmup = self.get_samples(group_by_chain=True), before if self.first_draw else None
        return for_arviz(draws_tree(draws, attributes, warmup=warmup))

    def print_summary(self, prob: float = 0.9) -> None:
        """NumPyro's table of means, intervals, effective sample sizes and R-hat, of released draws only."""
        from numpyro.diagnostics import print_summary

        draws = self.get_samples(group_by_chain=True)
        shortest = min(value.shape[1] for value in draws.values())
        if shortest < 4:
            raise DeclarationError(f"{shortest} released draws a chain: a summary needs at least 4.")
        if said := sickness(draws):
            # Sample sizes of such a chain are no numbers of draws.
            print(said)
            tails = [(1 - prob) / 2, (1 + prob) / 2]
            for name, value in draws.items():
                if not np.all(np.isfinite(value)):
                    print(f"{name}: no estimate")
                    continue
                flat = value.reshape(-1, *value.shape[2:])
                low, high = np.quantile(flat, tails, axis=0)
                print(f"{name}: mean {flat.mean(axis=0)}, {prob:.0%} from {low} to {high}")
            return
        print_summary(dict(draws), prob=prob)

    def __repr__(self) -> str:
        sites = ", ".join(f"{name}{value.shape[2:]}" for name, value in self.samples.items())
        chains, kept = next(iter(self.samples.values())).shape[:2]
        return f"ReleasedStates({chains} chains, {kept} states, sites {sites})\n{self.statement}"


@dataclass(frozen=True, eq=False)
class ReleasedValue:
    """One released expectation.

    Attributes:
        name: as declared.
        value: noised value.
        noise_sd: sd of the privacy noise, entry by entry.
    """

    name: str
    value: FloatArray
    noise_sd: FloatArray

    def to_dict(self) -> dict[str, object]:
        """Plain JSON types."""
        return {"value": self.value.tolist(), "noise_sd": self.noise_sd.tolist()}

    def __str__(self) -> str:
        return f"{self.name} = {self.value.round(6).tolist()} ± {self.noise_sd.max():.3g} (noise)"


@dataclass(frozen=True, eq=False)
class ReleasedExpectations:
    """Released expectations and what they cost; ``released["w"]`` is a value.

    Attributes:
        values: in the order of the declaration.
        statement: what they cost.
        provenance: where the run's randomness came from, as plain values.
    """

    values: tuple[ReleasedValue, ...]
    statement: Statement
    provenance: Mapping[str, str]

    def __getitem__(self, name: str) -> ReleasedValue:
        for value in self.values:
            if value.name == name:
                return value
        raise ReleaseError(
            f"{name!r} was not declared before the run; released were {[v.name for v in self.values]}. "
            "Another expectation needs another run, charged again."
        )

    def __repr__(self) -> str:
        lines = [str(value) for value in self.values]
        if self.provenance.get("source") == "caller":
            lines.append("seed chosen by the caller: reproducible, not private")
        return "\n".join([*lines, str(self.statement)])


@dataclass(frozen=True, eq=False)
class Sums:
    """What was released of one family; using it further costs nothing.

    Attributes:
        values: shape ``(1 + moments, cells)``: counts, sums of ``t``, sums of ``2t² − 1``, each with noise.
        noise_sd: of every number.
    """

    values: FloatArray
    noise_sd: float


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """A released ``XᵀX`` plus symmetric noise; using it further costs nothing.

    It certifies nothing about the rows: no norm bound, curvature or smoothness may be read from it.

    Attributes:
        matrix: shape ``(p, p)``, symmetric; eigenvalues may be negative, floor them at a public value.
        noise_sd: sd of a diagonal entry's noise; off the diagonal it is smaller by ``√2``.
        statement: what the release cost.
    """

    matrix: FloatArray
    noise_sd: float
    statement: Statement
