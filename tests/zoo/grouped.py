"""Groups, pairs, curves: what statisticians put into a linear predictor, and the same written otherwise."""

from __future__ import annotations

from typing import Any

import numpyro
import numpyro.distributions as dist

from private_mcmc.domains import Binary, Box, Categories, Rows
from private_mcmc.target import Target
from tests.zoo.entry import Entry, Pair, log_sigmoid, normal

GROUPS = Rows(group=Categories(4), y=Binary())
SLOPES = Rows(x=Box(-1, 1), group=Categories(4), y=Binary())
CURVE = Rows(x=Box(-1, 1), y=Binary())
MATCHES = Rows(home=Categories(6), away=Categories(6), y=Binary())
ANSWERS = Rows(person=Categories(10), item=Categories(5), y=Binary())
TARGET = Target(1.0, 1e-6)


def _effects(sd: float) -> Any:
    with numpyro.plate("groups", 4):
        return numpyro.sample("b", dist.Normal(0, sd))


def around_a_mean(group: Any, y: Any = None) -> None:
    """Effects around an unknown mean, with known spread: jointly normal, whatever way it is centred."""
    mean = numpyro.sample("mean", dist.Normal(0, 0.2))
    with numpyro.plate("groups", 4):
        b = numpyro.sample("b", dist.Normal(mean, 0.2))
    with numpyro.plate("rows", group.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=b[group]), obs=y)


def slopes(x: Any, group: Any, y: Any = None) -> None:
    """An effect and a slope of its own for every group."""
    a = _effects(0.2)
    with numpyro.plate("slopes", 4):
        s = numpyro.sample("s", dist.Normal(0, 0.2))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=a[group] + s[group] * x), obs=y)


def cubic(x: Any, y: Any = None) -> None:
    """A cubic curve through zero, term by term."""
    w = numpyro.sample("w", dist.Normal(0, 0.2).expand([3]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=w[0] * x**3 + w[1] * x**2 + w[2] * x), obs=y)


def bradley_terry(home: Any, away: Any, y: Any = None) -> None:
    """Who beats whom, by the difference of two strengths."""
    strength = numpyro.sample("strength", dist.Normal(0, 0.1).expand([6]).to_event(1))
    with numpyro.plate("rows", home.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=strength[home] - strength[away]), obs=y)


def rasch(person: Any, item: Any, y: Any = None) -> None:
    """Item response: ability less difficulty."""
    ability = numpyro.sample("ability", dist.Normal(0, 0.1).expand([10]).to_event(1))
    difficulty = numpyro.sample("difficulty", dist.Normal(0, 0.1).expand([5]).to_event(1))
    with numpyro.plate("rows", person.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=ability[person] - difficulty[item]), obs=y)


def discriminating(person: Any, item: Any, y: Any = None) -> None:
    """Items that discriminate: a product of latents."""
    ability = numpyro.sample("ability", dist.Normal(0, 0.1).expand([10]).to_event(1))
    slope = numpyro.sample("slope", dist.LogNormal(0, 0.1).expand([5]).to_event(1))
    with numpyro.plate("rows", person.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=slope[item] * ability[person]), obs=y)


def _pair(sd: float, temper: float) -> Pair:
    """The predictor of one row that shares no latent with the others."""
    return Pair(
        lambda t: normal(t, sd) + temper * log_sigmoid(t),
        lambda t: normal(t, sd) + temper * log_sigmoid(-t),
        -12 * sd,
        12 * sd,
    )


ENTRIES = (
    # Mean and effects are jointly normal with precision at least 4.28: 2·0.2/√4.28 = 0.193-GDP.
    Entry("groups_around_a_mean", around_a_mean, GROUPS, "private", "strongly log-concave", temper=0.2),
    # A row's design is (1, x) in its group's place: 2·0.3·√2·0.2 = 0.17-GDP.
    Entry("groups_with_slopes", slopes, SLOPES, "private", _pair(0.2, 0.3), temper=0.3),
    # Three powers of x in [−1, 1], of norm √3: 2·0.25·√3·0.2 = 0.173-GDP.
    Entry("cubic", cubic, CURVE, "private", _pair(0.2 * 3**0.5, 0.25), temper=0.25),
    # Two strengths enter with signs, of norm at most 2: 2·0.5·2·0.1 = 0.2-GDP.
    Entry("bradley_terry", bradley_terry, MATCHES, "private", _pair(0.02**0.5, 0.5), temper=0.5),
    # One ability and one difficulty enter, of norm √2: 2·0.7·√2·0.1 = 0.2-GDP.
    Entry("rasch", rasch, ANSWERS, "private", _pair(0.02**0.5, 0.7), temper=0.7),
    # A product of latents is no affine predictor.
    Entry("discriminating_items", discriminating, ANSWERS, "unknown", "logits of BernoulliLogits"),
)
