"""How tight the accountant is: exact values, ours, the papers' bounds and plain composition, side by side.

    python benchmarks/tightness.py [--delta 1e-5] [--json tightness.json] [privacy-against-steps.png]

Every number is ε at the given δ. "exact" is the true ε of the chain where it is known: closed form on
quadratics, densities on a grid for one-dimensional non-linear chains (of the pair of data sets that is
shown; the worst pair may cost more). The papers' numbers are computed as printed; several are not proved.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.papers import cross_moduli as moduli
from benchmarks.papers import moduli as papers_moduli
from benchmarks.papers.bounds import bfg, bjrd
from benchmarks.papers.cross_moduli import Affine, Curvature
from benchmarks.papers.sampled import RoughChain, plain, tightest
from benchmarks.papers.sampled_last import SampledChain
from benchmarks.papers.shift_bound import path
from benchmarks.papers.shift_search import last_state
from private_mcmc.accounting.curves import gdp
from private_mcmc.accounting.curves.curve import Curve, Gaussian

GRID = np.linspace(-9.0, 9.0, 1801)


@dataclass(frozen=True)
class Row:
    setting: str
    exact: float | None
    ours: float
    paper: float | None
    source: str
    composition: float

    @property
    def of_exact(self) -> float | None:
        return None if self.exact is None else self.ours / self.exact

    @property
    def of_paper(self) -> float | None:
        return None if self.paper is None else self.ours / self.paper

    @property
    def of_composition(self) -> float:
        return self.ours / self.composition


def composed(ratio: float, steps: int, delta: float) -> float:
    """ε of ``steps`` Gaussian mechanisms by dp_accounting, as if every state were released."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    whole = ratio * math.sqrt(steps)
    interval = 1e-4 * max(1.0, whole)
    one = pld.from_gaussian_mechanism(1 / whole, value_discretization_interval=interval)
    return float(one.get_epsilon_for_delta(delta))


def exact_epsilon(densities: list[np.ndarray], delta: float) -> float:
    """Exact ε at δ of two densities on the grid, both orders, by bisection."""
    from scipy.interpolate import CubicSpline

    fine = np.linspace(-9.0, 9.0, 18_001)
    cell = fine[1] - fine[0]
    p, q = (np.exp(CubicSpline(GRID, np.log(density))(fine)) for density in densities)

    def reached(epsilon: float) -> float:
        scale = math.exp(epsilon)
        return max(np.maximum(p - scale * q, 0).sum(), np.maximum(q - scale * p, 0).sum()) * cell

    low, high = 0.0, 60.0
    if reached(0.0) <= delta:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) <= delta else (middle, high)
    return high


def density(step_map: Callable[[np.ndarray], np.ndarray], noise: float, steps: int) -> np.ndarray:
    cell = GRID[1] - GRID[0]
    norm = noise * math.sqrt(2 * math.pi)
    at = (GRID[:, None] - step_map(GRID)[None, :]) / noise
    matrix = np.exp(-0.5 * at**2) / norm * cell
    law = np.exp(-0.5 * ((GRID - step_map(np.zeros(1))) / noise) ** 2) / norm
    for _ in range(steps - 1):
        law = matrix @ law
    return law


def quadratics(delta: float) -> list[Row]:
    rows = []
    for mu, step, sensitivity, steps in [(1.0, 0.01, 2.0, 100), (0.5, 0.1, 1.0, 1000), (4.0, 0.2, 2.0, 100)]:
        noise = math.sqrt(2 * step)
        bound = last_state(Affine(step * mu, step * sensitivity), noise, steps)
        rho = 1 - step * mu
        shift = step * sensitivity * (1 - rho**steps) / (1 - rho)
        spread = noise**2 * (1 - rho ** (2 * steps)) / (1 - rho**2)
        rows.append(
            Row(
                f"ULA on a quadratic, μ={mu:g} γ={step:g} Δ={sensitivity:g} T={steps}, last",
                gdp.epsilon(shift / math.sqrt(spread), delta),
                gdp.epsilon(bound.m, delta),
                bjrd.theorem_5_4(sensitivity, step, steps).epsilon(delta),
                "BJRD 5.4 (path)",
                composed(step * sensitivity / noise, steps, delta),
            )
        )
    return rows


def bounded_gradients(delta: float) -> list[Row]:
    rows = []
    for c, mu, smooth in [(1.0, 1.0, 1.0), (1.0, 1.0, 10.0), (0.1, 1.0, 10.0)]:
        step, steps = 0.2 * mu / smooth**2, 100_000
        phi = moduli.langevin(
            step, 2 * c, Curvature(prior_strong_convexity=mu, prior_smoothness=smooth, gradient_bound=c)
        )
        bound = last_state(phi, math.sqrt(2 * step), steps)
        rows.append(
            Row(
                f"bounded data gradient, c={c:g} μ={mu:g} L={smooth:g} T={steps}, last",
                None,
                gdp.epsilon(bound.m, delta),
                bjrd.theorem_5_2(c, mu, smooth, step).epsilon(delta),
                "BJRD 5.2",
                composed(step * 2 * c / math.sqrt(2 * step), steps, delta),
            )
        )
    return rows


