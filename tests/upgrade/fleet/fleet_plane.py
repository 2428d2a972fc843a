"""A control plane for fleets alone: an upgrade counts every node of its cluster, also those that other tests left.

Started by the first story of a test process, ended with the session.
"""

from __future__ import annotations

import contextlib
import functools

from dovetail.devcluster import control_plane
from tests.support import cluster as planes

_open = contextlib.ExitStack()


@functools.cache
def plane() -> control_plane.ControlPlane:
    """The running one."""
    return _open.enter_context(planes.private_plane())


def stop() -> None:
    """Ends it, where it was started."""
    _open.close()
    plane.cache_clear()
