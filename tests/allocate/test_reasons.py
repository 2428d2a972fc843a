"""Refusals people can act on: how many devices were left after each rule, and what the nearest lacked."""

from __future__ import annotations

from typing import Any

from dovetail.allocate import allocator
from dovetail.model.reasons import Reason, ReasonCode
from tests.allocate import build
from tests.allocate.build import ask, claim, exactly, profile

MEMORY = f'device.capacity["{build.DRIVER}"].memory'


def _reasons(view: Any, *wanted: Any) -> tuple[Reason, ...]:
    outcome = ask(view, *wanted)
    assert isinstance(outcome, allocator.Refused), outcome
    return outcome.reasons


def _only(view: Any, *wanted: Any) -> Reason:
    (reason,) = _reasons(view, *wanted)
    return reason


def test_a_failed_selector_reports_how_near_the_devices_came() -> None:
    where = f'{MEMORY}.compareTo(quantity("141Gi")) >= 0'
    reason = _only(build.node(build.gpus(8)), claim(exactly(2, where=where)))
    assert (reason.code, reason.need, reason.have) == (ReasonCode.SELECTOR, 2, 0)
    assert reason.subject == "claim team/claim: request r0"
    assert reason.detail.startswith("8 devices -> 8 of class gpu -> 0 with ")
    assert "capacity gpu.example.com/memory is 80Gi" in reason.detail
    assert "(8 devices)" in reason.detail


def test_devices_in_use_are_counted_last() -> None:
    reason = _only(build.node(build.gpus(4), in_use=["gpu-0", "gpu-1", "gpu-2"]), claim(exactly(2)))
    assert (reason.code, reason.need, reason.have) == (ReasonCode.IN_USE, 2, 1)
    assert reason.detail == "4 devices -> 4 of class gpu -> 4 tolerated -> 1 free"


def test_taints_are_named() -> None:
    devices = build.gpus(2, taints=[{"key": "broken", "effect": "NoSchedule"}])
    reason = _only(build.node(devices), claim(exactly()))
    assert (reason.code, reason.have) == (ReasonCode.TAINT, 0)
    assert reason.detail == (
        "2 devices -> 2 of class gpu -> 0 tolerated; "
        "tainted: 2 with broken:NoSchedule, 2 of them free"
    )


def test_where_the_only_free_devices_are_tainted_the_reason_says_so() -> None:
    taint = {"key": "broken", "value": "ecc", "effect": "NoSchedule"}
    spoiled = [device | {"taints": [taint]} for device in build.gpus(1)]
    spoiled[0]["name"] = "spoiled"
    devices = [*build.gpus(2), *spoiled]
    reason = _only(build.node(devices, in_use=["gpu-0", "gpu-1"]), claim(exactly()))
    assert (reason.code, reason.need, reason.have) == (ReasonCode.IN_USE, 1, 0)
    assert reason.detail == (
        "3 devices -> 3 of class gpu -> 2 tolerated -> 0 free; "
        "tainted: 1 with broken=ecc:NoSchedule, 1 of them free"
    )


def test_taints_of_devices_in_use_are_no_part_of_a_refusal_for_use() -> None:
    taint = {"key": "broken", "effect": "NoSchedule"}
    spoiled = [device | {"name": "spoiled", "taints": [taint]} for device in build.gpus(1)]
    view = build.node([*build.gpus(1), *spoiled], in_use=["gpu-0", "spoiled"])
    assert "tainted" not in _only(view, claim(exactly())).detail


def test_devices_of_other_classes_are_not_counted_as_what_the_node_has() -> None:
    """A node of four GPUs and two IMEX channels has four devices for a request for GPUs."""
    channels = [{"name": f"channel-{number}"} for number in range(2)]
    view = build.node(build.gpus(4))
    beside = build.node(channels, driver="compute-domain.example.com")
    both = view._replace(pools=(*view.pools, *beside.pools))
    reason = _only(both, claim(exactly(8)))
    assert (reason.code, reason.need, reason.have) == (ReasonCode.NO_DEVICES, 8, 4)
    assert (reason.detail, reason.offered) == ("6 devices -> 4 of class gpu", 4)


