"""The settings of the soundness sweep: kernels × releases × adjacencies × models × (ε, δ)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, get_args

from private_mcmc.audit.chains import chain_mechanism
from private_mcmc.audit.mechanism import Mechanism
from private_mcmc.audit.zoo import ZOO, ZooModel
from private_mcmc.kernels import AnisotropicLangevin, LangevinKernel, PrivateSGLD, PrivateULA
from private_mcmc.release import Expectations
from private_mcmc.schedule import BatchScheme, Release
from private_mcmc.target import Adjacency, Target

NUM_STEPS = 10
# (ε, δ) at which δ and ε are compared: one in the bulk, one in the tail.
POINTS = ((0.3, 0.1), (1.5, 1e-3))


@dataclass(frozen=True)
class Setting:
    """One mechanism of the sweep; it is compared at every one of ``POINTS``."""

    model: str
    kernel: str
    release: str
    adjacency: Adjacency
    build: Callable[[], Mechanism]

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.model}, {self.kernel}, {self.release}, {self.adjacency}"


@dataclass(frozen=True)
class SweptKernel:
    """A kernel made for a model of the zoo, and the adjacencies, releases and rows it is swept with."""

    make: Callable[[ZooModel], LangevinKernel]
    adjacencies: tuple[Adjacency, ...] = get_args(Adjacency)
    releases: tuple[str, ...] = ("last", "path", "steps", "expectations")
    num_rows: int | None = None


def _with(**fields: Any) -> Callable[[ZooModel], LangevinKernel]:
    return lambda zoo: PrivateULA(zoo.model, step_size=zoo.step_size, clip=zoo.clip, **fields)


def _batches(scheme: BatchScheme, **fields: Any) -> Callable[[ZooModel], LangevinKernel]:
    return lambda zoo: PrivateSGLD(
        zoo.model, step_size=zoo.step_size, clip=zoo.clip, scheme=scheme, batch_size=1, **fields
    )


def _diagonal(zoo: ZooModel) -> LangevinKernel:
    return _with(preconditioner=tuple(0.5 + index for index in range(zoo.dim)))(zoo)


def _full_metric(zoo: ZooModel) -> LangevinKernel:
    places = range(zoo.dim)
    return _with(preconditioner=tuple(tuple(1.0 if i == j else 0.6 for j in places) for i in places))(zoo)


def _decreasing(zoo: ZooModel) -> LangevinKernel:
    steps = tuple(2 * zoo.step_size / (1 + index / 4) for index in range(NUM_STEPS))
    return PrivateULA(zoo.model, step_size=steps, clip=zoo.clip)


def _anisotropic(zoo: ZooModel) -> LangevinKernel:
    noise = tuple(1.0 + index for index in range(zoo.dim))
    return AnisotropicLangevin(zoo.model, step_size=zoo.step_size, clip=zoo.clip, noise=noise)


_FULL_SLOTS: tuple[Adjacency, ...] = ("replace_one", "zero_out")

KERNELS = {
    "plain": SweptKernel(_with()),
    "tempered": SweptKernel(_with(temper=0.5)),
    "diagonal metric": SweptKernel(_diagonal),
    "full metric": SweptKernel(_full_metric),
    "decreasing steps": SweptKernel(_decreasing),
    "projected": SweptKernel(_with(radius=1.0)),
    "anisotropic noise": SweptKernel(_anisotropic, releases=("last", "path", "steps")),
    "poisson batches": SweptKernel(_batches("poisson"), num_rows=3),
    "fixed batches": SweptKernel(_batches("fixed"), _FULL_SLOTS, num_rows=3),
    "cyclic batches": SweptKernel(_batches("cyclic"), _FULL_SLOTS, num_rows=3),
    "truncated batches": SweptKernel(
        _batches("truncated_poisson", max_batch=2), ("add_remove",), ("path",), num_rows=3
    ),
}


def _releases(zoo: ZooModel) -> dict[str, Release | Expectations]:
    return {
        "last": "last",
        "path": "path",
        "steps": (2, 5, NUM_STEPS),
        "expectations": Expectations(zoo.site, burn_in=1),
    }


def settings() -> Iterator[Setting]:
    """Every combination that is certified; nothing is built or compiled before ``build`` is called."""
    for (model, zoo), (kernel, swept) in product(ZOO.items(), KERNELS.items()):
        for release, adjacency in product(swept.releases, swept.adjacencies):
            yield Setting(model, kernel, release, adjacency, _builder(zoo, swept, release, adjacency))


def _builder(
    zoo: ZooModel, swept: SweptKernel, release: str, adjacency: Adjacency
) -> Callable[[], Mechanism]:
    def build() -> Mechanism:
        return chain_mechanism(
            swept.make(zoo),
            rows=zoo.rows,
            target=Target(2.0, 1e-3, adjacency),
            release=_releases(zoo)[release],
            num_steps=NUM_STEPS,
            n=swept.num_rows or (1 if adjacency == "replace_one" else 2),
        )

    return build
