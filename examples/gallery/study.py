"""What every notebook of the gallery does with its model, rows and data."""

import time

import arviz as az
import jax
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
        self.exact = MCMC(NUTS(model), num_warmup=200, num_samples=200, progress_bar=False)
        self.exact.run(jax.random.key(0), **data, **public)
        done("NUTS")
        self.both = [self.mcmc.to_arviz(), az.from_dict(self.exact.get_samples(group_by_chain=True))]

    def forest(self, *names):
        """Intervals of these sites, private and not; the legend beside them."""
        kept = [found.posterior[list(names)] if names else found.posterior for found in self.both]
        lines = sum(kept[0][name][0, 0].size for name in kept[0])
        (axes,) = az.plot_forest(
            kept,
            model_names=["private", "not private"],
            var_names=list(names) or None,
            combined=True,
            figsize=(7, 1.2 + 0.32 * lines),
        )
        axes.get_legend().set(loc="upper left", bbox_to_anchor=(1, 1))
        axes.set_title("")
