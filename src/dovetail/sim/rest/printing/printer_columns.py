"""Which columns `kubectl get` shows for which built-in kind; kinds without a printer show name and age.

Given the place where objects are stored; returns their printer. Never reads an object.
"""

from __future__ import annotations

import datetime
from typing import Final

from dovetail.sim.rest.printing import cluster_columns, workload_columns
from dovetail.sim.rest.printing.column_definitions import (
    AGE,
    NAME,
    Cells,
    Printer,
    Tree,
    age_of,
    name_of,
)
from dovetail.sim.server.served_kinds import TableKey

_PRINTERS: Final = workload_columns.PRINTERS | cluster_columns.PRINTERS


def printer_of(table: TableKey) -> Printer:
    """The printer of a kind."""
    return _PRINTERS.get(table, _PLAIN)


def _plain(tree: Tree, now: datetime.datetime) -> Cells:
    return [name_of(tree), age_of(tree, now)]


_PLAIN: Final = Printer((NAME, AGE), _plain)
