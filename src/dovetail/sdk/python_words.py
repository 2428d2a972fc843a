"""Errors of questions in the words of Python: parameters instead of the options of the command line.

Given the messages that `ask/` and `answer/` raise for both doors. Never changes what they mean.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Final

from dovetail import errors

_OPTION: Final = re.compile(r"(?<![\w-])--(?P<name>[a-z][a-z0-9-]*)")
_NAMESPACE: Final = re.compile(r"(?<![\w-])-n (?P<name>[a-z0-9][a-z0-9-]*)")
_LABELS: Final = re.compile(r'(?<![\w-])-l(?= ")')


@contextlib.contextmanager
def said() -> Iterator[None]:
    """Errors about input that are raised inside it speak of parameters."""
    try:
        yield
    except errors.InputError as error:
        kind = errors.NotFound if isinstance(error, errors.NotFound) else errors.InputError
        raise kind(translated(str(error))) from None


def translated(message: str) -> str:
    """`--gpu-memory` is gpu_memory, `-n train` is namespace="train"."""
    message = _NAMESPACE.sub(r'namespace="\g<name>"', message)
    message = _LABELS.sub("labels", message)
    return _OPTION.sub(lambda match: match["name"].replace("-", "_"), message)
