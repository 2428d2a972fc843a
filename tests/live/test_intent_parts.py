"""A gang of any size is stored before its first write, in parts that a server can store."""

from __future__ import annotations

import pytest

from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.custom import intents
from dovetail.live.bind import write_retry
from dovetail.live.bind.binder import PodBinding
from dovetail.live.intents import intent_parts, intent_store
from dovetail.model import plan
from dovetail.ports import failures, meter
from dovetail.ports.api import Target
from dovetail.sim.server import api_server, object_store
from tests.live.live_scheduler import Stage, play

SMALL = 200  # bytes: two members a part


def load(number: int, *, claims: int, name_length: int) -> PodBinding:
    """What a member of a large gang is given, with names as long as they may be."""
    name = f"pod-{number:05d}".ljust(name_length, "x")
    uses = tuple(("default", f"{name[: name_length - 3]}-c{claim}") for claim in range(claims))
    ref = plan.PodRef("default", name, f"{number:036d}")
    return PodBinding(plan.Placement(pod=ref, node="node".ljust(name_length, "x")), uses, [])


@pytest.mark.parametrize(
    ("pods", "claims", "name_length"), [(4096, 4, 60), (180, 30, 250), (5000, 1, 40)]
)
def test_a_gang_too_large_for_one_object_is_put_down_in_parts(
    pods: int, claims: int, name_length: int
) -> None:
    async def story() -> None:
        api = api_server.SimApi()
        settler = write_retry.Writer(api, api.clock, meter.NoMeter())
        keeper = intent_store.IntentStore(
            settler, api.clock, listing=intent_store.no_intents, seconds=60
        )
        loads = [load(number, claims=claims, name_length=name_length) for number in range(pods)]
        gang = plan.GangRef("default", "gang/large")
        begun = await keeper.write(gang, loads)
        assert begun is not None
        stored = api.all(registry.INTENT)
        assert len(stored) == len(begun.parts) > 1
        assert all(
            len(codec.encode_struct(item)) < object_store.REQUEST_BYTES // 2 for item in stored
        )
        (joined,) = intent_parts.join_parts(stored)
        assert joined.is_whole
        assert joined.gang == gang
        assert [member.uid for member in joined.members] == [
            item.placement.pod.uid for item in loads
        ]
        await keeper.remove_all(begun)
        assert api.all(registry.INTENT) == []

    play(story)


def test_the_server_in_memory_refuses_what_etcd_would() -> None:
    async def story() -> None:
        api = api_server.SimApi()
        members = tuple(
            intents.Member(pod="p" * 250, uid=f"{number}", node="n" * 250) for number in range(4000)
        )
        intent = intent_store.intent_of(
            "default", intents.IntentSpec(gang="gang/large", members=members)
        )
        with pytest.raises(failures.Futile, match="too large"):
            await api.create(Target(registry.INTENT, "default"), codec.encode_struct(intent))
        assert api.all(registry.INTENT) == []

    play(story)


def test_a_gang_in_parts_starts_and_leaves_no_part_behind() -> None:
    async def story() -> None:
        stage = Stage(nodes=4, gpus=2)
        stage.template("one")
        written = 0
        order: list[str] = []

        def before(verb: str, target: Target) -> None:
            nonlocal written
            if verb == "create" and target.kind is registry.INTENT:
                written += 1
                order.append("intent")
            elif target.kind is registry.CLAIM and verb == "patch":
                order.append("claim")

        stage.api.before = before
        names = stage.gang("gang", 8, templates=("one",))
        async with stage.scheduling(intent_part_bytes=SMALL):
            await stage.pass_time(3)
            assert all(stage.node_of(name) for name in names)
            assert written > 2
            assert order[:written] == ["intent"] * written  # every part before the first claim
            assert stage.intents() == []

    play(story)


@pytest.mark.parametrize("deaths", range(1, 9))
def test_a_leader_that_dies_between_two_parts_leaves_a_gang_that_starts_as_a_whole(
    deaths: int,
) -> None:
    """Also where parts are being removed: what is bound by then stays."""

    async def story() -> None:
        stage = Stage(nodes=4, gpus=2)
        stage.template("one")
        names = stage.gang("gang", 8, templates=("one",))
        count = 0

        def before(verb: str, target: Target) -> None:
            nonlocal count
            if target.kind is registry.INTENT and verb != "get":
                count += 1
                if count == deaths:
                    raise failures.Fenced("no longer the leader")

        stage.api.before = before
        async with stage.scheduling(intent_part_bytes=SMALL):
            await stage.pass_time(2)
        assert count == deaths
        stage.api.before = None
        bound = [name for name in names if stage.node_of(name)]
        assert len(bound) in (0, 8)
        stage.ended = None
        async with stage.scheduling(intent_part_bytes=SMALL):
            await stage.pass_time(5)
            assert all(stage.node_of(name) for name in names)
            assert stage.intents() == []
            assert len(stage.devices()) == 8
            assert stage.differences() == ()
        assert stage.ended is None

    play(story)


@pytest.mark.parametrize("has_all_parts", [True, False])
def test_a_gang_with_a_pod_bound_is_completed_only_if_all_parts_are_there(
    has_all_parts: bool,
) -> None:
    async def story() -> None:
        stage = Stage(nodes=4, gpus=2)
        stage.template("one")
        names = stage.gang("gang", 8, templates=("one",))
        bindings = 0

        def before(verb: str, target: Target) -> None:
            nonlocal bindings
            bindings += target.subresource == "binding"
            if bindings > 3:
                raise failures.Fenced("no longer the leader")

        stage.api.before = before
        async with stage.scheduling(intent_part_bytes=SMALL):
            await stage.pass_time(2)
        stage.api.before = None
        before_it = {name: stage.node_of(name) for name in names if stage.node_of(name)}
        assert len(before_it) == 3
        if not has_all_parts:
            lost = stage.intents()[-1]
            await stage.api.delete(Target(registry.INTENT, "default", lost.metadata.name))
        async with stage.scheduling(intent_part_bytes=SMALL):
            await stage.pass_time(1)
            leaving = [
                name for name in before_it if stage.the_pod(name).metadata.deletion_timestamp
            ]
            if has_all_parts:
                assert all(stage.node_of(name) for name in names)
                assert leaving == []
            else:
                assert sorted(leaving) == sorted(before_it)
            assert stage.intents() == []

    play(story)


def test_a_server_that_keeps_no_parts_is_not_trusted_with_them() -> None:
    """The definition of intents may be older than the scheduler."""

    async def story() -> None:
        class Pruning(api_server.SimApi):
            async def create(
                self, target: Target, document: bytes, *, brief: bool = False
            ) -> bytes:
                tree = codec.tree_of(codec.decode_struct(intents.Intent, document))
                for name in ("part", "parts", "batch"):
                    tree["spec"].pop(name, None)
                return await super().create(target, codec.encode_tree(tree), brief=brief)

        api = Pruning()
        settler = write_retry.Writer(api, api.clock, meter.NoMeter())
        keeper = intent_store.IntentStore(
            settler, api.clock, listing=intent_store.no_intents, seconds=60, part_bytes=SMALL
        )
        loads = [load(number, claims=1, name_length=20) for number in range(8)]
        with pytest.raises(failures.Refused, match="update the custom resource definitions"):
            await keeper.write(plan.GangRef("default", "gang/large"), loads)
        assert api.all(registry.INTENT) == []

    play(story)
