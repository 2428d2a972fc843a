"""Where records of the past come from: a history store by file or URL, or a file of records as JSON.

Given what the user named. Raises InputError where it cannot be read, naming the place. Never writes history.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from dovetail import errors
from dovetail.model.accounting import records
from dovetail.model.accounting.records import Millis

LARGEST: Final = 100 * 10**12  # beyond it are neither bytes of a GPU nor times before the year 5000


def of_store(place: str, start: Millis, end: Millis) -> records.Records:
    """What a history store, at a path or URL, has about a window."""
    from dovetail.history import stores

    try:
        with stores.open_store(place) as store:
            return store.records(start, end)
    except (errors.NotFound, errors.StateError) as error:
        raise errors.InputError(str(error)) from None


def of_file(file: str) -> records.Records:
    """Records that were saved as JSON; `-` is standard input."""
    from dovetail.files import bounded_files

    name = bounded_files.display_name(file)
    try:
        given = msgspec.json.decode(bounded_files.content(file), type=records.Records)
    except (msgspec.DecodeError, RecursionError) as error:  # of types, too
        raise errors.InputError(f"{name}: no records of GPU accounting: {error}") from None
    for place, value in _numbers(given):
        if not 0 <= value <= LARGEST:
            raise errors.InputError(f"{name}: {place}: {value} cannot be; expected 0 to {LARGEST}")
    return given


def _numbers(given: records.Records) -> Iterator[tuple[str, int]]:
    """Times, shares and bytes, with where they are."""
    for kind in ("assets", "allocations", "usage", "gaps", "out_of_memory"):
        for index, each in enumerate(getattr(given, kind)):
            for field in each.__struct_fields__:
                value = getattr(each, field)
                if isinstance(value, int):
                    yield f"{kind}[{index}].{field}", value


def last_time(given: records.Records) -> Millis:
    """The latest time that records speak of; 0 where there are none."""
    times = [sample.end for sample in given.usage]
    times += [allocation.end or allocation.start for allocation in given.allocations]
    times += [event.at for event in given.out_of_memory]
    return max(times, default=0)
