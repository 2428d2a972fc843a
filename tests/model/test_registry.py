"""The registry of kinds: every table and type that lists kinds elsewhere agrees with it."""

from __future__ import annotations

import datetime
import typing
from typing import Any

import pytest

from dovetail import errors
from dovetail.kubetypes import codec, meta, registry
from dovetail.live.informer import informer
from dovetail.model import gangs
from dovetail.sim.server import api_server
from dovetail.snapshot import snapshot_format, snapshot_kinds
from dovetail.world import events
from dovetail.world.world import World

NOT_KEPT_WHOLE = (registry.SLICE, registry.NAMESPACE)  # the informer knows them by name only
WORLD_STRUCTS = {kind.struct for kind in registry.WORLD}


class StoppedClock:
    def now(self) -> datetime.datetime:
        return datetime.datetime(2026, 1, 31, 8, tzinfo=datetime.UTC)

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("this test needs no time")


def an_object_of(kind: registry.Kind, version: str = "1") -> Any:
    namespace = "train" if kind.is_namespaced else ""
    metadata = meta.ObjectMeta(
        namespace=namespace, name="a", uid=f"uid-of-{kind.name}", resource_version=version
    )
    return kind.struct(api_version=kind.api_version, kind=kind.name, metadata=metadata)


def test_a_kind_stands_once_in_the_table() -> None:
    assert len({(kind.api_version, kind.name) for kind in registry.ALL}) == len(registry.ALL)
    groups_and_plurals = {
        (kind.api_version.rpartition("/")[0], kind.plural) for kind in registry.ALL
    }
    assert len(groups_and_plurals) == len(registry.ALL)
    assert len({kind.unique_name for kind in registry.ALL}) == len(registry.ALL)


def test_every_named_kind_is_in_the_table() -> None:
    named = {value for value in vars(registry).values() if isinstance(value, registry.Kind)}
    assert named | set(registry.TRAINING) == set(registry.ALL)


def test_the_type_unions_list_the_kinds_of_the_world() -> None:
    assert set(typing.get_args(registry.WorldObject)) == WORLD_STRUCTS
    assert set(typing.get_args(codec.Object)) == WORLD_STRUCTS | {codec.Generic}
    assert set(typing.get_args(events.Object)) == WORLD_STRUCTS | {gangs.Gang}


@pytest.mark.parametrize("kind", registry.ALL, ids=lambda kind: kind.name)
def test_the_world_keeps_the_kinds_it_is_made_of_and_no_others(kind: registry.Kind) -> None:
    change = events.Changed(an_object_of(kind))
    if kind.is_in_world:
        World().apply(change)
    else:
        with pytest.raises(errors.StateError):
            World().apply(change)


@pytest.mark.parametrize("kind", registry.WORLD, ids=lambda kind: kind.name)
def test_the_codec_decodes_every_kind_of_the_world(kind: registry.Kind) -> None:
    result = an_object_of(kind)
    assert type(codec.decode(codec.encode_struct(result)).struct) is kind.struct


@pytest.mark.parametrize(
    "kind",
    [kind for kind in (*registry.WATCHED, *registry.OURS) if kind not in NOT_KEPT_WHOLE],
    ids=lambda kind: kind.name,
)
def test_the_informer_hands_over_what_was_there_before(kind: registry.Kind) -> None:
    result = an_object_of(kind)
    picture = informer.Informer(World(), StoppedClock(), (kind,))
    befores: list[Any] = []
    picture.listen(lambda kind, event, before: befores.append(before))
    picture.observe(kind, result)
    picture.observe(kind, an_object_of(kind, version="2"))
    assert befores == [None, result]


def test_the_simulated_server_serves_what_the_world_is_made_of() -> None:
    served = {row.kind for row in api_server.SimApi().kinds.all()}
    assert set(registry.ALL) <= served


def test_a_snapshot_holds_what_the_world_is_made_of() -> None:
    kept = (
        *registry.WORLD,
        *registry.OWNERS,
        *registry.PARENTS,  # gangs are derived from these two
        *snapshot_kinds.EXPLAINING,
    )
    assert set(snapshot_format.KINDS) == set(kept)
    assert len(snapshot_format.KINDS) == len(kept)
    files = {snapshot_format.file_of(kind) for kind in snapshot_format.KINDS}
    assert len(files) == len(kept)