def test_the_reason_for_counters_says_how_many_partitions_fit_together() -> None:
    reason = _only(build.mig_node(1, in_use=["gpu-0-1g-0"]), claim(profile("2g", 3)))
    assert (reason.code, reason.need, reason.have) == (ReasonCode.COUNTERS, 3, 2)
    assert reason.detail.endswith("2 with counters left")
    reason = _only(build.mig_node(1), claim(profile("1g", 4), profile("1gd", 4)))
    assert reason.code is ReasonCode.COMBINATION
    reason = _only(build.mig_node(1), claim(exactly(8)))
    assert (reason.code, reason.need, reason.have) == (ReasonCode.COUNTERS, 8, 7)


def test_capacity_no_device_has_differs_from_capacity_in_use() -> None:
    view = build.node(build.shareable(1))
    reason = _only(view, claim(exactly(capacity={"requests": {"memory": "100Gi"}})))
    assert reason.code is ReasonCode.CAPACITY_POLICY
    assert reason.detail.endswith("-> 0 offer memory of 100Gi (largest 80Gi)")
    reason = _only(view, claim(exactly(capacity={"requests": {"lanes": "3", "memory": "8Gi"}})))
    assert reason.detail.endswith("-> 0 offer lanes of 3 (no device has it) and memory of 8Gi")
    pool = view.pools[0]._replace(shared={0: {"memory": 75 * 2**30 * 10**9}})
    reason = _only(
        view._replace(pools=(pool,)), claim(exactly(capacity={"requests": {"memory": "10Gi"}}))
    )
    assert reason.code is ReasonCode.CAPACITY


def test_a_constraint_is_blamed_only_where_it_is_the_cause() -> None:
    apart = [{"distinctAttribute": f"{build.DRIVER}/numa"}]
    reason = _only(build.node(build.gpus(8)), claim(exactly(3), constraints=apart))
    assert reason.code is ReasonCode.CONSTRAINT
    assert "distinctAttribute gpu.example.com/numa" in reason.detail
    reason = _only(build.node(build.gpus(2)), claim(exactly(3), constraints=apart))
    assert reason.code is ReasonCode.NO_DEVICES


def test_requests_that_compete_are_named_together() -> None:
    reason = _only(build.node(build.gpus(3)), claim(exactly(2), exactly(2)))
    assert (reason.code, reason.need, reason.have) == (ReasonCode.COMBINATION, 4, 3)
    assert "r0, r1" in reason.detail


def test_a_selector_that_errors_is_a_reason_not_a_failure() -> None:
    where = f'device.attributes["{build.DRIVER}"].nowhere == 1'
    reasons = _reasons(build.node(build.gpus(2)), claim(exactly(where=where)))
    assert [reason.code for reason in reasons] == [ReasonCode.CEL_ERROR, ReasonCode.SELECTOR]
    assert reasons[0].have == 2


def test_every_alternative_gets_its_own_reason() -> None:
    reasons = _reasons(build.node(build.gpus(2), in_use=["gpu-0"]), claim([exactly(4), exactly(2)]))
    assert [(reason.subject, reason.code) for reason in reasons] == [
        ("claim team/claim: request r0/a", ReasonCode.NO_DEVICES),
        ("claim team/claim: request r0/b", ReasonCode.IN_USE),
    ]


def test_the_terms_of_a_choice_add_up_and_speak() -> None:
    outcome = ask(build.mig_node(2, in_use=["gpu-1-2g-0"]), claim(profile("3g"), profile("1g", 2)))
    assert isinstance(outcome, allocator.Allocated)
    assert [term.name for term in outcome.terms] == ["partitions"]
    assert abs(sum(term.milli_gpu for term in outcome.terms) - outcome.milli_gpu) < 1e-6
    assert "places" in outcome.terms[0].sentence
