"""Arrays without elements, which transforms of one number make inside, are no obstacle to reading."""

import numpyro
import numpyro.distributions as dist
import pytest

from private_mcmc.domains import Binary, Box, Rows
from private_mcmc.model import read


@pytest.mark.slow
def test_an_ordered_vector_of_one_number_is_read():
    def model(x, y):
        fn = dist.TransformedDistribution(
            dist.Normal(0.0, 2.0).expand([1]).to_event(1), dist.transforms.OrderedTransform()
        )
        w = numpyro.sample("w", fn)
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=x * w[0]), obs=y)

    found = read(model, Rows(x=Box(-1, 1), y=Binary()), n=4)
    assert found.dim == 1 and found.predictor is not None
    assert found.prior.strong_convexity == pytest.approx(0.25)
