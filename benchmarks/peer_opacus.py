"""Worker: one clipped gradient of a batch by Opacus on a CPU, float64; prints the median seconds."""

import json
import sys
import time

import torch
from opacus import GradSampleModule

CLIP = 0.4


def main() -> None:
    kind, rows, dim, repeats = sys.argv[1], *map(int, sys.argv[2:])
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    if kind == "logistic":
        model = torch.nn.Linear(dim, 1, bias=False)
    else:
        model = torch.nn.Sequential(
            torch.nn.Linear(dim, 8, bias=False), torch.nn.Tanh(), torch.nn.Linear(8, 1, bias=False)
        )
    model = GradSampleModule(model)
    X, y = torch.randn(rows, dim) / dim**0.5, torch.randint(0, 2, (rows,)).double()
    loss = torch.nn.BCEWithLogitsLoss(reduction="sum")

    def clipped() -> None:
        model.zero_grad()
        loss(model(X)[:, 0], y).backward()
        samples = [parameter.grad_sample.flatten(1) for parameter in model.parameters()]
        norms = torch.cat(samples, dim=1).norm(dim=1)
        factors = (CLIP / norms.clamp(min=1e-300)).clamp(max=1.0)
        for parameter in model.parameters():
            parameter.grad = torch.einsum("i,i...", factors, parameter.grad_sample)
            parameter.grad_sample = None

    clipped()
    times = []
    for _ in range(20 * repeats):
        begin = time.perf_counter()
        clipped()
        times.append(time.perf_counter() - begin)
    print(json.dumps(sorted(times)[len(times) // 2]))


if __name__ == "__main__":
    main()
