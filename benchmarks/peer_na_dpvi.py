"""Worker: NA-DPVI on its own logistic regression; arguments CHECKOUT EPSILON TASK FILE.npz.

The data, the settings and the method are the peer's: ``CHECKOUT`` is a clone of DPBayes/noise-aware-dpvi,
which is no package.
"""

import sys

import jax
import numpy as np
import numpyro.distributions as dist

# Of `coverage_experiment.py`, whose tasks begin there.
_SEED = 666


def main() -> None:
    checkout, epsilon, task, path = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    sys.path.insert(0, checkout)
    import coverage_experiment as peer
    from utils import DynamicAttributes, generate_data

    settings = peer.set_default_args_logistic_regression(DynamicAttributes())
    settings.experiment_name, settings.target_epsilon, settings.task_id = "logistic_regression", epsilon, task
    settings.data_generator_function = generate_data
    settings.data_random_seed += task
    settings.random_seed += task
    prior = dist.MultivariateNormal(np.zeros(3), np.eye(3))
    settings.theta_true = prior.sample(key=jax.random.PRNGKey(_SEED + task))
    found, _ = peer.perform_coverage_test(settings)
    np.savez(
        path,
        X=np.asarray(settings.train_xs, dtype=np.float64),
        y=np.asarray(settings.train_ys, dtype=np.int64),
        truth=np.asarray(settings.theta_true, dtype=np.float64),
        mean=np.asarray(found.theta_means, dtype=np.float64),
        sd=np.asarray(found.theta_stds, dtype=np.float64),
        delta=settings.target_delta,
    )


if __name__ == "__main__":
    main()
