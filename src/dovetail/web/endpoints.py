"""What one path of the HTTP interface is made of: parameters, a result, and a plain function between them.

Modules of `web/api` list their endpoints; everything HTTP is about (decoding, pages, versions, errors, the description
for programs) is done for them. An answer is a function of what it may look at: it never waits, reads or writes.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import msgspec

if TYPE_CHECKING:
    from dovetail.web.asked import Asked

Item = TypeVar("Item")

ROOT: Final = "/api/v1"

DEFAULT_LIMIT: Final = 500
MOST_ITEMS: Final = 5000  # of one page


class Page(msgspec.Struct, Generic[Item], frozen=True, kw_only=True, rename="camel"):
    """A list as it is sent. An answer gives all `items`; the rest is filled in when they are sorted and cut."""

    items: Sequence[Item]
    total: int = 0
    next: str | None = None  # the cursor of the following page
    as_of: datetime.datetime | None = None
    version: int = 0


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of an endpoint that takes none."""


class Endpoint(NamedTuple):
    """One path and method.

    `params` holds path and query parameters, or the JSON body of a POST. It is decoded strictly; it should forbid
    unknown fields. Lists (`result` is `Page[Item]`) also take limit, cursor, sort and format, which the answer never
    sees. `is_quick` says that the answer never asks for the replica, so that it need not wait for one that does.
    """

    path: str  # below the root, such as "/why/{namespace}/{kind}/{name}"
    params: type[msgspec.Struct]
    result: Any  # a Struct type, or Page[Item]
    answer: Callable[[Asked, Any], Any]
    method: str = "GET"
    summary: str = ""
    is_quick: bool = False
    root: str = ROOT

    @property
    def full_path(self) -> str:
        """The path as clients ask for it."""
        return self.root + self.path

    @property
    def is_list(self) -> bool:
        """Whether the result is cut into pages."""
        return getattr(self.result, "__origin__", None) is Page

    @property
    def item(self) -> Any:
        """What the pages of a list hold."""
        return self.result.__args__[0]