def non_linear(delta: float) -> list[Row]:
    """One-dimensional chains whose exact ε is computed from densities on a grid."""
    rows = []

    def logistic(data: tuple[float, ...], clip: float, step: float) -> Callable[[np.ndarray], np.ndarray]:
        def move(x: np.ndarray) -> np.ndarray:
            pulls = sum(np.clip(-row / (1 + np.exp(row * x)), -clip, clip) for row in data)
            return np.asarray(x - step * (0.6 * x + pulls))

        return move

    step = 0.08
    noise = math.sqrt(2 * step)
    for clip, steps in [(0.3, 10), (0.3, 80), (1.0, 80)]:
        laws = [density(logistic((1.0, -0.7, 0.9, last), clip, step), noise, steps) for last in (1.0, -1.0)]
        phi = moduli.langevin(step, 2 * clip, Curvature(strong_convexity=0.6, smoothness=1.6))
        bound = last_state(phi, noise, steps)
        rows.append(
            Row(
                f"clipped logistic regression, C={clip:g} T={steps}, last",
                exact_epsilon(laws, delta),
                gdp.epsilon(bound.m, delta),
                None,
                "",
                composed(step * 2 * clip / noise, steps, delta),
            )
        )

    def well(data: tuple[float, ...], height: float, width: float) -> Callable[[np.ndarray], np.ndarray]:
        def move(x: np.ndarray) -> np.ndarray:
            away = x[:, None] - np.asarray(data)
            pull = np.sum(height * away / width**2 * np.exp(-0.5 * (away / width) ** 2), axis=1)
            return np.asarray(x - 0.05 * (0.5 * x + pull))

        return move

    for height, steps in [(0.2, 40), (1.0, 40)]:
        width, noise = 0.8, math.sqrt(0.1)
        peak = height / width * math.exp(-0.5)
        laws = [density(well((-1.5, 1.5, last), height, width), noise, steps) for last in (1.5, -1.5)]
        phi = moduli.langevin(
            0.05,
            2 * peak,
            Curvature(
                smoothness=0.5 + 3 * height / width**2,
                prior_strong_convexity=0.5,
                prior_smoothness=0.5,
                gradient_bound=3 * peak,
            ),
        )
        bound = last_state(phi, noise, steps)
        rows.append(
            Row(
                f"double well on a normal prior, height={height:g} T={steps}, last",
                exact_epsilon(laws, delta),
                gdp.epsilon(bound.m, delta),
                bjrd.theorem_5_2(3 * peak, 0.5, 0.5, 0.05).epsilon(delta),
                "BJRD 5.2",
                composed(0.05 * 2 * peak / noise, steps, delta),
            )
        )
    return rows


def projected(delta: float) -> list[Row]:
    """Two starts on a set: Theorem 3.4 and Table 1 are optimal, so only the choice of the start can win."""
    rows = []
    for row, c, h in [("convex Lipschitz", 1.0, 0.01), ("nonconvex", 1.1, 0.0), ("dissipative", 0.9, 0.05)]:
        steps, noise, diameter = 400, 0.5, 2.0
        value = papers_moduli.two_starts_constant(c, h, noise, diameter, steps)
        printed = bfg.table_1(row, c, h, noise, diameter, steps)  # type: ignore[arg-type]
        rows.append(
            Row(
                f"two starts on a set, {row}, c={c:g} h={h:g} T={steps}",
                None,
                gdp.epsilon(math.sqrt(value), delta),
                gdp.epsilon(math.sqrt(printed), delta),
                "BFG Table 1",
                composed(diameter / noise, 1, delta),
            )
        )
    return rows


def sampled(delta: float) -> list[Row]:
    """Noisy SGD on Poisson batches in BFG's units: steps η/b, noise ησ."""
    rows = []
    for exponent, diameter, times in [(1.0, 0.05, 2), (1.0, 0.05, 20), (0.4, 0.05, 20), (0.2, 0.05, 20)]:
        n, batch, step, lipschitz, noise = 1000, 100, 0.01, 1.0, 0.5
        steps = times * math.ceil(diameter * n / (4 * step * lipschitz))
        printed = bfg.theorem_5_2(
            steps=steps,
            rows=n,
            batch=batch,
            step=step,
            noise=noise,
            lipschitz=lipschitz,
            exponent=exponent,
            constant=1.0,
            diameter=diameter,
        )
        phi = papers_moduli.weakly_smooth(step, exponent, 1.0)
        chain = RoughChain(
            pair="replace_one",
            rate=batch / n,
            row_shift=step / batch * lipschitz,
            noise=step * noise,
            steps=steps,
            modulus=Affine(0.0, 0.0) if exponent == 1 else phi,
            diameter=diameter,
        )
        rows.append(
            Row(
                f"Poisson SGD, q={batch / n:g} p={exponent:g} D={diameter:g} σ={noise:g} T={steps}, last",
                None,
                tightest(chain, delta).curve.epsilon(delta),
                printed.epsilon(delta),
                "BFG 5.2 (proof does not hold)",
                plain(chain).curve.epsilon(delta),
            )
        )
    return rows


