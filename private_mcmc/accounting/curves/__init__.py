"""Privacy curves: what is known of ``δ(ε)`` and of Rényi divergences, and how they compose."""
