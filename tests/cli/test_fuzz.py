"""Malformed declarations never end in anything but the library's own errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from private_mcmc.cli.common import load_model
from private_mcmc.dossier.shape import declared_column
from private_mcmc.errors import PrivateMCMCError

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    record=st.one_of(
        JSON, st.dictionaries(st.sampled_from(["ball", "box", "counts", "real"]), JSON, max_size=2)
    )
)
def test_random_domain_records(record):
    try:
        domain = declared_column(record)
    except PrivateMCMCError:
        return
    assert domain.norm_bound >= 0


@pytest.mark.parametrize(
    "content", [b"", b"def model(:", b"raise SystemError('no')", b"\xff\xfe", b"model = 3"]
)
def test_model_files_that_do_not_work(tmp_path, content):
    path = tmp_path / "model.py"
    path.write_bytes(content)
    with pytest.raises(PrivateMCMCError):
        load_model(f"{path}:model")
