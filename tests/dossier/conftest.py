"""A dossier that tests of dossiers share."""

import shutil

import pytest

from tests.dossier.studies import books_in, study_of


@pytest.fixture(scope="session")
def books(tmp_path_factory):
    return books_in(tmp_path_factory.mktemp("books"))


@pytest.fixture(scope="session")
def written(tmp_path_factory, books):
    """A dossier that nobody changes."""
    return study_of(books).save(tmp_path_factory.mktemp("dossiers") / "study")


@pytest.fixture
def folder(written, tmp_path):
    return shutil.copytree(written, tmp_path / "copy")