def nonconvex_sgd(delta: float) -> list[Row]:
    """Smooth non-convex losses on a bounded set, in BFG's units; both papers' bounds."""
    n, batch, step, noise, lipschitz, smooth, diameter, steps = 1000, 50, 0.5, 4.0, 1.0, 0.2, 0.5, 10_000
    shared = {
        "rows": n,
        "batch": batch,
        "step": step,
        "noise": noise,
        "lipschitz": lipschitz,
        "diameter": diameter,
    }
    printed = bfg.theorem_5_4(**shared, steps=steps, smoothness=smooth)  # type: ignore[arg-type]
    other = bfg.asoodeh_diaz(**shared, delta=delta)  # type: ignore[arg-type]
    chain = RoughChain(
        pair="replace_one",
        rate=batch / n,
        row_shift=step / batch * lipschitz,
        noise=step * noise,
        steps=steps,
        modulus=Affine(-step * smooth * n / batch, 0.0),  # a Poisson batch can hold every row
        diameter=diameter,
    )
    ours, base = tightest(chain, delta).curve.epsilon(delta), plain(chain).curve.epsilon(delta)
    setting = f"Poisson SGD, smooth non-convex, q={batch / n:g} D={diameter:g} σ={noise:g} T={steps}, last"
    return [
        Row(setting, None, ours, printed.epsilon(delta), "BFG 5.4 (fixed size; not proved)", base),
        Row(setting, None, ours, other, "Asoodeh, Diaz (24)", base),
    ]


def table(rows: list[Row]) -> Table:
    shown = Table(title="ε by setting")
    for name in ("setting", "exact", "ours", "paper", "source", "composition", "/exact", "/paper", "/comp."):
        shown.add_column(name, justify="left" if name in ("setting", "source") else "right")

    def text(value: float | None, digits: int = 5) -> str:
        return "" if value is None else f"{value:.{digits}g}"

    for row in rows:
        ratios = (row.of_exact, row.of_paper, row.of_composition)
        shown.add_row(
            row.setting,
            text(row.exact),
            text(row.ours),
            text(row.paper),
            row.source,
            text(row.composition),
            *(text(value, 3) for value in ratios),
        )
    return shown


def plot(file: str, delta: float) -> None:
    """ε against the number of steps: last state, path, the papers, sampled last state."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    counts = np.unique(np.geomspace(1, 20_000, 60).round().astype(int)).tolist()
    step, mu, c = 0.02, 1.0, 0.25
    noise = math.sqrt(2 * step)
    strong = moduli.langevin(step, 2 * c, Curvature(strong_convexity=mu, smoothness=10.0))
    bound = 4 * c  # four rows
    prior = {"prior_strong_convexity": mu, "prior_smoothness": mu, "gradient_bound": bound}
    rough = moduli.langevin(step, 2 * c, Curvature(**prior))
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5))

    def line(axis: plt.Axes, curve: Callable[[int], Curve], label: str, style: str) -> None:
        axis.loglog(counts, [curve(steps).epsilon(delta) for steps in counts], style, label=label)

    line(left, lambda t: Gaussian(path(strong, noise, t).m), "path", "k--")
    line(left, lambda t: Gaussian(last_state(strong, noise, t).m), "last state, strongly convex", "C0-")
    line(left, lambda t: Gaussian(last_state(rough, noise, t).m), "last state, bounded data gradient", "C1-")
    final = bjrd.theorem_5_2(bound, mu, mu, step).epsilon(delta)
    left.axhline(final, color="C3", ls=":", label="BJRD Theorem 5.2")
    left.axhline(gdp.epsilon(2 * c / math.sqrt(mu), delta), color="C2", ls="-.", label="posterior")
    left.set(
        title=f"ULA, full batch: Δ={2 * c:g}, μ={mu:g}, γ={step:g}",
        xlabel="steps",
        ylabel=f"ε at δ={delta:g}",
    )
    left.legend()

    def chain(steps: int) -> SampledChain:
        return SampledChain(
            pair="replace_one",
            rate=0.05,
            row_shift=0.1,
            noise=1.0,
            steps=steps,
            gap=0.02,
        )

    coarse = counts[::5]
    right.loglog(coarse, [plain(chain(t)).curve.epsilon(delta) for t in coarse], "k--", label="path")
    best = [tightest(chain(t), delta).curve.epsilon(delta) for t in coarse]
    right.loglog(coarse, best, "C0-o", ms=3, label="last state")
    right.set(title="Poisson batches, q=0.05, r/σ=0.1, 1−ρ=0.02", xlabel="steps", ylabel=f"ε at δ={delta:g}")
    right.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("png", nargs="?", help="where to plot privacy against steps")
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--json", help="where to write the table as JSON")
    options = parser.parse_args()
    parts = (quadratics, bounded_gradients, non_linear, projected, sampled, nonconvex_sgd)
    rows = [row for part in parts for row in part(options.delta)]
    Console(width=170).print(table(rows))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"delta": options.delta, "rows": [asdict(row) for row in rows]}, file, indent=1)
    if options.png:
        plot(options.png, options.delta)


if __name__ == "__main__":
    main()
