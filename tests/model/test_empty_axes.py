"""Arrays without elements, which transforms of one number make inside, are no obstacle to reading."""

import numpyro
import numpyro.distributions as dist
import pytest

from private_mcmc.domains import Binary, Box, Rows
from private_mcmc.errors import NotYetSupported
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


def test_latents_without_entries_are_read_and_a_missing_density_is_named():
    def model(y, fn):
        m, z = numpyro.sample("m", dist.Normal(0, 1)), numpyro.sample("z", fn)
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(m + z.sum(), 1.0), obs=y)

    rows, none = Rows(y=Box(-1, 1)), dist.Normal(0.0, 1.0).expand([0]).to_event(1)
    assert read(model, rows, n=4, model_args={"fn": none}).prior.strong_convexity == pytest.approx(1.0)
    twice = dist.TransformedDistribution(dist.Normal(0.0, 1.0), dist.transforms.AbsTransform())
    with pytest.warns(UserWarning, match="not a bijective"), pytest.raises(NotYetSupported, match="'z'"):
        read(model, rows, n=4, model_args={"fn": twice})
