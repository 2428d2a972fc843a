"""The records of a question, from a store as from a document."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail import errors
from dovetail.answer.cost import cost_window
from dovetail.ask import recorded_history
from dovetail.history import stores
from dovetail.model.accounting import records
from tests.answer.cost import accounts

WINDOW = cost_window.Window(accounts.at(0), accounts.at(4))


def test_a_store_is_read_until_it_was_last_confirmed(tmp_path: Path) -> None:
    path = str(tmp_path / "history.sqlite")
    asset = accounts.gpu("GPU-0")
    with stores.open_store(path, create=True) as store:
        store.append(records.Records(assets=(asset,)), watched_until=accounts.at(3))
    recorded = recorded_history.read(path, WINDOW)
    assert recorded.records.assets == (asset,)
    assert recorded.until == accounts.at(3)


def test_a_database_of_another_kind_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    path.write_bytes(b"SQLite format 3\0" + bytes(100))
    with pytest.raises(errors.InputError, match=r"other\.sqlite"):
        recorded_history.read(str(path), WINDOW)
    with pytest.raises(errors.InputError, match=r"missing\.sqlite"):
        recorded_history.read(str(tmp_path / "missing.sqlite"), WINDOW)
