"""What a pod takes of a node, as kube-scheduler adds it up."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.model import pod_requests
from dovetail.quantity import quantity
from tests.schedule import build

CPU, MEMORY = "cpu", "memory"


def request(**spec: Any) -> pod_requests.Resources:
    return pod_requests.pod_request(build.pod("p", **spec))


def container(
    name: str = "c", *, always: bool = False, limits: dict[str, str] | None = None, **wanted: str
) -> Any:
    amounts = {key.replace("_", "-"): value for key, value in wanted.items()}
    tree: dict[str, Any] = {
        "name": name,
        "resources": {"requests": amounts, "limits": limits or {}},
    }
    return tree | ({"restartPolicy": "Always"} if always else {})


def test_containers_add_up_and_the_pod_takes_a_place() -> None:
    got = request(
        containers=[
            container("a", cpu="1500m", memory="1Gi"),
            container("b", cpu="1", ephemeral_storage="1G"),
        ]
    )
    assert got == pod_requests.Resources(2500, 2**30, 10**9, 1)


def test_an_init_container_counts_only_where_it_is_hungrier_than_all_containers() -> None:
    got = request(
        containers=[container(cpu="2", memory="1Gi")],
        initContainers=[container("i", cpu="1", memory="3Gi")],
    )
    assert (got.milli_cpu, got.memory_bytes) == (2000, 3 * 2**30)


def test_init_containers_run_one_after_the_other() -> None:
    got = request(containers=[], initContainers=[container("i", cpu="2"), container("j", cpu="3")])
    assert got.milli_cpu == 3000


def test_a_sidecar_counts_with_the_containers_and_with_later_init_containers() -> None:
    sidecar = container("s", always=True, cpu="1")
    assert request(containers=[container(cpu="2")], initContainers=[sidecar]).milli_cpu == 3000
    late = request(
        containers=[container(cpu="1")], initContainers=[sidecar, container("i", cpu="4")]
    )
    assert late.milli_cpu == 5000
    early = request(
        containers=[container(cpu="1")], initContainers=[container("i", cpu="4"), sidecar]
    )
    assert early.milli_cpu == 4000


def test_two_sidecars_are_there_together_while_a_third_container_initialises() -> None:
    order = [
        container("s", always=True, cpu="1"),
        container("t", always=True, cpu="2"),
        container("i", cpu="3"),
    ]
    assert request(containers=[container(cpu="100m")], initContainers=order).milli_cpu == 6000


def test_overhead_comes_on_top_of_everything() -> None:
    got = request(
        containers=[container(cpu="1")],
        initContainers=[container("i", cpu="4")],
        overhead={"cpu": "250m"},
    )
    assert got.milli_cpu == 4250


def test_pod_level_requests_replace_those_of_the_containers_and_overhead_still_adds() -> None:
    got = request(
        containers=[container(cpu="3", memory="1Gi")],
        resources={"requests": {"cpu": "2"}},
        overhead={"cpu": "1"},
    )
    assert (got.milli_cpu, got.memory_bytes) == (3000, 2**30)


def test_a_pod_level_limit_counts_only_where_there_is_no_request() -> None:
    got = request(
        containers=[container(cpu="1")], resources={"limits": {"cpu": "4", "memory": "2Gi"}}
    )
    assert (got.milli_cpu, got.memory_bytes) == (1000, 2 * 2**30)
    pages = request(
        containers=[container(**{"hugepages-2Mi": "2Mi"})],
        resources={"limits": {"hugepages-2Mi": "8Mi", "cpu": "1"}},
    )
    assert pages.scalars == (("hugepages-2Mi", 8 * 2**20),)


def test_pod_level_amounts_of_other_resources_are_not_read() -> None:
    got = request(
        containers=[container()], resources={"requests": {"cpu": "1", "nvidia.com/gpu": "4"}}
    )
    assert got.scalars == ()


def test_a_limit_without_a_request_is_a_request() -> None:
    got = request(containers=[container(limits={"nvidia.com/gpu": "2", "cpu": "3"}, cpu="1")])
    assert (got.milli_cpu, got.scalars) == (1000, (("nvidia.com/gpu", 2),))


def test_extended_resources_and_huge_pages_are_counted_and_unknown_names_are_not() -> None:
    got = request(
        containers=[
            container(
                **{
                    "nvidia.com/gpu": "1",
                    "hugepages-1Gi": "2Gi",
                    "example.com/foo": "3",
                    "storage": "1Gi",
                }
            ),
            container("d", **{"nvidia.com/gpu": "1"}),
        ]
    )
    assert got.scalars == (
        ("example.com/foo", 3),
        ("hugepages-1Gi", 2 * 2**30),
        ("nvidia.com/gpu", 2),
    )


def test_sums_are_exact_before_they_are_rounded_up() -> None:
    got = request(
        containers=[
            container("a", cpu="0.1m", memory="0.5"),
            container("b", cpu="0.1m", memory="0.5"),
        ]
    )
    assert (got.milli_cpu, got.memory_bytes) == (1, 1)


@pytest.mark.parametrize(
    ("name", "counted"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/mig-1g.10gb", True),
        ("hugepages-2Mi", True),
        ("attachable-volumes-csi", True),
        ("kubernetes.io/thing", True),
        ("sub.kubernetes.io/thing", True),
        ("requests.example.com/gpu", False),
        ("gpu", False),
        ("/gpu", False),
        ("a/b/c", False),
        ("Example.com/gpu", False),
        (f"{'d' * 245}/gpu", False),
        (f"example.com/{'n' * 64}", False),
    ],
)
def test_which_names_are_counted(name: str, counted: bool) -> None:
    assert pod_requests.is_scalar(name) is counted


def test_allocatable_reads_the_same_units() -> None:
    amounts = {
        "cpu": "63500m",
        "memory": "1Ki",
        "pods": "110",
        "nvidia.com/gpu": "8",
        "ephemeral-storage": "5",
    }
    got = pod_requests.allocatable({name: quantity.parse(text) for name, text in amounts.items()})
    assert got == pod_requests.Resources(63500, 1024, 5, 110, (("nvidia.com/gpu", 8),))


def test_taking_and_giving_back_restores_the_amounts_exactly() -> None:
    have = pod_requests.Resources(1000, 10, 5, 3, (("a.b/c", 2),))
    take = pod_requests.Resources(1, 2, 3, 1, (("a.b/c", 2), ("x.y/z", 1)))
    assert have.minus(take).scalars == (("x.y/z", -1),)
    assert have.minus(take).plus(take) == have


def test_what_is_not_wanted_is_never_lacking() -> None:
    none_left = pod_requests.Resources(-5, -1, 0, 1, (("a.b/c", -2),))
    assert pod_requests.shortages(pod_requests.Resources(pods=1), none_left) == ()
    lacking = pod_requests.shortages(
        pod_requests.Resources(1, 0, 0, 1, (("a.b/c", 1), ("x.y/z", 4))), none_left
    )
    assert [(shortage.resource, shortage.need, shortage.have) for shortage in lacking] == [
        ("cpu", 1, -5),
        ("a.b/c", 1, -2),
        ("x.y/z", 4, 0),
    ]


def test_no_place_left_for_a_pod() -> None:
    lacking = pod_requests.shortages(
        pod_requests.Resources(pods=1), pod_requests.Resources(milli_cpu=1000)
    )
    assert [(shortage.resource, shortage.have) for shortage in lacking] == [("pods", 0)]


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 2500, "2500m"),
        ("cpu", 8000, "8"),
        ("memory", 2**39, "512Gi"),
        ("nvidia.com/gpu", 8, "8"),
    ],
)
def test_amounts_are_written_as_people_write_them(resource: str, amount: int, text: str) -> None:
    assert pod_requests.amount_text(resource, amount) == text
