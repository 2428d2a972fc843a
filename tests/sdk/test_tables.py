"""Tables: what sequences do, what notebooks show, what programs take along. Nothing in a name becomes markup."""

from __future__ import annotations

import csv
import datetime
import io
import sys
import types
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.answer.capacity import room_left
from dovetail.answer.replica.patches import ObjectRef, Patch
from dovetail.answer.what_if import what_if_answer
from dovetail.answer.why.cause_codes import CauseClass, CauseCode
from dovetail.answer.why.why_answer import Cause, Fix, FunnelStep, Holder, Who
from dovetail.sdk import (
    Capacity,
    InputError,
    Table,
    Usage,
    UsageRow,
    WhatIf,
    Why,
    WorkItem,
    html_text,
    result_table,
    table_columns,
)

ALLOWED = {
    *("div", "p", "strong", "ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td"),
    *("details", "summary", "pre", "style"),
}
EPOCH = "2026-01-01T00:00:00Z"
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
HOSTILE = "<script>alert(1)</script>&amp;\"'<img src=x onerror=y>\x1b[31m\x00\u202e"
texts = st.one_of(st.just(HOSTILE), st.text(max_size=40), st.text("<>&\"'/=\x00\n ab", max_size=20))


def work(*names: str, namespace: str = "train") -> Table[WorkItem]:
    items = [
        WorkItem(
            namespace=namespace,
            name=name,
            queue="q",
            state="Pending",
            gpus=float(number),
            pods=1,
            position=number or None,
            nodes=("a", "b"),
            labels={"team": name},
        )
        for number, name in enumerate(names)
    ]
    return Table(items, table_columns.work(NOW))


def element(html: str) -> ET.Element:
    """The HTML as a tree. Fails where it is not well formed, or has anything but plain elements."""
    root = ET.fromstring(html)
    for each in root.iter():
        assert each.tag in ALLOWED
        assert each is root or each.attrib in ({}, {"class": "number"}, {"class": "text"})
    assert root.attrib == {"class": "dovetail"}
    (style,) = root.findall("style")
    assert style.text == html_text.STYLE
    root.remove(style)
    return root


def test_a_table_is_a_sequence() -> None:
    table = work("a", "b", "c")
    assert len(table) == 3
    assert table[0].name == "a"
    assert [item.name for item in table[1:]] == ["b", "c"]
    assert isinstance(table[1:], Table)
    assert table[0] in table
    assert table == work("a", "b", "c")
    assert table != work("a")
    assert not work()


def test_filters_take_tests_values_and_several_values() -> None:
    table = work("a", "b", "c")
    assert [item.name for item in table.filter(lambda item: item.gpus > 0)] == ["b", "c"]
    assert [item.name for item in table.filter(name="b", state="Pending")] == ["b"]
    assert [item.name for item in table.filter(name=["a", "c"])] == ["a", "c"]
    assert len(table.filter(nodes="a")) == 3
    assert not table.filter(nodes="c")
    with pytest.raises(InputError, match='work have no field "nam"; did you mean name'):
        table.filter(nam="b")


def test_sorting_puts_what_has_no_value_last() -> None:
    table = work("a", "b", "c")
    assert [item.name for item in table.sorted_by("position", reverse=True)] == ["c", "b", "a"]
    assert [item.name for item in table.sorted_by(lambda item: -item.gpus)] == ["c", "b", "a"]


def test_repr_and_notebooks_are_cut_and_say_so_str_and_data_are_whole() -> None:
    table = work(*(f"job/{number}" for number in range(result_table.SHOWN_ROWS + 20)))
    assert repr(table).splitlines()[-1] == "... and 20 more"
    assert len(repr(table).splitlines()) == 1 + result_table.SHOWN_ROWS + 1
    assert len(str(table).splitlines()) == 1 + len(table)
    shown = element(table._repr_html_())
    assert len(shown.findall(".//tbody/tr")) == result_table.SHOWN_ROWS
    assert "... and 20 more" in "".join(shown.itertext())
    assert len(element(table.to_html()).findall(".//tbody/tr")) == len(table)
    assert len(table.to_dicts()) == len(table)


def test_an_empty_table_says_what_is_not_there() -> None:
    assert repr(work()) == "no work"
    assert "".join(element(work()._repr_html_()).itertext()) == "no work"
    assert work().to_csv() == "\n"


def test_csv_has_every_field_and_goes_into_a_file(tmp_path: Path) -> None:
    table = work("a, b", "c")
    written = table.to_csv(tmp_path / "work.csv")
    assert (tmp_path / "work.csv").read_text() == written
    rows = list(csv.DictReader(io.StringIO(written)))
    assert [row["name"] for row in rows] == ["a, b", "c"]
    assert rows[0]["isPromised"] == "False"
    assert rows[1]["nodes"] == '["a","b"]'
    assert set(rows[0]) == {*WorkItem.__struct_encode_fields__}


