"""Keeps a long-running process small: one process of it runs on every node.

glibc gives each thread an arena of its own and keeps what is freed. Few arenas are enough for threads that mostly wait,
and what starting up needed is given back once. Does nothing with another C library. Never changes behaviour.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Final

_ARENA_MAX: Final = -8  # M_ARENA_MAX of malloc.h
ARENAS: Final = 2


def limit_arenas() -> None:
    """Before threads start."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_ARENA_MAX, ARENAS)


def give_back() -> None:
    """After starting: what lives now lives long, and what was freed goes back to the system."""
    gc.collect()
    gc.freeze()
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
