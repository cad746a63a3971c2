"""Keys, noise and minibatches."""
