"""One statement of every kind, for tests that must hold for all of them."""

import functools
import math
from dataclasses import replace

from private_mcmc import accounting as acc
from private_mcmc.accounting.conjugate import posterior_conjugate
from private_mcmc.schedule import Average
from private_mcmc.target import Unit
from tests.schedules import schedule as schedule

# A word of the theorem of each bound of a run.
BOUNDS = ("path of Gaussian", "rows in a box", "shifted interpolation", "Poisson-sampled")
CONVEX = acc.Curvature(strong_convexity=1.0, smoothness=50.0)

# Of a box so wide that rounding in it counts, and of a prior whose slopes are known there.
KEPT = {"within": 1e5, "rounding": 2e-7}
SLOPES = acc.Curvature(strong_convexity=1.0, smoothness=50.0, prior_smoothness=2.0, prior_slope=3.0)


def varying(steps: int = 60) -> tuple[float, ...]:
    return tuple(0.01 / (1 + k / 30) for k in range(steps))


SCHEDULES = {
    "path": schedule(),
    "last": schedule(release="last"),
    "states": schedule(release=(10, 30, 60), num_chains=3),
    "last, varying": schedule(release="last", step_size=varying()),
    "states, varying": schedule(release=(9, 60), step_size=varying()),
    "last, long": schedule(release="last", num_steps=4000),
    "last, preconditioned": schedule(release="last", preconditioner=((2.0, 0.5), (0.5, 1.0))),
    "last, anisotropic": schedule(release="last", noise=(1.0, 4.0)),
    "path, anisotropic in a metric": schedule(preconditioner=(2.0, 0.5), noise=(0.5, 3.0)),
    "path, box": schedule(clip=1.0, clips=(0.5, 0.1), noise=(1.0, 0.2), preconditioner=(1.0, 0.25)),
    "last, box, zero out": schedule(clip=0.6, clips=(0.5, 0.1), adjacency="zero_out", release="last"),
    "path, zero out": schedule(adjacency="zero_out"),
    "path, two chains": schedule(num_chains=2),
    "last, zero out": schedule(adjacency="zero_out", release="last"),
    "last, add remove": schedule(adjacency="add_remove", release="last"),
    "path, add remove": schedule(adjacency="add_remove"),
    "poisson path": schedule(rate=0.1, adjacency="add_remove"),
    "poisson path, replaced": schedule(rate=0.1, num_chains=2),
    "poisson path, varying": schedule(rate=0.1, step_size=varying(8), num_steps=8),
    "poisson last": schedule(rate=0.1, release="last", num_steps=500, adjacency="zero_out"),
    "poisson last, replaced": schedule(rate=0.1, release="last", num_steps=300, num_chains=2),
}


def exact_posteriors() -> dict[str, acc.Statement]:
    """Every conjugate rule."""
    rows = {"n": 30, "epsilons": (0.2,)}
    return {
        "Beta-Binomial": posterior_conjugate("beta_binomial", a=2.0, b=3.0, trials=4, temper=0.1, **rows),
        "Dirichlet-categorical": posterior_conjugate(
            "dirichlet_categorical", concentration=(1.0, 2.0, 3.0), temper=0.3, **rows
        ),
        "Gamma-Poisson": posterior_conjugate("gamma_poisson", shape=3.0, largest=4, temper=0.1, **rows),
    }


def stages() -> dict[str, acc.Statement]:
    """Steps and stages that follow one another."""
    counted = acc.gaussian(adjacency="zero_out", sensitivity=1.0, scale=4.0, what="counts").of("counts")
    path = acc.langevin_statement(schedule(adjacency="zero_out")).of("path")
    return {
        "stages": acc.adaptive(1.5, "zero_out", (counted, path)),
        "a budget without stages yet": acc.adaptive(0.7, "add_remove", (), num_rows=100),
    }


PATIENT = Unit("patient", 5)


