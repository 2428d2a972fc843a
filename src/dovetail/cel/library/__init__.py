"""The functions expressions can call, as Kubernetes 1.37 declares them for device selectors.

`STORED` is what expressions already in the cluster may use, `NEW` what new ones may: all but the newest
functions. Operators are not here, nor is anything about types or costs.
"""

from __future__ import annotations

from dovetail.cel.check.declarations import Library
from dovetail.cel.library import (
    conversions,
    formats,
    formatting,
    kubernetes,
    lists,
    network,
    optionals,
    regex,
    sets,
    strings,
    times,
    urls,
)

__all__ = ["NEW", "STORED"]

_SHARED = (
    *conversions.OVERLOADS,
    *times.OVERLOADS,
    *formatting.OVERLOADS,
    *regex.OVERLOADS,
    *lists.EXTENDED,
    *sets.OVERLOADS,
    *optionals.OVERLOADS,
    *network.OVERLOADS,
    *urls.OVERLOADS,
    *formats.OVERLOADS,
    *kubernetes.OVERLOADS,
)
# `indexOf` and `lastIndexOf` belong to strings and lists; which come first differs between the two.
STORED: Library = Library((*strings.OVERLOADS, *_SHARED, *lists.KUBERNETES, lists.INCLUDES))
NEW: Library = Library((*lists.KUBERNETES, *strings.OVERLOADS, *_SHARED))
