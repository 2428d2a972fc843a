"""Records for tests: hand-made ones by short verbs, and drawn ones for properties."""

from __future__ import annotations

from hypothesis import strategies as st

from dovetail.model.accounting.records import (
    MICRO_GPU,
    Allocation,
    Asset,
    Decision,
    Form,
    Gap,
    GapSource,
    Owner,
    PriceList,
    Promise,
    Records,
    Unusable,
    Usage,
    Waiting,
)

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
FIELDS = (
    "assets",
    "allocations",
    "usage",
    "waiting",
    "unusable",
    "promises",
    "decisions",
    "gaps",
    "prices",
)


def owner(namespace: str = "train", pod: str = "job-0") -> Owner:
    return Owner(
        namespace=namespace,
        pod=pod,
        pod_uid=f"uid-{namespace}-{pod}",
        controller_kind="Job",
        controller="job",
        queue="research",
        labels={"team": namespace, "app": "llama"},
    )


def allocation(
    name: str = "a", *, start: int = 0, end: int | None = None, namespace: str = "train"
) -> Allocation:
    return Allocation(
        allocation=name,
        asset="GPU-1",
        node="n1",
        micro_gpu=MICRO_GPU // 2,
        form=Form.MIG,
        owner=owner(namespace),
        start=start,
        end=end,
        profile="3g.40gb",
        claim="claim-0",
        memory_bytes=40 << 30,
    )


def minutes(
    count: int, *, start: int = 0, allocation: str = "a", busy: int = 333_333
) -> tuple[Usage, ...]:
    return tuple(
        Usage(
            asset="GPU-1",
            allocation=allocation,
            start=start + place * MINUTE,
            end=start + (place + 1) * MINUTE,
            busy_micro=busy + place,
            memory_bytes=(1 << 30) + place,
            energy_millijoules=7 + place,
            tensor_micro=busy // 2,
            dram_micro=busy // 3 + place,
        )
        for place in range(count)
    )


def everything() -> Records:
    """One record of each kind, with every field set."""
    return Records(
        assets=(
            Asset(
                asset="GPU-1",
                node="n1",
                product="NVIDIA H100 80GB HBM3",
                start=0,
                end=5 * HOUR,
                count=1,
                memory_bytes=80 << 30,
                pool="gpu",
                is_spot=True,
                labels={"topology.kubernetes.io/zone": "a"},
            ),
        ),
        allocations=(allocation(start=HOUR, end=3 * HOUR),),
        usage=minutes(10, start=HOUR),
        waiting=(Waiting(owner(), MICRO_GPU, 0, HOUR, "no room: 8 GPUs in one domain"),),
        unusable=(Unusable("GPU-1", "n1", MICRO_GPU // 2, HOUR, 2 * HOUR, "fragmented"),),
        promises=(
            Promise(
                "train/job/job", owner(), 0, HOUR, 2 * HOUR, HOUR, "node n1 is gone", ("n1", "n2")
            ),
        ),
        decisions=(
            Decision(HOUR, "evicted", owner(), "n1", "reclaim", "eval/job-1", "queue over quota"),
        ),
        gaps=(Gap(GapSource.METRICS, 2 * HOUR, 3 * HOUR, "no samples", "n1"),),
        prices=(PriceList("list", "gpu: 2.5\n", 0, None),),
    )


def ordered(records: Records) -> dict[str, list[object]]:
    """Records in one order, so that two answers can be compared."""
    return {field: sorted(getattr(records, field), key=repr) for field in FIELDS}


# Drawn records. What a record is about and when it began decide everything else but its end.

_NAMES = st.sampled_from(["a", "b", "c"])
_STARTS = st.integers(0, 40).map(lambda number: number * 7 * MINUTE)


@st.composite
def observations(draw: st.DrawFn) -> Records:
    """A batch: some intervals, open or closed, and some minutes of measurements."""
    name, start = draw(_NAMES), draw(_STARTS)
    end = draw(st.none() | st.just(start + 7 * MINUTE))
    who = owner(pod=name)
    return Records(
        assets=(Asset(f"GPU-{name}", "n1", "H100", start, end),),
        allocations=(
            Allocation(name, f"GPU-{name}", "n1", MICRO_GPU, Form.WHOLE, who, start, end),
        ),
        usage=draw(usage(name)),
        waiting=(Waiting(who, MICRO_GPU, start, end),),
        decisions=(Decision(start, "started", who),),
        gaps=(Gap(GapSource.API, start, end),),
    )


@st.composite
def usage(draw: st.DrawFn, name: str) -> tuple[Usage, ...]:
    """Whole minutes of one series. Which values a minute has depends on the minute alone."""
    places = draw(st.lists(st.integers(0, 240), max_size=12))
    return tuple(_minute(name, place) for place in places)


def _minute(name: str, place: int) -> Usage:
    return Usage(
        asset=f"GPU-{name}",
        allocation=name,
        start=place * MINUTE,
        end=(place + 1) * MINUTE,
        busy_micro=None if place % 11 == 0 else (place * 7919) % MICRO_GPU,
        memory_bytes=None if place % 13 == 0 else place << 20,
        energy_millijoules=None if place % 17 == 0 else place * 31,
        tensor_micro=None if place % 19 == 0 else (place * 104_729) % MICRO_GPU,
    )
