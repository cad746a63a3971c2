"""The pictures of docs/choosing.md: ``python docs/pictures.py`` writes them into docs/pictures/."""

from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from scipy.stats import norm, poisson

import private_mcmc as pmc
from private_mcmc.accounting import Curvature, langevin_statement

OUT = Path(__file__).parent / "pictures"
plt.rcParams |= {
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
DELTA = 1e-6


def save(name):
    """Write the figure as a small SVG without a date in it."""
    plt.tight_layout()
    plt.savefig(OUT / f"{name}.svg", metadata={"Date": None})
    plt.close("all")


def run_and_posterior():
    """The price of a run over its steps, beside that of the posterior that it samples."""
    clip, sd, step = 1.0, 0.35, 2e-3
    steps = np.unique(np.geomspace(1, 3000, 40).astype(int))
    base = pmc.Schedule(
        adjacency="replace_one",
        num_rows=100,
        dim=1,
        step_size=step,
        num_steps=1,
        num_chains=1,
        clip=clip,
        release="path",
    )
    prior = sd**-2
    known = Curvature(strong_convexity=prior, smoothness=prior + 25, convex=True)

    def price(release):
        return [langevin_statement(replace(base, num_steps=int(t), release=release), known) for t in steps]

    path, last = ([one.epsilon(DELTA) for one in price(release)] for release in ("path", "last"))
    posterior = pmc.accounting.gaussian(adjacency="replace_one", sensitivity=2 * clip * sd, scale=1.0)
    plt.figure(figsize=(6.4, 3))
    plt.loglog(steps, path, label="every state of the run (path)")
    plt.loglog(steps, last, label="its last state, convex potential")
    plt.axhline(posterior.epsilon(DELTA), color="k", ls=":", label="the posterior itself")
    plt.xlabel("steps")
    plt.ylabel("ε at δ = 1e-6")
    plt.legend(frameon=False)
    save("run-and-posterior")


def releases():
    """Three releases of one chain."""
    rng = np.random.default_rng(3)
    x = np.zeros(120)
    for k in range(1, len(x)):
        x[k] = 0.94 * x[k - 1] + 0.06 * 1.5 + rng.normal(0, 0.2)
    _, axes = plt.subplots(1, 3, figsize=(8.4, 2.4), sharey=True)
    for axis, title in zip(axes, ("path", "last state", "expectation"), strict=True):
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("step")
        axis.plot(x, color="0.8", lw=1)
    axes[0].plot(x, ".", ms=3)
    axes[1].plot([len(x) - 1], x[-1:], "o")
    mean = x[40:].mean()
    axes[2].axhspan(mean - 0.35, mean + 0.35, xmin=0.35, alpha=0.25)
    axes[2].plot([40, len(x)], [mean, mean])
    axes[0].set_ylabel("θ")
    save("releases")


def weights_and_clips():
    """What bounds a row's slope: of a Poisson outcome, and what it does to the mean slope."""
    bound, most = 2.0, 20
    counts = np.arange(13)
    eta = np.log(3.0)
    slope = counts - np.exp(eta)
    weight = min(1, bound / max(np.exp(eta), most - np.exp(eta)))
    _, axes = plt.subplots(1, 2, figsize=(8.4, 2.8))
    axes[0].plot(counts, slope, "0.7", label="slope of a row")
    axes[0].plot(counts, np.clip(slope, -bound, bound), label="clipped")
    axes[0].plot(counts, weight * slope, label="weighted")
    axes[0].set_xlabel("count, where 3 is expected")
    axes[0].legend(frameon=False)
    etas = np.linspace(-1, 2.2, 80)
    y = np.arange(200)
    bias = [poisson.pmf(y, np.exp(e)) @ np.clip(y - np.exp(e), -bound, bound) for e in etas]
    axes[1].plot(np.exp(etas), bias, color="C0", label="clipped")
    axes[1].axhline(0, color="C1", label="weighted")
    axes[1].set_xlabel("expected count")
    axes[1].set_ylabel("mean slope at the truth")
    axes[1].legend(frameon=False)
    save("weights-and-clips")


def noise_aware():
    """The posterior given what was released, where the release is a mean with noise."""
    x = np.linspace(-1.6, 1.6, 400)
    mean, sd, noise, released = 0.0, 0.12, 0.3, 0.38
    plt.figure(figsize=(6.4, 2.8))
    plt.plot(x, norm.pdf(x, mean, sd), color="0.6", label="ordinary posterior (not released)")
    plt.plot(x, norm.pdf(x, released, sd), ls="--", label="release taken for the truth")
    plt.plot(x, norm.pdf(x, released, np.hypot(sd, noise)), label="posterior given the release")
    plt.yticks([])
    plt.xlabel("parameter")
    plt.xlim(-2.6, 1.6)
    plt.legend(frameon=False, loc="center left")
    save("noise-aware")


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    for draw in (run_and_posterior, releases, weights_and_clips, noise_aware):
        draw()
