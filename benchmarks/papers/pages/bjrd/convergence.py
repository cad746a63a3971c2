"""Section 3 on a Gaussian model: a run and its posterior, and noised averages."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.papers import mixing, transfer
from benchmarks.papers.bounds import bjrd
from benchmarks.papers.pages import normals
from benchmarks.papers.pages.page import Claim, Section
from private_mcmc.accounting import gdp
from private_mcmc.auditing.auditing import bound_at_best, epsilon_from_errors
from private_mcmc.report import Facts, Heading, Line, Plot, Text, floats, number

EPSILON, STEP, PRIOR, ROWS, STEPS = 1.0, 0.01, 1.0, 20, 100
_PRECISION = PRIOR + ROWS
_TRANSFER = "benchmarks/papers/transfer.py"


def _chain(pull: float, steps: int) -> normals.Normal:
    """Law of ``x' = x − γ(ax − pull) + N(0, 2γ)`` from 0: the unadjusted Langevin algorithm."""
    rho = 1 - STEP * _PRECISION
    variance = 2 * STEP * (1 - rho ** (2 * steps)) / (1 - rho**2)
    return pull / _PRECISION * (1 - rho**steps), math.sqrt(variance)


def from_posterior() -> Section:
    """Proposition 3.2: rows in [−1, 1]; the run's exact δ beside the posterior's plus the distance."""
    posterior_m = 2 / math.sqrt(_PRECISION)
    counts = (5, 10, 20, 40, 80, 160)
    bounds, exact = [], []
    for steps in counts:
        mean, sd = _chain(float(ROWS), steps)
        _, other = _chain(ROWS - 2.0, steps)
        # Largest where the posterior mean is: all rows at 1.
        far = normals.total_variation((mean, sd), (ROWS / _PRECISION, _PRECISION**-0.5))
        known = transfer.PosteriorDistance(min(1.0, far), "two normal laws, all rows at the bound")
        bounds.append(transfer.delta_of_run(EPSILON, gdp.delta(posterior_m, EPSILON), known))
        shift = mean - _chain(ROWS - 2.0, steps)[0]
        exact.append(gdp.delta(shift / other, EPSILON))
    claim = Claim(
        "Proposition 3.2",
        "a run near a private posterior is private: δ + ζR(n)(e^ε + 1)",
        f"δ at ε = {EPSILON:g} after {counts[-1]} steps",
        "at most",
        bounds[-1],
        exact[-1],
        "exact",
        "the distance of one law to its posterior is charged to the pair; the step's bias alone costs "
        "so much",
        f"{_TRANSFER} `delta_of_run`",
        "benchmarks/papers/tests/test_transfer.py::test_propositions_3_2_and_3_4_hold_on_random_finite_laws",
    )
    xs = floats(counts)
    drawn = (
        Line(xs, floats(bounds), "Proposition 3.2", 1, "dashed", marker=True),
        Line(xs, floats(exact), "exact δ of the run", 0, marker=True),
        Line(xs, tuple(gdp.delta(posterior_m, EPSILON) for _ in xs), "exact δ of the posterior", 2, "dotted"),
    )
    words = "δ of the run against its number of steps: the bound from convergence, the exact value."
    return Section(
        (claim, _long_run(posterior_m)),
        (
            Heading("Proposition 3.2: from the posterior to the run"),
            Text("Twenty rows `y ~ N(θ, 1)` in [−1, 1], prior `N(0, 1)`, step 0.01: every law is normal."),
            Plot("A run of a private posterior", "steps", "δ at ε = 1", drawn, words, x_log=True, y_log=True),
        ),
    )


