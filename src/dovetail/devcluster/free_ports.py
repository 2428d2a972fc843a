"""Free loopback ports for the parts of a control plane, reserved against other processes.

Seconds pass between choosing a port and listening on it, and a part that is restarted wants its old one back. So
a port is reserved for as long as this process runs or until it is released, against every other process here
that asks this module. The system keeps the reservation (a name without a file) and drops it with the process.
"""

from __future__ import annotations

import atexit
import socket
from collections.abc import Sequence
from random import SystemRandom
from typing import Final

# Below the range the system takes the ports of outgoing connections from: a part that is restarted finds its
# port free, and a client of a stopped part cannot connect to itself.
RANGE: Final = range(12_000, 32_000)

_reserved: Final[dict[int, socket.socket]] = {}


def reserve(among: Sequence[int] = RANGE) -> int:
    """A port that is free and not reserved by another process. Tries until there is one."""
    chance = SystemRandom()
    while True:
        port = chance.choice(among)
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0dovetail-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:  # the reservation or the port is taken: try another
            name.close()
            continue
        _reserved[port] = name
        return port


@atexit.register
def release_all() -> None:
    """Releases all reservations of this process."""
    for port in [*_reserved]:
        release(port)


def release(port: int) -> None:
    """Releases the port, if it was reserved here."""
    if (name := _reserved.pop(port, None)) is not None:
        name.close()
