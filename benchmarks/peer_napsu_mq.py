"""Worker: NAPSU-MQ on its own toy data; ``python peer_napsu_mq.py EPSILON TASK FILE.npz``.

Two coins and an outcome that depends on the first alone, 2,000 people; all three-way marginals are noised,
100 synthetic data sets drawn, a logistic regression fitted to each, and the fits combined by Rubin's rules
(Räisä, Jälkö, Kaski, Honkela 2023, section 5.1, with twinify 2.0).
"""

import sys

import d3p.random
import numpy as np
import pandas as pd
import scipy.optimize
from scipy.special import expit, log_expit
from twinify.napsu_mq.napsu_mq import NapsuMQModel
from twinify.napsu_mq.rubins_rules import conf_int_distribution

_TRUTH, _PEOPLE, _SETS = np.array([1.0, 0.0]), 2000, 100
_COLUMNS = ("A", "B", "C")


def logistic(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Maximum likelihood and its variances."""
    fitted = scipy.optimize.minimize(lambda w: -log_expit((2 * y - 1) * (X @ w)).sum(), np.zeros(X.shape[1]))
    p = expit(X @ fitted.x)
    return fitted.x, np.diag(np.linalg.inv((X * (p * (1 - p))[:, None]).T @ X))


def main() -> None:
    epsilon, task, path = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    rng = np.random.default_rng([2023, task])
    X = rng.integers(0, 2, (_PEOPLE, 2))
    y = rng.binomial(1, expit(X @ _TRUTH))
    words = pd.CategoricalDtype(["0", "1"], ordered=True)
    frame = pd.DataFrame(np.column_stack([X, y]).astype(str), columns=_COLUMNS).astype(words)
    delta = _PEOPLE**-2.0
    model = NapsuMQModel([_COLUMNS])
    fit_key, draw_key = d3p.random.split(d3p.random.PRNGKey(task + 1), 2)
    released = model.fit(frame, fit_key, epsilon, delta, query_sets=[_COLUMNS])
    fits = []
    for made in released.generate(draw_key, _SETS, _PEOPLE, single_dataframe=False):
        table = made[list(_COLUMNS)].to_numpy().astype(int)
        fits.append(logistic(table[:, :2], table[:, 2]))
    q, u = (np.array(each) for each in zip(*fits, strict=True))
    laws = [conf_int_distribution(q[:, j], u[:, j]) for j in range(2)]
    ends = [(np.nan, np.nan) if law is None else law.interval(0.9) for law in laws]
    np.savez(
        path, X=X.astype(float), y=y, truth=_TRUTH, mean=q.mean(axis=0), ends=np.array(ends), delta=delta
    )


if __name__ == "__main__":
    main()