def _long_run(posterior_m: float) -> Claim:
    """Corollary 3.3: a chain that comes as near to its posterior as its step allows, and what it leaks."""
    step = 1e-5
    spread = math.sqrt(2 * step / (1 - (1 - step * _PRECISION) ** 2))
    bias = normals.total_variation((0.0, spread), (0.0, _PRECISION**-0.5))
    least = gdp.delta(posterior_m, EPSILON) - (1 + math.exp(EPSILON)) * bias
    return Claim(
        "Corollary 3.3",
        "a run that comes near a posterior is in the end no more private than it: δ − (1 + e^ε)ζr",
        f"δ at ε = {EPSILON:g} that a long run reaches, step {step:g}",
        "at least",
        least,
        gdp.delta(2 / _PRECISION / spread, EPSILON),
        "exact",
        "the distance of the chain's own law to the posterior is charged to both data sets",
        f"{_TRANSFER} `delta_of_run`",
        "benchmarks/papers/tests/test_transfer.py::test_propositions_3_2_and_3_4_hold_on_random_finite_laws",
    )


def not_private(chains: int) -> Section:
    """Proposition 3.4: one row is unbounded, the run is clipped; how far it is from what it targets."""
    clip, run_m = 0.5, math.sqrt(STEPS * STEP / 2)
    delta_run = gdp.delta(run_m, EPSILON)
    outliers = np.array([1.0, 3.0, 10.0, 30.0, 100.0])
    bounds, seen = [], []
    rng = np.random.default_rng(0)
    home = _distance(_clipped(rng, 0.0, clip, chains), (0.0, _PRECISION**-0.5))
    for outlier in outliers:
        delta = gdp.delta(outlier / math.sqrt(_PRECISION), EPSILON)
        bounds.append(transfer.run_distance_at_least(EPSILON, delta, delta_run) if delta > delta_run else 0.0)
        target = (outlier / _PRECISION, _PRECISION**-0.5)
        seen.append(max(home, _distance(_clipped(rng, outlier, clip, chains), target)))
    claim = Claim(
        "Proposition 3.4",
        "a private run of a posterior that is not private is far from it",
        f"total variation on one of two data sets, a row at {outliers[-1]:g}",
        "at least",
        bounds[-1],
        seen[-1],
        "measured",
        f"the bound never exceeds 1/(e^ε + 1) = {1 / (math.e + 1):.3g}; {chains:,} chains, histogram",
        "`benchmarks.papers.transfer.run_distance_at_least`",
        "benchmarks/papers/tests/test_transfer.py::test_propositions_3_2_and_3_4_hold_on_random_finite_laws",
    )
    xs = floats(outliers)
    drawn = (
        Line(xs, floats(seen), "measured, the farther data set", 0, marker=True),
        Line(xs, floats(bounds), "at least, by Proposition 3.4", 1, "dashed", marker=True),
    )
    words = "Distance of a clipped, private run to the posterior it targets, as one row moves away."
    return Section(
        (claim,),
        (
            Heading("Proposition 3.4: a posterior that is not private"),
            Text(
                f"The same model, a row without bounds. The run clips every row's gradient at {clip:g} "
                "and its path is "
                f"({EPSILON:g}, {number(delta_run, 3)})-private whatever the rows are; the posterior "
                "follows the row."
            ),
            Plot("What privacy costs here", "the row", "total variation", drawn, words, x_log=True),
        ),
    )


def _clipped(rng: np.random.Generator, outlier: float, clip: float, chains: int) -> np.ndarray:
    x = np.zeros(chains)
    for _ in range(STEPS):
        rows = (ROWS - 1) * np.clip(x, -clip, clip) + np.clip(x - outlier, -clip, clip)
        x = x - STEP * (PRIOR * x + rows) + math.sqrt(2 * STEP) * rng.normal(size=chains)
    return x


def _distance(states: np.ndarray, target: normals.Normal) -> float:
    """Total variation of a histogram of 60 cells to a normal law: a lower bound but for counting errors."""
    from scipy.special import ndtr

    edges = np.linspace(target[0] - 5 * target[1], target[0] + 5 * target[1], 61)
    inside = np.histogram(states, edges)[0] / len(states)
    expected = np.diff(ndtr((edges - target[0]) / target[1]))
    out = abs((1 - inside.sum()) - (1 - expected.sum()))
    return float((np.abs(inside - expected).sum() + out) / 2)


