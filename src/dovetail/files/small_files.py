"""Reads the small files a kubeconfig names: certificates, keys, tokens.

Given a path; returns the content or raises OSError with the reason. A kubeconfig and its paths may come from an
untrusted source: files without an end and files that would block are not read.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 1024 * 1024  # ours; a bundle of every public authority is a quarter of it


def content(path: str | Path) -> bytes:
    """The whole file. Raises OSError for a device, a pipe, a directory, or a file larger than the bound."""
    opened = os.open(
        path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    )  # a pipe without a writer would block
    with os.fdopen(opened, "rb") as file:
        mode = os.fstat(opened).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MAX_BYTES >> 10} KiB", str(path))
    return content
