"""What every notebook of the gallery does with its model, rows and data."""

import time

import jax
import matplotlib.pyplot as plt
import numpy as np
from numpyro.infer import MCMC, NUTS

import private_mcmc as pmc


class Study:
    """A verdict, a plan and a private run, beside the posterior without privacy."""

    def __init__(self, model, rows, data, *, n=None, public=None):
        n, public, began = n or len(next(iter(data.values()))), public or {}, time.perf_counter()
        self.n, self.rows, self.target, self.seconds = n, rows, pmc.Target(epsilon=3.0, delta=1e-5), {}

        def done(part):
            nonlocal began
            self.seconds[part] = round(time.perf_counter() - began, 1)
            began = time.perf_counter()

        # Reads the model alone: may its posterior be private at this target?
        self.report = pmc.preflight(model, rows, self.target, n=n, model_args=public)
        print(self.report.verdict, *self.report.reasons, sep="\n")
        done("Preflight")
        # Still no data: what is bought with the budget, and the error to expect.
        self.plan = pmc.plan(model, rows, self.target, n=n, guarantee="run", model_args=public)
        print(f"expected error: {self.plan.prediction.rms:.2f} {self.plan.prediction.unit}")
        done("Plan")
        self.mcmc = pmc.PrivateMCMC.from_plan(self.plan, progress_bar=False)
        self.mcmc.run(**data)
        print(f"ε = {self.mcmc.statement.epsilon(self.target.delta):.3g} at δ = {self.target.delta:g}")
        done("Run")
        self.exact = MCMC(NUTS(model), num_warmup=300, num_samples=1000, progress_bar=False)
        self.exact.run(jax.random.key(0), **data, **public)
        done("NUTS")
        self.both = [self.mcmc.get_samples(), self.exact.get_samples()]

    def forest(self, *names):
        """Intervals of these sites, private and not; the legend beside them."""
        private = self.both[0]
        places = [(name, at) for name in names or private for at in np.ndindex(private[name].shape[1:])]
        heights = np.arange(len(places), 0, -1)
        _, axes = plt.subplots(figsize=(7, 1.2 + 0.32 * len(places)))
        for label, draws, shift in zip(("private", "not private"), self.both, (0.15, -0.15), strict=True):
            values = [np.asarray(draws[name])[(slice(None), *at)] for name, at in places]
            low, middle, high = np.quantile(values, [0.05, 0.5, 0.95], axis=1)
            error = [middle - low, high - middle]
            axes.errorbar(middle, heights + shift, xerr=error, fmt="o", markersize=4, label=label)
        axes.set_yticks(heights, [f"{name}{list(at) or ''}" for name, at in places])
        axes.set_xlabel("median and 90 % interval")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