def averages(chains: int) -> Section:
    """Propositions 3.7 and 3.10: the average of a run with Laplace noise; its exact ε, and an audit."""
    kept, burn = 100, 20
    rho = 1 - STEP * _PRECISION
    apart = [0.0]
    for _ in range(burn + kept):
        apart.append(rho * apart[-1] + 2 * STEP)
    eta = float(np.mean(apart[burn + 1 :]))
    scale = eta / EPSILON
    rng = np.random.default_rng(1)
    means = [_average(rng, pull, burn, kept, chains) for pull in (float(ROWS), ROWS - 2.0)]
    noised = [mean + rng.laplace(scale=scale, size=chains) for mean in means]
    tail = float(means[1].mean()) - 60 * scale
    sd = float(means[0].std())
    centres = float(means[1].mean()) + eta, float(means[1].mean())
    logs = [normals.log_density(tail, centre, sd, scale) for centre in centres]
    audited = _audit(noised)
    known = mixing.by_convergence(
        step_size=STEP,
        strong_convexity=_PRECISION,
        smoothness=_PRECISION,
        dim=1,
        lipschitz=1.0,
        kept=kept,
        burn_in=burn,
        start_distance=1.0 + math.sqrt(2 / math.pi / _PRECISION),
        sensitivity=2.0,
        failure=1e-6,
    )
    injected = float(noised[0].var() - means[0].var())
    shared = {
        "code": f"{_TRANSFER} `noised_average`",
        "test": "benchmarks/papers/tests/test_transfer.py::test_averages",
    }
    claims = (
        Claim(
            "Proposition 3.7",
            "a run's average with Laplace(η/ε) noise is (ε, δ + δ̃)-private",
            "log ratio of densities far out",
            "at most",
            EPSILON,
            abs(logs[1] - logs[0]),
            "exact",
            "reached in the tail; with equal noise the averages differ by η surely: δ̃ = 0 (audit: ε "
            f"≥ {audited:.3g})",
            **shared,
        ),
        Claim(
            "after Assumption 3.6",
            "Laplace noise adds η/ε to the variance",
            "variance added",
            "equals",
            bjrd.laplace_variance(eta, EPSILON),
            2 * scale**2,
            "exact",
            f"2(η/ε)², not η/ε: off by the factor {2 * scale:.3g} here (simulated: {injected:.3g})",
            "benchmarks/papers/bounds/bjrd.py `laplace_variance`",
            "benchmarks/papers/tests/test_papers.py::test_printed_slips_are_reproduced",
        ),
        Claim(
            "Proposition 3.10",
            "η = 2C + γ_f from convergence to the posterior",
            "η: how far two averages may be",
            "at most",
            known.sensitivity,
            eta,
            "exact",
            "two averages near two posteriors: concentration and bias are paid twice; coupling pays neither",
            "benchmarks/papers/mixing.py `by_convergence`",
            "benchmarks/papers/tests/test_mixing.py::test_constants_of_assumptions_3_8_and_3_9_hold_on_a_quadratic",
        ),
    )
    facts = (
        ("η by the synchronous coupling, sure", number(eta)),
        ("η by convergence, but for probability 2e-6", number(known.sensitivity)),
        ("ε claimed", EPSILON),
        ("ε proved by an audit, failure probability 1e-6", number(audited)),
        ("standard deviation of the average itself", number(sd)),
        ("standard deviation of the noise", number(math.sqrt(2) * scale)),
    )
    return Section(
        claims,
        (
            Heading("Propositions 3.7 and 3.10: averages with noise"),
            Text(
                f"{kept} states after {burn} of burn-in, {chains:,} chains on each of two adjacent data sets."
            ),
            Facts(facts, "One average"),
        ),
    )


def _average(rng: np.random.Generator, pull: float, burn: int, kept: int, chains: int) -> np.ndarray:
    x, total = np.zeros(chains), np.zeros(chains)
    for step in range(burn + kept):
        x = x - STEP * (_PRECISION * x - pull) + math.sqrt(2 * STEP) * rng.normal(size=chains)
        if step >= burn:
            total += x
    return total / kept


def _audit(outputs: list[np.ndarray]) -> float:
    """A lower bound on ε: the threshold from the first half, errors counted on the second."""
    scores = outputs[1], outputs[0]
    return bound_at_best(scores, 1e-6, lambda *errors: epsilon_from_errors(*errors, 0.0))
