"""Every way to estimate a posterior that the benchmark compares, ours among them."""

from pathlib import Path

from benchmarks.peers.external import D3P, DiffPrivLib
from benchmarks.peers.limits import AdaSSP, BestInfluence, Oracle, SufficientStatistics
from benchmarks.peers.method import Budget as Budget
from benchmarks.peers.method import DoesNotApply as DoesNotApply
from benchmarks.peers.method import Method as Method
from benchmarks.peers.method import Runs as Runs
from benchmarks.peers.method import Unavailable as Unavailable
from benchmarks.peers.noisy_gradients import NoisyGradients
from benchmarks.peers.noisy_newton import NoisyNewton
from benchmarks.peers.nonprivate import Laplace, Nuts
from benchmarks.peers.objective_perturbation import ObjectivePerturbation
from benchmarks.peers.one_sample import OneSample
from benchmarks.peers.ours import Ours, Simulated
from benchmarks.peers.output_perturbation import OutputPerturbation


def methods(environments: Path, cache: Path) -> dict[str, Method]:
    """All methods by name, ours first.

    Args:
        environments: folder with the virtual environments of peers that cannot share ours.
        cache: folder for references of tempered posteriors.
    """
    everything: tuple[Method, ...] = (
        Ours("replace_one"),
        Ours("add_remove"),
        Simulated("replace_one"),
        Simulated("add_remove"),
        BestInfluence(cache),
        Oracle(cache),
        NoisyNewton(cache),
        SufficientStatistics(cache),
        AdaSSP(),
        D3P(environments),
        DiffPrivLib(environments),
        ObjectivePerturbation(),
        NoisyGradients(),
        OutputPerturbation(cache),
        OneSample(cache),
        Nuts(),
        Laplace(cache),
    )
    return {method.name: method for method in everything}
