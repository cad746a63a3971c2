"""Runs in diffprivlib's environment: ``diffprivlib_worker.py ROWS.npz TASK.json ANSWER.npz``."""

import json
import sys

import numpy as np
from diffprivlib.models import LogisticRegression


def main(rows_path: str, task_path: str, answer_path: str) -> None:
    rows = np.load(rows_path)
    with open(task_path) as file:
        task = json.load(file)
    points = []
    for _ in range(task["runs"]):
        model = LogisticRegression(
            epsilon=task["epsilon"],
            data_norm=1.0,
            C=task["inverse_penalty"],
            # The rows hold the intercept already.
            fit_intercept=False,
            max_iter=10_000,
            tol=1e-8,
        )
        points.append(model.fit(rows["X"], rows["y"]).coef_)
    np.savez(answer_path, draws=np.array(points))


if __name__ == "__main__":
    main(*sys.argv[1:])
