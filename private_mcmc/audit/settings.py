"""The settings of the soundness sweep: kernels × releases × adjacencies × models × (ε, δ)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import get_args

from private_mcmc.audit.chains import chain_mechanism
from private_mcmc.audit.mechanism import Mechanism
from private_mcmc.audit.zoo import ZOO, ZooModel
from private_mcmc.kernels import PrivateULA
from private_mcmc.release import Expectations
from private_mcmc.schedule import Release
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


def _plain(zoo: ZooModel) -> PrivateULA:
    return PrivateULA(zoo.model, step_size=zoo.step_size, clip=zoo.clip)


def _tempered(zoo: ZooModel) -> PrivateULA:
    return PrivateULA(zoo.model, step_size=2 * zoo.step_size, clip=zoo.clip, temper=0.5)


def _preconditioned(zoo: ZooModel) -> PrivateULA:
    diagonal = tuple(0.5 + index for index in range(zoo.dim))
    return PrivateULA(zoo.model, step_size=zoo.step_size, clip=zoo.clip, preconditioner=diagonal)


def _full_metric(zoo: ZooModel) -> PrivateULA:
    matrix = tuple(tuple(1.0 if i == j else 0.6 for j in range(zoo.dim)) for i in range(zoo.dim))
    return PrivateULA(zoo.model, step_size=zoo.step_size, clip=zoo.clip, preconditioner=matrix)


def _decreasing(zoo: ZooModel) -> PrivateULA:
    steps = tuple(2 * zoo.step_size / (1 + index / 4) for index in range(NUM_STEPS))
    return PrivateULA(zoo.model, step_size=steps, clip=zoo.clip)


KERNELS: dict[str, Callable[[ZooModel], PrivateULA]] = {
    "plain": _plain,
    "tempered": _tempered,
    "diagonal metric": _preconditioned,
    "full metric": _full_metric,
    "decreasing steps": _decreasing,
}


def _releases(zoo: ZooModel) -> dict[str, Release | Expectations]:
    return {
        "last": "last",
        "path": "path",
        "steps": (2, 5, NUM_STEPS),
        "expectations": Expectations(zoo.site, burn_in=1),
    }


def _rows(adjacency: Adjacency) -> int:
    return 1 if adjacency == "replace_one" else 2


def settings() -> Iterator[Setting]:
    """Every combination; nothing is built or compiled before ``build`` is called."""
    for (model, zoo), (kernel, make) in product(ZOO.items(), KERNELS.items()):
        for release, adjacency in product(_releases(zoo), get_args(Adjacency)):
            yield Setting(model, kernel, release, adjacency, _builder(zoo, make, release, adjacency))


def _builder(
    zoo: ZooModel, make: Callable[[ZooModel], PrivateULA], release: str, adjacency: Adjacency
) -> Callable[[], Mechanism]:
    def build() -> Mechanism:
        return chain_mechanism(
            make(zoo),
            rows=zoo.rows,
            target=Target(2.0, 1e-3, adjacency),
            release=_releases(zoo)[release],
            num_steps=NUM_STEPS,
            n=_rows(adjacency),
        )

    return build
