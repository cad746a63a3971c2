"""The settings of the soundness sweep: chains, exact posteriors and noised values, each at every (ε, δ).

Chains: kernels × releases × batch schemes × adjacencies × models. Averages of a chain are noised for the
worst data set, far above the chain's own noise only where rows push hard: they are swept on ``LOUD``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, get_args

from private_mcmc.kernels import AnisotropicLangevin, LangevinKernel, PrivateSGLD, PrivateULA
from private_mcmc.release import Expectations
from private_mcmc.schedule import Release
from private_mcmc.target import Adjacency, Target
from tests.soundness.attacks import PairedMechanism, chain_mechanism
from tests.soundness.sweep.noised import NOISED
from tests.soundness.sweep.posteriors import MODELS, posterior_mechanism
from tests.soundness.sweep.zoo import LOUD, PERSONS, ZOO, ZooModel

NUM_STEPS = 10
# (ε, δ) at which δ and ε are compared: one in the bulk, one in the tail.
POINTS = ((0.3, 0.1), (1.5, 1e-3))


@dataclass(frozen=True)
class Setting:
    """One mechanism of the sweep; it is compared at every one of ``POINTS``.

    ``share``: runs as a multiple of the sweep's own number, more where a run costs next to nothing.
    """

    model: str
    kernel: str
    release: str
    adjacency: Adjacency
    share: float = 1.0

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.model}, {self.kernel}, {self.release}, {self.adjacency}"

    @property
    def family(self) -> str:
        """What kind of release it is."""
        if self.release in MECHANISMS:
            return "values with noise"
        if self.release == "posterior":
            return "exact posterior draw"
        return "averages of a chain" if self.release in AVERAGES else f"states of a chain: {self.release}"

    def build(self) -> PairedMechanism:
        """The mechanism; nothing is traced or compiled before."""
        if self.release in MECHANISMS:
            return MECHANISMS[self.release](self.adjacency)
        if self.release == "posterior":
            return posterior_mechanism(self.model, self.adjacency)
        swept = KERNELS[self.kernel]
        zoo = LOUD if self.release in AVERAGES else (ZOO | PERSONS)[self.model]
        return chain_mechanism(
            swept.make(zoo),
            rows=zoo.rows,
            target=Target(2.0, 1e-3, self.adjacency),
            release=AVERAGES[self.release] if self.release in AVERAGES else STATES[self.release],
            num_steps=NUM_STEPS,
            n=swept.num_rows or (1 if self.adjacency == "replace_one" else 2),
        )


@dataclass(frozen=True)
class SweptKernel:
    """A kernel made for a model of the zoo, and the adjacencies, releases and rows it is swept with."""

    make: Callable[[ZooModel], LangevinKernel]
    adjacencies: tuple[Adjacency, ...] = get_args(Adjacency)
    releases: tuple[str, ...] = ("last", "path", "steps")
    averages: bool = True
    num_rows: int | None = None


def _with(**fields: Any) -> Callable[[ZooModel], LangevinKernel]:
    return lambda zoo: PrivateULA(zoo.model, step_size=zoo.step_size, clip=zoo.clip, **fields)


def _full_metric(zoo: ZooModel) -> LangevinKernel:
    places = range(zoo.dim)
    return _with(preconditioner=tuple(tuple(1.0 if i == j else 0.6 for j in places) for i in places))(zoo)


def _decreasing(zoo: ZooModel) -> LangevinKernel:
    steps = tuple(2 * zoo.step_size / (1 + index / 4) for index in range(NUM_STEPS))
    return PrivateULA(zoo.model, step_size=steps, clip=zoo.clip)


def _anisotropic(zoo: ZooModel) -> LangevinKernel:
    noise = tuple(1.0 + index for index in range(zoo.dim))
    return AnisotropicLangevin(zoo.model, step_size=zoo.step_size, clip=zoo.clip, noise=noise)


def _boxed(zoo: ZooModel) -> LangevinKernel:
    """Every coordinate clipped apart, the last at a tenth of the first, under the noise that is best then."""
    clips = tuple(zoo.clip / (1 + 9 * index / max(1, zoo.dim - 1)) for index in range(zoo.dim))
    return AnisotropicLangevin(zoo.model, step_size=zoo.step_size, clips=clips, noise=clips)


KERNELS = {
    "plain": SweptKernel(_with()),
    "tempered": SweptKernel(_with(temper=0.5)),
    "diagonal metric": SweptKernel(
        lambda zoo: _with(preconditioner=tuple(0.5 + index for index in range(zoo.dim)))(zoo)
    ),
    "full metric": SweptKernel(_full_metric),
    "decreasing steps": SweptKernel(_decreasing),
    "anisotropic noise": SweptKernel(_anisotropic, averages=False),
    "coordinates clipped": SweptKernel(_boxed, averages=False),
    "poisson batches": SweptKernel(
        lambda zoo: PrivateSGLD(zoo.model, step_size=zoo.step_size, clip=zoo.clip, batch_size=1), num_rows=3
    ),
}


STATES: dict[str, Release] = {"last": "last", "path": "path", "steps": (2, 5, NUM_STEPS)}

_BOUNDS = (-60.0, 60.0)

AVERAGES: dict[str, Expectations] = {
    "expectations": Expectations(LOUD.site, burn_in=1),
    "bounded expectations": Expectations(LOUD.site, burn_in=1, bounds=_BOUNDS),
    "mean and square": Expectations(
        LOUD.site, {"square": lambda sites: sites[LOUD.site] ** 2}, burn_in=1, bounds=_BOUNDS
    ),
}

MECHANISMS = NOISED

# Runs that ask OpenDP for noise one at a time, or as often as NumPy draws.
_SLOW, _FAST = 0.25, 5.0
_SHARES = {"second moments": _SLOW}


def settings() -> Iterator[Setting]:
    """Every combination that is certified."""
    for model, (kernel, swept) in product(ZOO, KERNELS.items()):
        for release, adjacency in product(swept.releases, swept.adjacencies):
            yield Setting(model, kernel, release, adjacency)
    for model, (kernel, swept) in product(PERSONS, KERNELS.items()):
        if kernel == "poisson batches" or (kernel == "plain" and "intercepts" not in model):
            for release, adjacency in product(("last", "path"), swept.adjacencies):
                yield Setting(model, kernel, release, adjacency)
    # Laplace averages for every kernel, the other kinds for all rows and for Poisson batches.
    for (kernel, swept), release in product(KERNELS.items(), AVERAGES):
        if swept.averages and (release == "expectations" or kernel in ("plain", "poisson batches")):
            for adjacency in swept.adjacencies:
                yield Setting("loud mean", kernel, release, adjacency, _SLOW)
    for release, adjacency in product(MECHANISMS, get_args(Adjacency)):
        yield Setting("rows", "no chain", release, adjacency, _SHARES.get(release, _FAST))
    for model, adjacency in product(MODELS, get_args(Adjacency)):
        # Of a row that is present or not, log-concavity certifies, which is the Normal's alone here.
        if adjacency == "replace_one" or model == "Normal mean":
            yield Setting(model, "exact draws", "posterior", adjacency, _FAST)
