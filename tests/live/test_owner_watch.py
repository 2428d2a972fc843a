"""Owners in, gangs out: reported once and again when they differ; the served kinds may change at any time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kubetypes import meta, registry
from dovetail.kubetypes.workloads import owners
from dovetail.live.gangs import owner_watch
from dovetail.live.informer import informer
from dovetail.model import gangs
from dovetail.ports import failures
from dovetail.sim.virtual_clock import VirtualClock
from dovetail.world.owners import gang_builder
from dovetail.world.world import World
from tests.live.live_scheduler import Stage, play

TRAIN_JOB, RAY_JOB, _ = registry.PARENTS


class GangRecorder:
    """Records the gangs that a gang builder reports, by name."""

    def __init__(self) -> None:
        self.there: dict[str, gangs.Gang] = {}
        self.said: list[str] = []

    def replaced(self, kind: registry.Kind, objects: Iterable[Any], resource_version: str) -> None:
        self.there = {item.metadata.name: item for item in objects}

    def changed(self, kind: registry.Kind, gang: gangs.Gang) -> None:
        self.said.append(f"+{gang.metadata.name}")
        self.there[gang.metadata.name] = gang

    def deleted(self, kind: registry.Kind, gang: gangs.Gang) -> None:
        self.said.append(f"-{gang.metadata.name}")
        del self.there[gang.metadata.name]


def named(name: str, *, maker: str = "", uid: str = "", **annotations: str) -> meta.ObjectMeta:
    made_by = (
        (meta.OwnerReference(kind="TrainJob", name=maker, uid=maker, controller=True),)
        if maker
        else ()
    )
    notes = {f"dovetail.dev/{key}": value for key, value in annotations.items()}
    return meta.ObjectMeta(
        namespace="ml", name=name, uid=uid, annotations=notes, owner_references=made_by
    )


def job(name: str, **annotations: str) -> owners.Job:
    return owners.Job(metadata=named(name, **annotations))


def test_a_gang_is_reported_once_and_again_when_it_differs() -> None:
    events = GangRecorder()
    book = gang_builder.GangBuilder(events)
    book.changed(registry.JOB, job("a"))
    book.changed(registry.JOB, job("a"))
    assert events.said == ["+job/a"]
    book.changed(registry.JOB, job("a", queue="research"))
    book.deleted(registry.JOB, job("a"))
    book.deleted(registry.JOB, job("a"))
    assert events.said == ["+job/a", "+job/a", "-job/a"]


def test_what_made_an_owner_speaks_for_it_whichever_is_seen_first() -> None:
    events = GangRecorder()
    book = gang_builder.GangBuilder(events)
    child = owners.JobSet(metadata=named("a", maker="t"))
    book.changed(registry.JOB_SET, child)
    assert events.there["jobset/a"].queue == ""
    book.changed(TRAIN_JOB, owners.Parent(metadata=named("a", uid="t", queue="research")))
    assert events.there["jobset/a"].queue == "research"
    book.deleted(TRAIN_JOB, owners.Parent(metadata=named("a", uid="t")))
    assert events.there["jobset/a"].queue == ""
    book.deleted(registry.JOB_SET, child)
    book.changed(TRAIN_JOB, owners.Parent(metadata=named("a", uid="t", queue="research")))
    assert events.there == {}


STEPS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["", "x", "y", "gone"])), max_size=12
)


@given(STEPS, st.booleans())
def test_a_list_leaves_what_single_changes_would_have_left(
    steps: list[tuple[str, str]], is_listed: bool
) -> None:
    events = GangRecorder()
    book = gang_builder.GangBuilder(events)
    there: dict[str, str] = {}
    for name, queue in steps:
        if queue == "gone":
            book.deleted(registry.JOB, job(name))
            there.pop(name, None)
        else:
            book.changed(registry.JOB, job(name, queue=queue))
            there[name] = queue
    if is_listed:
        there = {"c": "z"}
        book.changed(registry.JOB, job("c", queue="z"))
        book.finish_list("Job", {("Job", "ml", "c")})
    assert {name.removeprefix("job/"): one.queue for name, one in events.there.items()} == there
    assert sorted(gang.metadata.name for gang in book.all_gangs()) == sorted(events.there)


class Server:
    """What is served, and the feeds of those who follow it."""

    def __init__(self, *served: registry.Kind) -> None:
        self.served = served
        self.feeds: dict[str, informer.Feed] = {}
        self.is_silent = False
        self.troubles: list[tuple[str, str]] = []

    async def ask(self) -> tuple[registry.Kind, ...]:
        if self.is_silent:
            raise failures.Unavailable("no answer")
        return self.served

    async def follow(self, kind: registry.Kind, feed: informer.Feed) -> None:
        self.feeds[kind.name] = feed
        try:
            await asyncio.Event().wait()
        finally:
            del self.feeds[kind.name]

    def trouble(self, kind: str, reason: str) -> None:
        self.troubles.append((kind, reason))


def run(server: Server, story: Callable[[informer.Informer, VirtualClock], Any]) -> None:
    async def main() -> None:
        clock = VirtualClock()
        seen = informer.Informer(World(), clock, (gangs.KIND,))
        grouped = owner_watch.OwnerWatch(
            seen, clock, served=server.ask, follow=server.follow, trouble=server.trouble
        )
        tasks = [asyncio.create_task(seen.pump()), asyncio.create_task(grouped.run())]
        try:
            await story(seen, clock)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())


def test_the_picture_is_whole_once_all_that_is_served_is_listed() -> None:
    server = Server(registry.JOB, registry.JOB_SET)

    async def story(seen: informer.Informer, clock: VirtualClock) -> None:
        await clock.advance(0)
        server.feeds["Job"].replaced([job("a", queue="x"), job("b")], "7")
        await clock.advance(1)
        assert not seen.synced.is_set()
        server.feeds["JobSet"].replaced([owners.JobSet(metadata=named("s"))], "8")
        await clock.advance(1)
        assert seen.synced.is_set()
        assert sorted(
            item
            for item in ("job/a", "job/b", "jobset/s")
            if seen.world.gangs.declared(("ml", item))
        ) == [
            "job/a",
            "job/b",
            "jobset/s",
        ]
        server.feeds["Job"].replaced([job("b")], "9")
        await clock.advance(0)
        assert seen.world.gangs.declared(("ml", "job/a")) is None
        server.feeds["Job"].deleted(job("b"))
        await clock.advance(0)
        assert seen.world.gangs.declared(("ml", "job/b")) is None

    run(server, story)
    assert server.troubles == []


def test_a_kind_that_cannot_be_listed_delays_no_pod_for_long() -> None:
    server = Server(registry.JOB)

    async def story(seen: informer.Informer, clock: VirtualClock) -> None:
        await clock.advance(owner_watch.PATIENCE_SECONDS - 1)
        assert not seen.synced.is_set()
        await clock.advance(2)
        assert seen.synced.is_set()
        server.feeds["Job"].replaced([job("a")], "7")
        await clock.advance(0)
        assert seen.world.gangs.declared(("ml", "job/a")) is not None

    run(server, story)
    assert [kind for kind, _ in server.troubles] == ["Job"]


def test_kinds_come_and_go() -> None:
    server = Server()

    async def story(seen: informer.Informer, clock: VirtualClock) -> None:
        await clock.advance(1)
        assert seen.synced.is_set()
        server.served = (registry.JOB_SET,)
        await clock.advance(owner_watch.DISCOVERY_SECONDS)
        server.feeds["JobSet"].changed(owners.JobSet(metadata=named("s")))
        await clock.advance(0)
        assert seen.world.gangs.declared(("ml", "jobset/s")) is not None
        server.is_silent = True  # the server does not say that the kind is gone
        await clock.advance(owner_watch.DISCOVERY_SECONDS)
        assert [*server.feeds] == ["JobSet"]
        server.is_silent, server.served = False, ()
        await clock.advance(owner_watch.DISCOVERY_SECONDS)
        assert server.feeds == {}
        assert seen.world.gangs.declared(("ml", "jobset/s")) is None

    run(server, story)
    assert [reason.partition(":")[0] for _, reason in server.troubles] == ["discovery"]


def test_a_watch_that_ends_by_itself_ends_everything() -> None:
    server = Server(registry.JOB)

    async def broken(kind: registry.Kind, feed: informer.Feed) -> None:
        raise RuntimeError("a bug")

    async def main() -> None:
        clock = VirtualClock()
        seen = informer.Informer(World(), clock, (gangs.KIND,))
        grouped = owner_watch.OwnerWatch(
            seen, clock, served=server.ask, follow=broken, trouble=server.trouble
        )
        with pytest.raises(ExceptionGroup) as ended:
            await grouped.run()
        assert [str(exception) for exception in ended.value.exceptions] == ["a bug"]

    asyncio.run(main())


def test_an_ignored_annotation_is_reported_once_however_many_pods_carry_it() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.template("one")
        for name in ("a", "b"):
            stage.pod(name, templates=("one",), annotations={"dovetail.dev/max-runtime": "soon"})
        async with stage.scheduling():
            await stage.pass_time(5)
        [event] = stage.events("AnnotationIgnored")
        assert event.type == "Warning"
        assert 'dovetail.dev/max-runtime: "soon" is ignored' in event.note
        assert len(stage.events("Scheduled")) == 2

    play(story)


def test_a_pod_that_asks_for_a_share_by_annotation_waits_with_the_reason_on_it() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.pod("shares", annotations={"gpu-fraction": "0.5"})
        async with stage.scheduling():
            await stage.pass_time(5)
        assert not stage.events("Scheduled")
        assert not stage.events("AnnotationIgnored")
        [event] = stage.events("FailedScheduling")
        assert 'annotation gpu-fraction: "0.5"' in event.note
        assert "capacity.requests.memory" in event.note

    play(story)


def kai_group(name: str, **spec: Any) -> owners.KaiPodGroup:
    metadata = meta.ObjectMeta(namespace="default", name=name)
    return owners.KaiPodGroup(metadata=metadata, spec=owners.KaiPodGroupSpec(**spec))


def test_groups_of_kai_and_of_kubernetes_with_one_name_are_two_gangs() -> None:
    recorded = GangRecorder()
    book = gang_builder.GangBuilder(recorded)
    native = owners.PodGroup(metadata=meta.ObjectMeta(namespace="default", name="pg"))
    book.changed(registry.POD_GROUP, native)
    book.changed(registry.KAI_POD_GROUP, kai_group("pg", min_member=2))
    assert sorted(recorded.there) == ["kai-podgroup/pg", "podgroup/pg"]
    book.finish_list(registry.KAI_POD_GROUP.unique_name, ())
    assert sorted(recorded.there) == ["podgroup/pg"]


def test_bare_pods_of_a_kai_group_start_together_or_not_at_all() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.template("one")
        words = {"pod-group-name": "pg"}
        for name in ("a", "b", "c"):
            stage.pod(name, templates=("one",), annotations=words)
        async with stage.scheduling():
            await stage.pass_time(60)
            assert not stage.events("Scheduled"), "no group, no start"
            assert any(
                "its KAI PodGroup pg has not been seen yet" in event.note
                for event in stage.events("FailedScheduling")
            )
            stage.book.changed(registry.KAI_POD_GROUP, kai_group("pg", min_member=3))
            await stage.pass_time(60)
            assert not stage.events("Scheduled"), "two GPUs are no room for three pods"
            stage.book.changed(registry.KAI_POD_GROUP, kai_group("pg", min_member=2))
            await stage.pass_time(60)
        assert len(stage.events("Scheduled")) == 2

    play(story)


def test_a_driver_that_an_image_rules_out_is_an_event_on_the_pod_that_starts_there() -> None:
    async def story() -> None:
        stage = Stage(nodes=1, gpus=2)
        stage.template("one")
        variable = {"name": "NVIDIA_REQUIRE_CUDA", "value": "no comparison"}
        container = {"name": "main", "image": "x", "env": [variable]}
        container["resources"] = {"claims": [{"name": "t0"}]}
        stage.pod("trains", templates=("one",), containers=[container])
        async with stage.scheduling():
            await stage.pass_time(5)
        assert len(stage.events("Scheduled")) == 1
        [event] = stage.events("ImageRequirementsUnmet")
        assert event.type == "Warning"
        assert "invalid constraint: no" in event.note

    play(story)
