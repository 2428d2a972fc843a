"""Quotas by type: one ledger, so that two quotas cannot both spend the same silicon."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.kubetypes import meta
from dovetail.kubetypes.core import namespaces
from dovetail.model import policy
from dovetail.schedule.queue import amounts, gpu_types, pricing
from dovetail.world.world import World
from tests.batch import stories
from tests.schedule import build

HOPPER = 'device.attributes["gpu.example.com"].architecture == "Hopper"'
WHOLE = 'device.attributes["gpu.example.com"].productName != ""'
SMALL = 'device.attributes["gpu.example.com"].?profile.orValue("") == "1g.10gb"'
BIG = 'device.attributes["gpu.example.com"].?profile.orValue("") == "3g.40gb"'
UNCUT = '!("profile" in device.attributes["gpu.example.com"])'
SHARED = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED", "nvidia.com/gpu.replicas": "2"}
CLASS_DEVICES = "gpu.deviceclass.resource.k8s.io/devices"


def priced(world: World, name: str, *types: str) -> pricing.Price:
    """What a waiting pod costs where these types are bounded."""
    return pricing.Pricing(world, policy.Batch(), types).waiting(world.pods[f"uid-of-{name}"])


def mixed(*queues: Any) -> World:
    """Two H100s and two A100s."""
    return stories.world(
        *stories.boards("hopper", 2, stories.H100, "Hopper"),
        *stories.boards("ampere", 2, stories.A100, "Ampere"),
        *queues,
    )


def test_a_type_is_charged_in_silicon_in_addition_to_the_whole() -> None:
    world = stories.runs(mixed(stories.queue("a")), "one", "a", ("hopper", "gpu-0"))
    types = (stories.H100_NAME, "gpu/architecture.hopper", CLASS_DEVICES)
    book = pricing.Pricing(world, policy.Batch(), types)
    claim = world.claims["default", "one-claim"]
    assert claim.status.allocation is not None
    cost = book.cost_of_claim(("default", "one-claim"), claim.status.allocation)
    assert cost == {"gpu": 1000, **{amounts.canonical_name(name): 1000 for name in types}}


def test_capacity_of_a_type_counts_a_board_once_however_it_can_be_cut() -> None:
    world = stories.world(
        *stories.partitioned("cut"), *stories.boards("ampere", 2, stories.A100, "Ampere")
    )
    types = (
        stories.H100_NAME,
        stories.A100_NAME,
        "gpu/mig.1g.10gb",
        "gpu/mig.3g.40gb",
        CLASS_DEVICES,
    )
    result = pricing.Pricing(world, policy.Batch(), types).capacity()
    assert result["gpu"] == 3000
    assert result[amounts.canonical_name(stories.H100_NAME)] == 1000
    assert result[amounts.canonical_name(stories.A100_NAME)] == 2000
    assert result["gpu/mig.1g.10gb"] == 1000
    assert result["gpu/mig.3g.40gb"] == 1000
    assert result[CLASS_DEVICES] == 3000


def test_a_type_the_request_could_do_without_is_not_counted_before_it_is_placed() -> None:
    world = stories.waits(mixed(), "any", "a")
    stories.waits(world, "hopper-only", "a", 2, when=HOPPER)
    named = amounts.canonical_name(stories.H100_NAME)
    assert named not in priced(world, "any", stories.H100_NAME).most
    assert priced(world, "any", stories.H100_NAME).least["gpu"] == 1000
    assert priced(world, "hopper-only", stories.H100_NAME).least[named] == 2000


def test_of_first_available_either_may_come() -> None:
    world = stories.world(*stories.partitioned("cut"))
    either = [
        {
            "name": "gpus",
            "firstAvailable": [
                {
                    "name": "whole",
                    "deviceClassName": "gpu",
                    "selectors": [{"cel": {"expression": UNCUT}}],
                },
                {
                    "name": "slice",
                    "deviceClassName": "gpu",
                    "selectors": [{"cel": {"expression": SMALL}}],
                },
            ],
        }
    ]
    build.put(world, build.claim("c", requests=either), stories.pod("p", "a", uses=["c"]))
    price = priced(world, "p", "gpu/mig.1g.10gb", stories.H100_NAME)
    assert (price.least["gpu"], price.most["gpu"]) == (143, 1000)
    assert "gpu/mig.1g.10gb" not in price.most
    assert price.least[amounts.canonical_name(stories.H100_NAME)] == 143


def test_a_slice_and_a_whole_board_draw_on_one_quota() -> None:
    shares = {stories.H100_NAME: {"limit": 1}}
    world = stories.world(
        *stories.partitioned("one"), *stories.partitioned("two"), stories.queue("a", shares)
    )
    stories.runs(world, "slice", "a", ("one", "gpu-0-3g-0"), when=BIG)
    stories.waits(world, "whole", "a", when=UNCUT)
    stories.waits(world, "half", "a", when=BIG)
    done = stories.decided(world)
    assert set(stories.started(done)) == {"half"}
    assert (
        "1 in use and 1 wanted exceed its limit, 1 gpu/product.nvidia-h100-80gb-hbm3"
        in stories.why(done, "whole")
    )


def test_two_quotas_cannot_both_spend_one_board() -> None:
    """A slice spends the quota of its profile and that of all GPUs: more profiles do not make more silicon."""
    shares = {"gpu": {"limit": 1}, "gpu/mig.1g.10gb": {"limit": 1}, "gpu/mig.3g.40gb": {"limit": 1}}
    world = stories.world(
        *stories.partitioned("one"), *stories.partitioned("two"), stories.queue("a", shares)
    )
    for number in range(5):
        stories.runs(world, f"small-{number}", "a", ("one", f"gpu-0-1g-{number}"), when=SMALL)
    stories.waits(world, "big", "a", when=BIG)
    done = stories.decided(world)
    assert not done.placements
    assert "exceed its limit, 1 gpu" in stories.why(done, "big")


def test_a_limit_on_one_type_sends_work_to_another() -> None:
    limits = {stories.A100_NAME: {"limit": 0}, stories.H100_NAME: {"limit": 1}}
    world = mixed(stories.queue("a", limits))
    for number in range(2):
        stories.waits(world, f"p{number}", "a")
    done = stories.decided(world)
    assert list(stories.started(done).values()) == [
        "hopper"
    ]  # though the first node by name has A100s
    assert "exceed its limit" in done.refusals[0].summary


def test_a_quota_of_a_type_is_reclaimed_from_the_queue_that_has_more_of_it() -> None:
    first = stories.queue("first", {stories.H100_NAME: {"quota": 1}})
    second = stories.queue("second", {stories.H100_NAME: {"quota": 1}})
    world = mixed(first, second)
    for number in range(2):
        stories.runs(world, f"greedy-{number}", "second", ("hopper", f"gpu-{number}"), when=HOPPER)
    stories.waits(world, "due", "first", when=HOPPER)
    done = stories.decided(world)
    assert list(stories.evicted(done).values()) == ["Reclaimed"]
    assert stories.nominated(done) == {"due": "hopper"}
    text = stories.detail(done, next(iter(stories.evicted(done))))
    assert text == "queue first has 0 of the 1 gpu/product.nvidia-h100-80gb-hbm3 it is due"


def test_a_class_is_bounded_in_silicon_and_devices_that_are_no_gpus_by_number() -> None:
    nic = build.gpu_class("nic", when='device.driver == "nic.example.com"')
    card = build.gpu_pool("n0", [{"name": "nic-0"}, {"name": "nic-1"}, {"name": "nic-2"}])
    card = build.replaced(card, spec=build.replaced(card.spec, driver="nic.example.com"))
    limited = stories.queue("a", {"nic.deviceclass.resource.k8s.io/devices": {"limit": 2}})
    world = stories.world(build.node("n0"), nic, card, limited)
    for number in range(3):
        expected = [
            {
                "name": "nic",
                "exactly": {"deviceClassName": "nic", "allocationMode": "ExactCount", "count": 1},
            }
        ]
        build.put(
            world,
            build.claim(f"c{number}", requests=expected),
            stories.pod(f"p{number}", "a", uses=[f"c{number}"]),
        )
    done = stories.decided(world)
    assert len(done.placements) == 2
    assert "exceed its limit, 2 nic.deviceclass.resource.k8s.io/devices" in done.refusals[0].summary


@pytest.mark.parametrize(
    ("resource", "labels", "limit", "fits"),
    [
        ("nvidia.com/gpu", {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, stories.H100_NAME, 2),
        ("nvidia.com/gpu", SHARED, stories.H100_NAME, 4),
        ("nvidia.com/gpu", {"nvidia.com/gpu.family": "hopper"}, "gpu/architecture.Hopper", 2),
        ("nvidia.com/mig-3g.40gb", {"nvidia.com/gpu.memory": "81559"}, "gpu/mig.3g.40gb", 3),
        ("nvidia.com/gpu", {"nvidia.com/gpu.product": "Tesla-T4"}, stories.H100_NAME, 5),
    ],
)  # fmt: skip
def test_device_plugin_resources_are_charged_by_node_labels(
    resource: str, labels: dict[str, str], limit: str, fits: int
) -> None:
    node = build.node("n0", allocatable={resource: "5"}, labels=labels)
    world = stories.world(node, stories.queue("a", {limit: {"limit": 2}}))
    for number in range(5):
        build.put(world, stories.pod(f"p{number}", "a", gpus=1, resource=resource))
    assert len(stories.decided(world).placements) == fits


def test_devices_behind_an_extended_resource_are_charged_once() -> None:
    backed = build.gpu_class("gpu", extendedResourceName="nvidia.com/gpu")
    world = stories.world(
        *stories.boards("n0", 4, stories.H100, "Hopper"), stories.queue("a", {"gpu": {"limit": 2}})
    )
    build.put(world, backed)
    for number in range(4):
        build.put(world, stories.pod(f"p{number}", "a", gpus=1))
    done = stories.decided(world)
    assert len(done.placements) == 2
    stories.carried_out(world, done)
    assert not stories.decided(world).placements  # a second look charges the same


def test_what_a_decision_charges_is_what_the_next_one_finds() -> None:
    """Whole boards, slices, shares of a claim, counted GPUs, devices behind a resource: the books always agree."""
    backed = build.gpu_class("gpu", extendedResourceName="example.com/gpu")
    shares = {
        "gpu": {"limit": 6},
        stories.H100_NAME: {"limit": 9},
        "gpu/mig.3g.40gb": {},
        CLASS_DEVICES: {},
    }
    world = stories.world(
        *stories.boards("hopper", 2, stories.H100, "Hopper"),
        *stories.partitioned("cut"),
        stories.plugin_node("counted", 2),
        stories.queue("all", shares),
        stories.queue("a", shares, parent="all", power_cap_watts=100_000),
    )
    build.put(world, backed)
    stories.waits(world, "whole", "a", when=UNCUT + " && " + HOPPER)
    stories.waits(world, "half", "a", when=BIG)
    build.put(world, build.claim("shared", when=SMALL))
    build.put(
        world, stories.pod("one", "a", uses=["shared"]), stories.pod("two", "a", uses=["shared"])
    )
    build.put(
        world,
        stories.pod("counted", "a", gpus=1),
        stories.pod("behind", "a", gpus=1, resource="example.com/gpu"),
    )
    done = stories.decided(world)
    assert len(done.placements) == 6
    again = stories.decided(stories.carried_out(world, done))
    for queue in ("a", "all"):
        before = {name: share.charged for name, share in done.queues[queue].resources.items()}
        after = {name: share.charged for name, share in again.queues[queue].resources.items()}
        assert before == after


def test_all_devices_of_a_node_are_priced_as_so_many() -> None:
    world = mixed()
    expected = [{"name": "gpus", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]
    build.put(world, build.claim("c", requests=expected), stories.pod("p", "a", uses=["c"]))
    assert priced(world, "p").least["gpu"] == 2000


def test_spellings_of_one_type_are_one_account() -> None:
    assert amounts.canonical_name("gpu/product.NVIDIA-H100") == amounts.canonical_name(
        "gpu/product.nvidia-h100"
    )
    assert amounts.canonical_name("nvidia.com/gpu") == "gpu"
    assert amounts.canonical_name("example.com/nic") == "example.com/nic"


def test_rated_power_comes_from_the_catalogue_and_an_unknown_board_counts_as_the_hungriest() -> (
    None
):
    assert gpu_types.watts_of("nvidia-h100-80gb-hbm3") == 700
    assert gpu_types.watts_of("something-new") == max(
        gpu_types.watts_of(name)
        for name in ("nvidia-h100-80gb-hbm3", "nvidia-b200", "nvidia-b300", "tesla-t4", "unheard")
    )


LIMITED = ("gpu", stories.H100_NAME, stories.A100_NAME, "gpu/mig.1g.10gb", "gpu/mig.3g.40gb")
ASKED = ("", HOPPER, UNCUT, SMALL, BIG, f"{SMALL} || {BIG}", f"{UNCUT} && {HOPPER}")


def counted(node: str, device: str) -> dict[str, int]:
    """What a device is, by hand."""
    profile, cost = (
        ("1g.10gb", 143)
        if "-1g-" in device
        else ("3g.40gb", 500)
        if "-3g-" in device
        else ("", 1000)
    )
    product = stories.A100_NAME if node == "ampere" else stories.H100_NAME
    return {"gpu": cost, product: cost, **({f"gpu/mig.{profile}": cost} if profile else {})}


@settings(max_examples=40)
@given(
    st.dictionaries(st.sampled_from(LIMITED), st.integers(0, 3), max_size=4),
    st.lists(st.tuples(st.sampled_from(ASKED), st.integers(1, 2)), min_size=1, max_size=6),
)
def test_no_limit_of_any_type_is_ever_exceeded(
    limits: dict[str, int], asked: list[tuple[str, int]]
) -> None:
    world = mixed(stories.queue("a", {name: {"limit": limit} for name, limit in limits.items()}))
    build.put(world, *stories.partitioned("cut"))
    for number, (when, count) in enumerate(asked):
        stories.waits(world, f"p{number}", "a", count, when=when)
    done = stories.decided(world)
    outcome: dict[str, int] = {}
    for placement in done.placements:
        for item in (
            result for given_ in placement.allocations for result in given_.result.devices.results
        ):
            for name, cost in counted(item.pool, item.device).items():
                outcome[name] = outcome.get(name, 0) + cost
    assert all(outcome.get(name, 0) <= 1000 * limit for name, limit in limits.items())
    shown = done.queues["a"].resources
    for name in limits:
        assert float(shown[name].charged) * 1000 == pytest.approx(outcome.get(name, 0))


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(ASKED), st.integers(1, 2)), min_size=1, max_size=4))
def test_a_waiting_pod_is_never_placed_for_less_or_more_than_it_was_priced(
    asked: list[tuple[str, int]],
) -> None:
    world = mixed(stories.queue("a", {name: {} for name in LIMITED}))
    build.put(world, *stories.partitioned("cut"))
    for number, (when, count) in enumerate(asked):
        stories.waits(world, f"p{number}", "a", count, when=when)
    prices = {
        name: priced(world, name, *LIMITED)
        for name in (f"p{number}" for number in range(len(asked)))
    }
    book = pricing.Pricing(world, policy.Batch(), LIMITED)
    for placement in stories.decided(world).placements:
        price = prices[placement.pod.name]
        held: dict[str, int] = {}
        for allocation in placement.allocations:
            amounts.add(
                held,
                book.cost_of_claim(
                    (allocation.claim.namespace, allocation.claim.name), allocation.result
                ),
            )
        assert price.least.get("gpu", 0) <= held["gpu"] <= price.most["gpu"]
        for name in map(amounts.canonical_name, LIMITED):
            assert price.least.get(name, 0) <= held.get(name, 0)
            assert name not in price.most or held[name] <= price.most[name]


def test_a_pod_of_a_namespace_that_a_queue_does_not_take_is_not_in_its_numbers() -> None:
    inside = meta.LabelSelector(match_labels={"kubernetes.io/metadata.name": "default"})
    queue = stories.queue("a", gpu=4)
    spec = msgspec.structs.replace(queue.spec, namespace_selector=inside)
    world = stories.world(
        stories.plugin_node("n", 8),
        namespaces.Namespace(metadata=meta.ObjectMeta(name="outside")),
        msgspec.structs.replace(queue, spec=spec),
        stories.pod("own", "a", gpus=99),
        stories.pod("stranger", "a", gpus=99, metadata={"namespace": "outside"}),
    )
    plan = stories.decided(world)
    assert {refusal.pod.name for refusal in plan.refusals} == {"own", "stranger"}
    assert plan.queues["a"].pending == 1
