"""Files are written whole or not at all; a result's place is taken before, and the result is never lost."""

import contextlib
import os

import pytest

from private_mcmc.errors import OutputError, PrivateMCMCError
from private_mcmc.report import Report, Text
from private_mcmc.system import check_writable, new_file, write_whole
from tests.full_disk import files_at_most

# No permission cannot be tried as the user who has them all.
UNWRITABLE = ["nowhere/page.html", "folder", "n" * 300, "a/" * 3000 + "x", "file/page.html", "null\0byte"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("old")
    return tmp_path


def listing(folder):
    return sorted(path.name for path in folder.rglob("*"))


WRITERS = {
    "write_whole": lambda path: write_whole(path, "text"),
    "check_writable": check_writable,
    "to_html": Report("t", (Text("words"),)).to_html,
    "new_file": lambda path: new_file(path).__enter__(),
}


@pytest.mark.slow
@pytest.mark.parametrize("path", UNWRITABLE)
@pytest.mark.parametrize("writer", WRITERS)
def test_what_cannot_be_written_is_an_error_in_words_and_leaves_nothing(folder, writer, path):
    before = listing(folder)
    with pytest.raises(OutputError) as raised:
        WRITERS[writer](path)
    assert isinstance(raised.value, PrivateMCMCError) and isinstance(raised.value, OSError)
    assert "Errno" not in str(raised.value)
    assert listing(folder) == before


@pytest.mark.parametrize("writer", ["write_whole", "to_html"])
def test_a_full_disk_is_an_error_in_words_and_leaves_the_old_file(folder, writer):
    with files_at_most(2), pytest.raises(OutputError, match="cannot be written"):
        WRITERS[writer]("file")
    assert listing(folder) == ["file", "folder"] and (folder / "file").read_text() == "old"


def test_devices_and_links_are_written_through(folder):
    (folder / "link").symlink_to("file")
    write_whole("link", "new")
    assert (folder / "link").is_symlink() and (folder / "file").read_text() == "new"
    check_writable("/dev/null")
    write_whole("/dev/null", "new")
    assert not os.path.isfile("/dev/null")
    with pytest.raises(OutputError, match="No space left"):
        write_whole("/dev/full", "new")


def test_checking_leaves_nothing_and_changes_nothing(folder):
    check_writable("file")
    check_writable("new")
    assert listing(folder) == ["file", "folder"] and (folder / "file").read_text() == "old"


def test_a_new_file_is_there_whole_after_its_work(folder):
    with new_file("out.json") as result:
        with pytest.raises(OutputError, match="exists already"), new_file("out.json"):
            pass
        result("the release, ε = 1")
    assert (folder / "out.json").read_text(encoding="utf-8") == "the release, ε = 1"
    assert listing(folder) == ["file", "folder", "out.json"]


@pytest.mark.parametrize("error", [PrivateMCMCError, KeyboardInterrupt, SystemExit])
def test_nothing_is_left_of_work_without_a_result(folder, error):
    with pytest.raises(error), new_file("out.json"):
        raise error
    assert listing(folder) == ["file", "folder"]


def test_what_is_there_is_never_overwritten(folder):
    (folder / "dangling").symlink_to("elsewhere")
    (folder / "empty").touch()
    for path in ("file", "folder", "dangling", "empty"):
        with pytest.raises(OutputError, match="exists already"), new_file(path):
            pass
    with pytest.raises(OutputError, match="remove it"), new_file("empty"):
        pass
    assert (folder / "file").read_text() == "old"


@pytest.mark.parametrize("ends", [True, False])
def test_another_run_that_took_the_place_of_one_that_goes_on_keeps_its_result(folder, ends):
    """Where the first one's empty file was removed, as the error says, its end removed the other's result."""
    with contextlib.suppress(KeyboardInterrupt, OutputError), new_file("out") as first:
        (folder / "out").unlink()
        with new_file("out") as second:
            second("the other release")
        if not ends:
            raise KeyboardInterrupt
        first("the release")
    assert (folder / "out").read_text() == "the other release"
    assert listing(folder) == ["file", "folder", "out"]


def test_a_result_whose_folder_is_gone_is_an_error_in_words(folder):
    with pytest.raises(OutputError, match="there is no folder"), new_file("folder/out") as write:
        (folder / "folder" / "out").unlink()
        (folder / "folder").rmdir()
        write("the release")
