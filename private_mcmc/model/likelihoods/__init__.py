"""Likelihood families: what is proved of a row's loss as a function of its predictor."""