def test_structs_inside_become_columns_of_their_own() -> None:
    table = Table([why("x")], table_columns.reasons())
    (row,) = csv.DictReader(io.StringIO(table.to_csv()))
    assert (row["subject.name"], row["cause.class"]) == ("x", "config")


def test_pandas_is_asked_for_by_name_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="pip install pandas"):
        work("a").to_pandas()


def test_pandas_gets_the_columns_of_csv(monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = types.ModuleType("pandas")
    pandas.DataFrame = list  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    (row,) = work("a").to_pandas()
    assert list(row) == list(WorkItem.__struct_encode_fields__)
    assert row["nodes"] == ["a", "b"]


def why(text: str) -> Why:
    patch = Patch(object=ObjectRef(api_version="v1", kind="Pod", name=text), merge={"a": text})
    return Why(
        subject=ObjectRef(api_version="v1", kind="Pod", namespace=text, name=text),
        schedulable=False,
        cause=Cause(class_=CauseClass.CONFIG, code=next(iter(CauseCode)), sentence=text),
        funnel=(FunnelStep(of=text, step=text, left=1, detail=text),),
        holders=(Holder(pod=text, holds=text, queue=text),),
        fixes=(Fix(who=Who.USER, title=text, patch=(patch,), effect=text),),
        also=(Cause(class_=CauseClass.CONFIG, code=next(iter(CauseCode)), sentence=text),),
        evidence=(text,),
        more_holders=2,
    )


def what_if(text: str) -> WhatIf:
    state = what_if_answer.State(
        nodes=1,
        gpus={text: what_if_answer.GpuType(nodes=1, total=1, used=0, free=1, cordoned=0)},
        waiting_jobs=1,
        starting_jobs=0,
        starting_by_horizon=0,
        waiting=what_if_answer.Waiting(jobs=1, pods=1, gpus=1),
        evictions=0,
        stranded_gpus=0,
        queues={},
    )
    moved = what_if_answer.Moved(pod=text, work=text, before=text, after=text)
    return WhatIf(
        now=EPOCH,
        horizon_seconds=60,
        changes=(what_if_answer.StatedChange(change=text, assumption=text),),
        before=state,
        after=state,
        difference=what_if_answer.Difference(moved=(moved,) * 12),
    )


def capacity(text: str) -> Capacity:
    shape = room_left.ShapeCapacity(
        shape=text,
        now=1,
        after_moving=None,
        if_lower_yields=None,
        is_bounded=False,
        by_type={},
        levels=(),
        waits=text,
    )
    queue = room_left.QueueCapacity(
        queue=text, resource=text, used="1", waiting="0", fair_share="1", left="0"
    )
    return Capacity(shapes=(shape,), queues=(queue,))


@given(texts)
def test_html_is_well_formed_and_shows_hostile_text_as_text(text: str) -> None:
    usage = Usage([UsageRow(by="queue", name=text), UsageRow(by="type", name=text)], 1.0)
    shown = [
        work(text, namespace=text),
        usage,
        Table([why(text)], table_columns.reasons()),
        why(text),
        what_if(text),
        capacity(text),
    ]
    for each in shown:
        element(each._repr_html_())


def test_columns_of_numbers_are_marked() -> None:
    (head,) = element(work("a", "b")._repr_html_()).iter("thead")
    marked = {cell.text for cell in head.iter("th") if cell.attrib["class"] == "number"}
    assert {"position", "gpus"} <= marked
    assert "name" not in marked


def test_hostile_text_is_readable_in_html() -> None:
    cells = [each.text for each in element(work(HOSTILE)._repr_html_()).iter("td")]
    assert any("<script>alert(1)</script>&amp;" in (cell or "") for cell in cells)
    assert not any("\x1b" in (cell or "") or "\u202e" in (cell or "") for cell in cells)


def test_text_for_terminals_cannot_steer_them() -> None:
    assert repr(work(HOSTILE)).replace("\n", "").isprintable()
    assert repr(why(HOSTILE)).replace("\n", "").isprintable()
    assert repr(what_if(HOSTILE)).replace("\n", "").isprintable()
    assert repr(capacity(HOSTILE)).replace("\n", "").isprintable()


def test_answers_are_frozen_and_print_themselves() -> None:
    answer = why("x")
    with pytest.raises(AttributeError):
        answer.schedulable = True  # type: ignore[misc]
    assert repr(answer) == str(answer) == answer.to_text()
    assert msgspec.json.decode(msgspec.json.encode(answer)) == answer.to_dict()