def persons() -> dict[str, acc.Statement]:
    """Of persons with several rows: runs, averages, posteriors, and what is composed of them."""
    many = schedule(unit=PATIENT, num_rows=10**6, num_steps=8)
    poisson = schedule(unit=PATIENT, rate=0.1, adjacency="add_remove")
    path = acc.langevin_statement(many).of("path")
    three = acc.langevin_statement(schedule(unit=Unit("patient", 3), release="last"), CONVEX).of("last")
    concave = acc.of_unit(acc.posterior_strongly_log_concave(2.0, 5.0, "replace_one"), PATIENT)
    return {
        "path of persons": path,
        "poisson path of persons": acc.langevin_statement(poisson),
        "average of persons": average(unit=PATIENT),
        "posterior of persons, concave": concave,
        "composition of persons": acc.compose(path, three, concave),
        "stages of persons": acc.adaptive(15.0, "replace_one", (path, three), PATIENT),
    }


def average(values=None, proved=CONVEX, **changes) -> acc.Statement:
    """Averages of hidden states, released with noise that is fit for them."""
    item = schedule(release=Average(21), **changes)
    distance = acc.average_sensitivity(item, proved)
    if values is None:
        values = tuple(
            (slope, limit, min(slope * distance, limit))
            for slope, limit in ((1.0, math.inf), (0.5, 3.0), (2.0, 1e-3))
        )
    shared = {"adjacency": item.adjacency, "what": "averages", "num_rows": item.num_rows}
    mechanism = acc.laplace(0.5, sensitivity=3.0, scale=6.0, dim=3, **shared)
    return acc.noised_average(mechanism, item, proved, distance=distance, values=values, joint=3.0)


def averages() -> dict[str, acc.Statement]:
    """Every kind of noise, of bound on a value, and of batches."""
    kept = ((math.inf, 2.0, 2.0),)
    return {
        "average, Laplace": average(),
        "average, Poisson": average(rate=0.1, adjacency="add_remove"),
        "average, varying": average(adjacency="zero_out", step_size=varying()),
        "average, three chains": average(num_chains=3),
        "average, kept in a range": average(values=kept, proved=acc.Curvature()),
    }


@functools.cache
def statements() -> dict[str, acc.Statement]:
    """Made once in a process: some of them take seconds. Nobody changes it."""
    found = {name: acc.langevin_statement(item, CONVEX) for name, item in SCHEDULES.items()}
    for name in ("last", "states, varying", "poisson last, replaced"):
        item = replace(SCHEDULES[name], **KEPT)
        found[f"{name}, kept in a box"] = acc.langevin_statement(item, SLOPES)
    found["average, kept in a box"] = average(proved=SLOPES, **KEPT)
    found["average, anisotropic, kept in a box"] = average(proved=SLOPES, noise=(1.0, 4.0), **KEPT)
    found["nothing proved"] = acc.langevin_statement(schedule(release="last"))
    found["laplace"] = acc.laplace(0.5, adjacency="replace_one", sensitivity=0.2, scale=0.4)
    found["laplace, grid"] = acc.laplace(
        0.5, adjacency="replace_one", sensitivity=0.2, scale=0.4001, grid=1e-6, dim=3, what="means"
    )
    found["gaussian"] = acc.gaussian(adjacency="replace_one", sensitivity=0.2, scale=0.4, dim=3)
    found["posterior, concave"] = acc.posterior_strongly_log_concave(2.0, 5.0, "replace_one")
    found["posterior, gradient"] = acc.posterior_bounded_gradient(0.6, 2.0, "add_remove", 50)
    for adjacency in ("add_remove", "zero_out"):
        found[f"posterior, concave, {adjacency}"] = acc.posterior_strongly_log_concave(
            2.0, 5.0, adjacency, 50
        )
        counted = {"adjacency": adjacency, "sensitivity": 1.0, "scale": 2.0, "num_rows": 50}
        found[f"gaussian, {adjacency}"] = acc.gaussian(**counted, what="counts")
        found[f"laplace, {adjacency}"] = acc.laplace(0.5, **counted, what="counts")
    found["posterior, gradient, zero out"] = acc.posterior_bounded_gradient(0.6, 2.0, "zero_out")
    found |= exact_posteriors() | stages()
    found |= averages() | persons()
    found["composition"] = acc.compose(
        found["path"], found["laplace"], found["posterior, concave"], found["poisson path, replaced"]
    )
    found["nested composition"] = acc.compose(found["composition"], found["gaussian"])
    return found
