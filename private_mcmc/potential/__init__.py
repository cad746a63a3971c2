"""A row's term and a prior: programs that kernels run, and what is proved of them."""
