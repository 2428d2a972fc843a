"""Volumes in the live loop, in memory and simulated time: written, waited for, then the binding; nothing is lost."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from dovetail.kubetypes import registry
from dovetail.kubetypes.storage import volumes
from dovetail.live.bind import volume_provisioning
from dovetail.live.report import recorder
from dovetail.model import plan
from dovetail.ports import failures
from dovetail.ports.api import Target
from tests.live.live_scheduler import Stage, play
from tests.schedule import build
from tests.schedule import storage as store

HOSTNAME = "kubernetes.io/hostname"
Tree = dict[str, Any]


class Depot(Stage):
    """A stage with classes of volumes: some that are there, some that are made when asked for."""

    def __init__(self, **facts: Any) -> None:
        super().__init__(**facts)
        self.names = sorted(item.metadata.name for item in self.api.all(registry.NODE))
        for name, provisioner in (
            ("local", volumes.NO_PROVISIONER),
            ("dynamic", "disk.example.com"),
        ):
            body = {
                "provisioner": provisioner,
                "volumeBindingMode": volumes.WAIT_FOR_FIRST_CONSUMER,
            }
            self._put("storage.k8s.io/v1", "StorageClass", name, body)

    def volume(self, name: str, node: str, *, size: str = "10Gi") -> None:
        test = {"key": HOSTNAME, "operator": "In", "values": [node]}
        spec = {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [test]}]}},
        }
        self._put("v1", "PersistentVolume", name, {"spec": spec, "status": {"phase": "Available"}})

    def volume_claim(self, name: str, class_: str) -> None:
        spec = {"resources": {"requests": {"storage": "5Gi"}}, "accessModes": ["ReadWriteOnce"]}
        self._put(
            "v1", "PersistentVolumeClaim", name, {"spec": spec | {"storageClassName": class_}}
        )

    def user(self, name: str, claim: str, **more: Any) -> None:
        """A pod that uses a volume claim."""
        self.pod(
            name, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claim}}], **more
        )

    def the_claim(self, name: str) -> volumes.PersistentVolumeClaim:
        volume_claim: volumes.PersistentVolumeClaim = self.api.find(
            registry.VOLUME_CLAIM, name, namespace="default"
        )
        return volume_claim

    def the_volume(self, name: str) -> volumes.PersistentVolume:
        volume: volumes.PersistentVolume = self.api.find(registry.VOLUME, name)
        return volume

    def selected(self, name: str) -> str:
        return self.the_claim(name).metadata.annotations.get(volumes.SELECTED_NODE, "")

    def unselect(self, name: str) -> None:
        """A provisioner that cannot make the volume says so."""
        tree = self.api.tree(registry.VOLUME_CLAIM, name, namespace="default")
        tree["metadata"]["annotations"].pop(volumes.SELECTED_NODE)
        self.api.shelf.put(registry.VOLUME_CLAIM, tree)

    def _put(self, version: str, kind: str, name: str, body: Tree) -> None:
        self.api.put({"apiVersion": version, "kind": kind, "metadata": {"name": name}, **body})


def test_a_volume_is_given_to_its_claim_and_bound_before_the_pod_is() -> None:
    async def story() -> None:
        stage = Depot(nodes=2)
        stage.volume("v", stage.names[1])
        stage.volume_claim("data", "local")
        order: list[str] = []
        stage.api.after = lambda verb, target: order.append(f"{verb} {target}")
        async with stage.scheduling():
            stage.user("a", "data")
            await stage.pass_time(0.5, settle=False)
            ref = stage.the_volume("v").spec.claim_ref
            assert ref is not None
            assert (ref.name, ref.uid) == ("data", stage.the_claim("data").metadata.uid)
            assert stage.the_volume("v").metadata.annotations == {
                volumes.BOUND_BY_CONTROLLER: "yes"
            }
            assert stage.node_of("a") == "", "the claim is not bound yet"
            await stage.pass_time(3)
            assert stage.the_claim("data").is_bound
            assert stage.node_of("a") == stage.names[1]
            assert stage.differences() == ()
        writes = [name for name in order if "volume" in name or "binding" in name]
        assert writes == ["patch persistentvolumes v", "create pods default/a/binding"]

    play(story)


def test_a_volume_is_made_where_the_pod_goes() -> None:
    async def story() -> None:
        stage = Depot(nodes=2)
        stage.volume_claim("data", "dynamic")
        async with stage.scheduling():
            stage.user("a", "data", nodeSelector={HOSTNAME: stage.names[1]})
            await stage.pass_time(0.5, settle=False)
            assert stage.selected("data") == stage.names[1]
            assert stage.node_of("a") == ""
            await stage.pass_time(3)
            assert stage.node_of("a") == stage.names[1]
            assert stage.differences() == ()

    play(story)


def test_the_claim_of_an_ephemeral_volume_is_waited_for() -> None:
    async def story() -> None:
        stage = Depot(nodes=1)
        spec = {"storageClassName": "dynamic", "resources": {"requests": {"storage": "1Gi"}}}
        scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
        stage.pod("a", volumes=[scratch])
        async with stage.scheduling():
            await stage.pass_time(5)
            assert stage.node_of("a")
            assert stage.the_claim("a-scratch").is_bound

    play(story)


def test_a_pod_that_waits_for_a_volume_does_not_delay_others() -> None:
    async def story() -> None:
        stage = Depot(nodes=1)
        stage.volume_claim("data", "dynamic")
        async with stage.scheduling(in_flight_pods=1) as scheduler:
            stage.user("slow", "data")
            await stage.pass_time(0.5, settle=False)
            assert scheduler.in_flight == 1
            for number in range(3):
                stage.pod(f"p{number}")
            await stage.pass_time(2, settle=False)
            assert all(stage.node_of(f"p{number}") for number in range(3))
            assert stage.node_of("slow") == ""

    play(story)


def test_a_volume_that_is_not_made_in_time_is_tried_again_and_devices_are_free_meanwhile() -> None:
    async def story() -> None:
        stage = Depot(nodes=1, gpus=1)
        stage.volume_claim("data", "dynamic")
        stage.claim("gpu")
        freed: list[str] = []
        stage.api.subscribe(
            registry.CLAIM,
            lambda _, one: freed.append("free" if one.status.allocation is None else ""),
        )
        async with stage.scheduling(volumes_timeout_seconds=10.0):
            stage.user("a", "data", named=("gpu",))
            await stage.pass_time(5, settle=False)
            assert stage.devices() != []
            await stage.pass_time(7, settle=False)
            assert "free" in freed[1:]
            assert stage.node_of("a") == ""
            await stage.pass_time(5)
            assert stage.node_of("a")

    play(story)


def test_a_provisioner_that_cannot_sends_the_pod_elsewhere() -> None:
    async def story() -> None:
        stage = Depot(nodes=2)
        stage.volume_claim("data", "dynamic")
        async with stage.scheduling():
            stage.user("a", "data")
            await stage.pass_time(0.5, settle=False)
            first = stage.selected("data")
            tree = stage.api.tree(registry.NODE, first)
            stage.api.shelf.put(registry.NODE, tree | {"spec": {"unschedulable": True}})
            stage.unselect("data")
            await stage.pass_time(3, settle=False)
            assert stage.selected("data") not in ("", first)
            await stage.pass_time(3)
            assert stage.node_of("a") == stage.selected("data")

    play(story)


def test_a_successor_goes_on_with_the_node_that_was_chosen() -> None:
    async def story() -> None:
        stage = Depot(nodes=2)
        stage.volume_claim("data", "dynamic")
        async with stage.scheduling():
            stage.user("a", "data")
            await stage.pass_time(0.5, settle=False)
            chosen = stage.selected("data")
            assert chosen
            assert stage.node_of("a") == ""
        async with stage.scheduling():
            await stage.pass_time(3)
            assert stage.node_of("a") == chosen

    play(story)


def test_a_volume_another_writer_took_is_left_to_it() -> None:
    async def story() -> None:
        stage = Depot(nodes=1)
        stage.volume("first", stage.names[0])
        stage.volume("second", stage.names[0])
        stage.volume_claim("data", "local")
        stage.volume_claim("theirs", "local")
        stage.user("a", "data")

        def rival(verb: str, target: Target) -> None:
            if verb == "patch" and target.name == "first":
                stage.api.before = None
                claim = stage.api.tree(registry.VOLUME_CLAIM, "theirs", namespace="default")
                tree = stage.api.tree(registry.VOLUME, "first")
                ref = {"namespace": "default", "name": "theirs", "uid": claim["metadata"]["uid"]}
                tree["spec"]["claimRef"] = ref
                stage.api.shelf.put(registry.VOLUME, tree)

        stage.api.before = rival
        async with stage.scheduling():
            await stage.pass_time(5)
            assert stage.node_of("a")
            assert stage.the_claim("data").spec.volume_name == "second"
            assert stage.the_claim("theirs").spec.volume_name == "first"
            assert stage.differences() == ()

    play(story)


def crowd() -> Depot:
    """Three pods with a GPU each: one on two volumes of its own, two that share a claim."""
    stage = Depot(nodes=2, gpus=4)
    stage.template("one")
    stage.volume("v", stage.names[1])
    stage.volume_claim("local", "local")
    stage.volume_claim("own", "dynamic")
    stage.volume_claim("shared", "dynamic")
    both = [
        {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("local", "own")
    ]
    stage.pod("a", templates=("one",), volumes=both)
    stage.user("b", "shared", templates=("one",))
    stage.user("c", "shared", templates=("one",))
    return stage


def check_crowd(stage: Depot) -> None:
    assert stage.node_of("a") == stage.names[1]
    assert stage.node_of("b") == stage.node_of("c") == stage.selected("shared")
    assert len(set(stage.devices())) == len(stage.devices()) == 3
    held = [stage.the_claim(name).spec.volume_name for name in ("local", "own", "shared")]
    assert all(held)
    assert len(set(held)) == 3
    assert len(stage.api.all(registry.VOLUME)) == 3, "nothing is provisioned twice"
    assert stage.differences() == ()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("place", range(13))
def test_a_failure_at_any_write_loses_nothing(when: str, place: int) -> None:
    async def story() -> None:
        stage = crowd()
        count = itertools.count()

        def fail(verb: str, target: Target) -> None:
            if verb != "get" and target.kind is not registry.EVENT and next(count) == place:
                raise failures.Unavailable("for once", status=503)

        setattr(stage.api, when, fail)
        async with stage.scheduling():
            await stage.pass_time(30)
            check_crowd(stage)

    play(story)


@pytest.mark.parametrize("place", range(13))
def test_a_scheduler_that_dies_between_any_two_writes_leaves_its_work_to_the_next(
    place: int,
) -> None:
    async def story() -> None:
        stage = crowd()
        count = itertools.count()

        def die(verb: str, target: Target) -> None:
            if verb != "get" and target.kind is not registry.EVENT and next(count) >= place:
                raise failures.Fenced("dead")

        stage.api.after = die
        async with stage.scheduling():
            await stage.pass_time(3)
        stage.api.after = None
        async with stage.scheduling():
            await stage.pass_time(30)
            check_crowd(stage)

    play(story)


def test_a_volume_that_another_writer_changed_is_read_again() -> None:
    async def story() -> None:
        stage = Depot(nodes=1)
        stage.volume("v", stage.names[0])
        stage.volume_claim("data", "local")
        stage.user("a", "data")
        touched: list[str] = []

        def touch(verb: str, target: Target) -> None:
            if verb == "patch" and target.kind is registry.VOLUME and not touched:
                touched.append(target.name)
                tree = stage.api.tree(registry.VOLUME, "v")
                stage.api.shelf.put(
                    registry.VOLUME,
                    tree | {"metadata": tree["metadata"] | {"labels": {"seen": "yes"}}},
                )

        stage.api.before = touch
        async with stage.scheduling():
            await stage.pass_time(5)
            assert touched
            assert stage.node_of("a")
            assert stage.the_volume("v").metadata.labels == {"seen": "yes"}

    play(story)


def test_a_pod_that_goes_while_its_volume_is_made_ends_the_wait() -> None:
    async def story() -> None:
        stage = Depot(nodes=1)
        stage.volume_claim("data", "dynamic")
        async with stage.scheduling() as scheduler:
            stage.user("a", "data")
            await stage.pass_time(0.5, settle=False)
            assert scheduler.in_flight == 1
            stage.api.shelf.delete(registry.POD, ("default", "a"))
            await stage.pass_time(2, settle=False)
            assert scheduler.in_flight == 0
            assert scheduler.world.assumed == {}

    play(story)


def test_a_refused_pod_is_asked_about_again_when_its_volume_appears() -> None:
    async def story() -> None:
        stage = Depot(nodes=1)
        stage.user("a", "data")
        stage.user("other", "elsewhere")
        async with stage.scheduling() as scheduler:
            await stage.pass_time(recorder.TRANSIENT_SECONDS + 2)
            assert "volume claim data: does not exist" in str(stage.the_pod("a").status.conditions)
            stage.volume_claim("data", "local")
            await stage.pass_time(2)
            assert "no free volume that fits" in str(stage.the_pod("a").status.conditions)
            stage.volume("v", stage.names[0])
            await stage.pass_time(3)
            assert stage.node_of("a") == stage.names[0]
            assert stage.node_of("other") == ""
            assert scheduler.queue.counts["unschedulable"] == 1

    play(story)


def test_a_change_of_storage_requeues_no_pod_without_volumes() -> None:
    async def story() -> None:
        stage = Depot(nodes=1)
        stage.pod("huge", resources={"requests": {"cpu": "100000"}})
        async with stage.scheduling() as scheduler:
            await stage.pass_time(2)
            before = scheduler.cycles
            stage.volume("v", stage.names[0])
            await stage.pass_time(3)
            assert scheduler.cycles == before

    play(story)


# How far volumes are


def progress(
    step: plan.VolumeStep, *known: Any
) -> volume_provisioning.Waits | volume_provisioning.Fails | None:
    world = store.world(*known)
    placement = plan.Placement(pod=plan.PodRef("default", "a"), node="n0", volumes=(step,))
    return volume_provisioning.progress(placement, world.storage, world.nodes)


GIVEN = plan.VolumeStep(plan.ClaimRef("default", "data"), "v")
MADE = plan.VolumeStep(plan.ClaimRef("default", "data"))
CHOSEN = {volumes.SELECTED_NODE: "n0"}


def test_a_claim_waits_until_both_sides_say_bound() -> None:
    volume = store.volume("v", on="n0", **store.given_to("data"))
    assert isinstance(progress(GIVEN, volume, store.claim("data")), volume_provisioning.Waits)
    assert isinstance(
        progress(GIVEN, volume, store.claim("data", volumeName="v")), volume_provisioning.Waits
    )
    assert progress(GIVEN, volume, store.claim("data", volume="v")) is None
    assert isinstance(
        progress(MADE, store.claim("data", annotations=CHOSEN)), volume_provisioning.Waits
    )
    unseen = store.claim("data", volume="v", annotations=CHOSEN)
    assert isinstance(progress(MADE, unseen), volume_provisioning.Waits), (
        "its volume is still to be heard of"
    )


@pytest.mark.parametrize(
    ("step", "known", "words"),
    [
        (GIVEN, [], "going or gone"),
        (GIVEN, [store.claim("data"), store.volume("v", on="n0")], "was taken back"),
        (
            GIVEN,
            [store.claim("data"), store.volume("v", on="n1", **store.given_to("data"))],
            "cannot be reached",
        ),
        (MADE, [store.claim("data")], "no volume could be provisioned"),
        (MADE, [store.claim("data", volume="v"), store.volume("v", on="n1")], "cannot be reached"),
    ],
)
def test_what_went_wrong_is_said(step: plan.VolumeStep, known: list[Any], words: str) -> None:
    result = progress(step, *known)
    assert isinstance(result, volume_provisioning.Fails)
    assert words in result.why


def test_a_node_that_is_gone_ends_the_wait() -> None:
    placement = plan.Placement(pod=plan.PodRef("default", "a"), node="gone", volumes=(MADE,))
    world = build.world(nodes=1)
    assert isinstance(
        volume_provisioning.progress(placement, world.storage, world.nodes),
        volume_provisioning.Fails,
    )
