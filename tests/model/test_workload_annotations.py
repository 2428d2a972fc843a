"""Labels and annotations of workloads: read the same way on every kind, and an unreadable value is reported."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.model import workload_annotations
from dovetail.quantity import durations

KEYS = sorted(
    value
    for name, value in vars(workload_annotations).items()
    if name.isupper()
    and isinstance(value, str)
    and "/" in value
    and value != workload_annotations.PREFIX
)


def asked(*places: dict[str, str]) -> workload_annotations.WorkloadOptions:
    """What annotations ask for, outermost first."""
    return workload_annotations.read(*(({}, place) for place in places))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("2h", 7200),
        ("1d", 86_400),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("500ms", 1),
        ("1:30:00", 5400),
        ("1:30", 5400),
        ("2-12:00:00", 216_000),
        ("90", 90),
        ("0", 0),
        (" 10m ", 600),
    ],
)
def test_lengths_of_time_as_people_write_them(text: str, seconds: int) -> None:
    assert durations.seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "-5m", "1:60:00", "10 m", "1h-", "h", "1e3", "٣m", "9" * 12 + "d"]
)
def test_what_is_no_length_of_time(text: str) -> None:
    assert durations.seconds(text) is None


def test_everything_can_be_asked_for() -> None:
    options = asked(
        {
            "dovetail.dev/queue": "research",
            "dovetail.dev/gang-min": "4",
            "dovetail.dev/gang-max": "8",
            "dovetail.dev/expected-runtime": "2h",
            "dovetail.dev/max-runtime": "1:30:00",
            "dovetail.dev/last-checkpoint": "2026-05-01T12:00:00Z",
            "dovetail.dev/preemptible": "false",
            "dovetail.dev/topology": "fabric",
            "dovetail.dev/topology-required": "rack",
            "dovetail.dev/topology-preferred": "nvlink",
            "dovetail.dev/topology-relax-after": "10m",
            "dovetail.dev/topology-segment": "4",
            "dovetail.dev/topology-spread": "true",
            "dovetail.dev/may-evict-after": "5m",
            "dovetail.dev/stale-grace": "never",
            "dovetail.dev/when-evicted": "end",
        }
    )
    topology = workload_annotations.TopologyRequest(
        topology="fabric",
        required="rack",
        preferred="nvlink",
        relax_after_seconds=600,
        segment=4,
        spread=True,
    )
    assert options == workload_annotations.WorkloadOptions(
        queue="research",
        min=4,
        max=8,
        expected_runtime=7200,
        max_runtime=5400,
        last_checkpoint="2026-05-01T12:00:00Z",
        is_preemptible=False,
        topology=topology,
        may_evict_after=300,
        stale_grace=workload_annotations.NEVER,
        may_be_lost=True,
    )


def test_the_outermost_place_decides_and_annotations_before_labels() -> None:
    options = workload_annotations.read(
        ({"dovetail.dev/queue": "label"}, {"dovetail.dev/queue": "note"}),
        ({"dovetail.dev/queue": "inner"}, {}),
    )
    assert options.queue == "note"
    assert asked({}, {"dovetail.dev/gang-min": "all"}).min == workload_annotations.ALL


def test_words_of_kueue() -> None:
    options = asked(
        {
            "kueue.x-k8s.io/queue-name": "user",
            "kueue.x-k8s.io/max-exec-time-seconds": "600",
            "kueue.x-k8s.io/podset-required-topology": "cloud.example.com/block",
            "kueue.x-k8s.io/podset-slice-required-topology": "cloud.example.com/rack",
            "kueue.x-k8s.io/podset-slice-size": "4",
        }
    )
    assert options.labels == {"kueue.x-k8s.io/queue-name": "user"}
    assert options.max_runtime == 600
    assert options.topology == workload_annotations.TopologyRequest(
        topology="", required="cloud.example.com/block"
    )
    assert options.segments == workload_annotations.TopologyRequest(
        topology="", required="cloud.example.com/rack", segment=4
    )


def test_words_of_kai() -> None:
    options = asked(
        {
            "kai.scheduler/queue": "team",
            "kai.scheduler/batch-min-member": "3",
            "kai.scheduler/preemptibility": "non-preemptible",
            "kai.scheduler/preemption-delay": "2m",
            "kai.scheduler/topology": "fabric",
            "kai.scheduler/topology-preferred-placement": "rack",
            "kai.scheduler/segment-size": "2",
            "kai.scheduler/segment-topology-required-placement": "node",
        }
    )
    assert (options.labels, options.min, options.is_preemptible) == (
        {"kai.scheduler/queue": "team"},
        3,
        False,
    )
    assert options.may_evict_after == 120
    assert options.topology == workload_annotations.TopologyRequest(
        topology="fabric", preferred="rack"
    )
    assert options.segments == workload_annotations.TopologyRequest(
        topology="fabric", required="node", segment=2
    )


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("dovetail.dev/gang-min", "many", "1 to 1000000, or all"),
        ("dovetail.dev/gang-min", "0", "1 to 1000000, or all"),
        ("dovetail.dev/max-runtime", "soon", "90s, 10m, 2h or 1:30:00"),
        ("dovetail.dev/last-checkpoint", "yesterday", "2026-05-01T12:00:00Z"),
        ("dovetail.dev/preemptible", "maybe", "true or false"),
        ("dovetail.dev/when-evicted", "cry", "restart or end"),
        ("dovetail.dev/topology", "fabric", "must name a level"),
        ("dovetail.dev/topology-segment", "2", "must name a level"),
        ("dovetail.dev/max-runtim", "1h", "did you mean dovetail.dev/max-runtime?"),
        ("dovetail.dev/max-runtime-seconds", "60", "did you mean dovetail.dev/max-runtime?"),
        ("dovetail.dev/preemptable", "false", "did you mean dovetail.dev/preemptible?"),
    ],
)
def test_an_unreadable_value_is_ignored_and_reported(key: str, value: str, words: str) -> None:
    options = asked({key: value})
    [problem] = options.problems
    assert problem.startswith(key)
    assert words in problem
    assert options._replace(problems=()) == workload_annotations.NO_OPTIONS


@pytest.mark.parametrize(
    "key",
    [
        "dovetail.dev/run-seconds",
        "dovetail.dev/hollow",
        "dovetail.dev/gang-group",
        "dovetail.dev/colour",
    ],
)
def test_unfamiliar_keys_are_left_to_other_tools(key: str) -> None:
    assert asked({key: "1"}) == workload_annotations.NO_OPTIONS


def test_a_label_that_happens_to_be_called_as_an_annotation_of_kai_means_nothing() -> None:
    assert (
        workload_annotations.read(({"gpu-memory": "80Gi"}, {})) == workload_annotations.NO_OPTIONS
    )


def test_a_segment_needs_a_required_level() -> None:
    options = asked(
        {
            workload_annotations.TOPOLOGY_PREFERRED: "rack",
            workload_annotations.TOPOLOGY_SEGMENT: "2",
            workload_annotations.TOPOLOGY_RELAX: "1m",
        }
    )
    assert options.topology == workload_annotations.TopologyRequest(topology="", preferred="rack")
    assert len(options.problems) == 2


@given(
    st.lists(st.dictionaries(st.sampled_from(KEYS), st.text(max_size=60), max_size=8), max_size=3)
)
def test_no_text_breaks_it(places: list[dict[str, str]]) -> None:
    options = asked(*places)
    assert all(len(problem) < 300 for problem in options.problems)
    for number in (
        options.max,
        options.expected_runtime,
        options.max_runtime,
        options.may_evict_after,
    ):
        assert number is None or 0 <= number <= durations.LONGEST_SECONDS


def test_asking_nothing_costs_nothing() -> None:
    assert (
        workload_annotations.read(({"app": "x"}, {"note": "y"})) is workload_annotations.NO_OPTIONS
    )
