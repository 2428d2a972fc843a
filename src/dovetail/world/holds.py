"""Why devices are kept out of use although no claim has them. Data only."""

from __future__ import annotations

import datetime
from typing import NamedTuple


class Doubt(NamedTuple):
    """A pod was removed by force and may still be using its devices."""

    pod: str  # namespace and name
    queue: str  # that is charged meanwhile; nothing: none
    until: datetime.datetime
