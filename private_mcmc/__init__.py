"""Differentially private Bayesian inference for NumPyro models."""
