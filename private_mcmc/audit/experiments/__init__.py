"""The papers' experiments on neural networks: attacks on training, none of which is a private release."""

from private_mcmc.audit.experiments.hf import HFExperiment
from private_mcmc.audit.experiments.hf_result import HFResult
from private_mcmc.audit.experiments.images import Images, load_images
from private_mcmc.audit.experiments.noise import NoiseExperiment
from private_mcmc.audit.experiments.noise_result import NoiseResult

__all__ = [
    "HFExperiment",
    "HFResult",
    "Images",
    "NoiseExperiment",
    "NoiseResult",
    "load_images",
]
