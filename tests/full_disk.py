"""A disk without room, for tests of what is written to it."""

import contextlib
import errno
import os
import resource


@contextlib.contextmanager
def files_at_most(size):
    """As on a disk with so many bytes left: no file can be written beyond that size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def full(*_):
    """In the place of what writes."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
