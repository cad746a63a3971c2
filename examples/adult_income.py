"""The main job through Python: a private posterior of 32,561 people's incomes.

    python examples/adult_income.py

Preflight decides from the model alone, a plan spends the budget on second moments and a path of states,
and everything after that is computed from released values.
"""

import numpyro
import numpyro.distributions as dist

import private_mcmc as pmc
from private_mcmc.data import load_adult


def model(X, y=None):
    """Logistic regression: nothing in it knows about privacy."""
    w = numpyro.sample("w", dist.Normal(0, 2).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def main() -> None:
    """Preflight, plan, run, summary."""
    X, y = load_adult()
    rows = pmc.Rows(X=pmc.Ball(1.0, dim=9), y=pmc.Binary())
    target = pmc.Target(epsilon=3.0, delta=1e-6)

    report = pmc.preflight(model, rows, target, n=len(y))
    print(f"the posterior itself: {report.verdict}; {report.reasons[0]}")

    plan = pmc.plan(model, rows, target, n=len(y), guarantee="run")
    print(f"predicted error of the posterior means: {plan.prediction.rms:.2f} posterior sd")

    mcmc = pmc.PrivateMCMC.from_plan(plan)
    mcmc.run(X=X, y=y)
    mcmc.print_summary()

    married = 5  # the sixth of the columns that load_adult names
    odds = mcmc.expectation(lambda sites: sites["w"][:, married] / 3)
    print(f"log odds ratio of marriage, free of charge: {odds:.2f}")


if __name__ == "__main__":
    main()
