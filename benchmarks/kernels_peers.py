"""Clipped gradients by Opacus and d3p, each in the environment that `make peers` builds for it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / "build" / "peers"
PEERS = ("opacus", "d3p")


def seconds(peer: str, model: str, rows: int, dim: int, repeats: int) -> float | str:
    """Seconds of one clipped gradient of a batch, or why there is no number."""
    python = ENVIRONMENTS / peer / "bin" / "python"
    if not python.exists():
        return "not available: run make peers"
    worker = [str(python), str(HERE / f"peer_{peer}.py"), model, str(rows), str(dim), str(repeats)]
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(worker, capture_output=True, text=True, env=environment, timeout=300)
    if done.returncode != 0:
        return f"not available: {done.stderr.strip().splitlines()[-1:]}"
    return float(json.loads(done.stdout.splitlines()[-1]))
