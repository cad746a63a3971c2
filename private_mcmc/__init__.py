"""Differentially private Bayesian inference for NumPyro models.

A model is read, refused when its posterior cannot be private, sampled with clipped Langevin kernels and
released with a statement of what that cost. ``PrivateMCMC`` is the driver; ``preflight`` and ``plan`` answer
before any private row is touched. The public names are listed in ``__init__.pyi`` and loaded when first
used, so that the accountant can be used without waiting for JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
