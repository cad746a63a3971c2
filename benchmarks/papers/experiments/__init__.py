"""The papers' experiments on neural networks: attacks on training, none of which is a private release."""

from benchmarks.papers.experiments.hf import HFExperiment
from benchmarks.papers.experiments.hf_result import HFResult
from benchmarks.papers.experiments.images import Images, load_images
from benchmarks.papers.experiments.noise import NoiseExperiment
from benchmarks.papers.experiments.noise_result import NoiseResult

__all__ = [
    "HFExperiment",
    "HFResult",
    "Images",
    "NoiseExperiment",
    "NoiseResult",
    "load_images",
]
