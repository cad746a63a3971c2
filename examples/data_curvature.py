"""Where a private test of the data's curvature pays, and where it does not.

    python examples/data_curvature.py

The last state and the noised mean of a linear regression are priced twice: with the prior's strong convexity
alone, and with curvature of the data that a private test must find before the chain runs. Then the same for
logistic regression on ever wider sets, where the curvature that can be certified dies away.
"""

import numpy as np
import numpyro
import numpyro.distributions as dist

import private_mcmc as pmc

N = 20_000
OUTCOMES = pmc.Rows(X=pmc.Ball(1.0, dim=3), y=pmc.Box(-1, 1))
LABELS = pmc.Rows(X=pmc.Ball(1.0, dim=3), y=pmc.Binary())
GENEROUS = pmc.Target(epsilon=1e4, delta=1e-6)


def linear(X, y=None):
    """Normal errors of scale 1, weights N(0, 1)."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ w, 1.0), obs=y)


def logistic(X, y=None):
    """Weights N(0, 1)."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def decision(kernel, rows, release, curvature):
    """What the run would cost; no data is needed for that."""
    return pmc.PrivateMCMC(
        kernel,
        rows=rows,
        target=GENEROUS,
        release=release,
        num_steps=3000,
        guarantee=curvature or "run",
    ).decide(N)


def compare(name, kernel, rows, at_least):
    """Both prices, of the last state and of the noise on the mean."""
    tested = pmc.ProposedCurvature(at_least=at_least, gdp=0.1, failure=1e-8)
    mean = pmc.Expectations("w", epsilon=0.5)
    for what, curvature in (("prior alone", None), (f"data ≥ {at_least:g}", tested)):
        last = decision(kernel, rows, "last", curvature)
        noise = decision(kernel, rows, mean, curvature).expectations.noise_sd
        price = f"last state ε = {last.statement.epsilon(1e-6):.3g}, noise sd of the mean {np.max(noise):.3g}"
        test = last.curvature_test
        needs = "" if test is None else f"; the data must show {at_least + test.margin:.4g}"
        print(f"{name}, {what}: {price}{needs}")


def main() -> None:
    """Linear regression, where it pays; logistic regression on sets of growing radius."""
    compare("linear", pmc.PrivateULA(linear, step_size=8e-5, clip=2.6, radius=1.5), OUTCOMES, 4000.0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    for radius in (1.0, 3.0, 10.0):
        # On a ball of this radius predictors reach ±radius, where the logistic curvature is σ'(radius).
        sigma = 1 / (1 + np.exp(-radius))
        found = np.linalg.eigvalsh(X.T @ X)[0] * sigma * (1 - sigma)
        kernel = pmc.PrivateULA(logistic, step_size=3e-4, clip=1.0, radius=radius)
        compare(f"logistic, radius {radius:g}", kernel, LABELS, round(0.8 * found, 2))


if __name__ == "__main__":
    main()
