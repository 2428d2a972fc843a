"""Writes that turn stored slices into a pool: nothing superfluous, and never a complete pool of two inventories."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kubetypes import meta, node_selectors
from dovetail.kubetypes.resource import slices
from dovetail.node.slices import reconcile
from dovetail.node.slices.layout import SliceContent

POOL = "node-a"
DRIVER = "gpu.nvidia.com"


class Server:
    """Slices by name, as a server keeps them."""

    def __init__(self) -> None:
        self.slices: dict[str, slices.ResourceSlice] = {}
        self._count = 0

    def run(self, wanted: Sequence[SliceContent], *, at_most: int | None = None) -> int:
        """Performs the writes, or the first few of them; returns how many there were."""
        steps = reconcile.writes(list(self.slices.values()), wanted, pool_name=POOL)
        for step in steps[:at_most]:
            self._perform(step)
        return len(steps)

    def complete_pool(self) -> list[tuple[str, ...]] | None:
        """What a scheduler sees: device names slice by slice, or None while the pool is incomplete."""
        newest = max((each.spec.pool.generation for each in self.slices.values()), default=0)
        current = [each for each in self.slices.values() if each.spec.pool.generation == newest]
        if not current or len(current) != current[0].spec.pool.resource_slice_count:
            return None
        ordered = sorted(current, key=lambda each: each.metadata.name)
        return [tuple(device.name for device in each.spec.devices) for each in ordered]

    def _perform(self, step: reconcile.Write) -> None:
        self._count += 1
        match step:
            case reconcile.Delete():
                del self.slices[step.stored.metadata.name]
            case reconcile.Update():
                name = step.stored.metadata.name
                assert self.slices[name] == step.stored
                self._store(name, step.pool, step.content)
            case reconcile.Create():
                prefix = reconcile.name_prefix(step.index, driver=DRIVER, node=POOL)
                self._store(f"{prefix}{self._count:05}", step.pool, step.content)

    def _store(self, name: str, pool: slices.ResourcePool, content: SliceContent) -> None:
        spec = slices.ResourceSliceSpec(
            driver=DRIVER,
            pool=pool,
            devices=content.devices,
            shared_counters=content.shared_counters,
        )
        metadata = meta.ObjectMeta(name=name, resource_version=str(self._count))
        self.slices[name] = slices.ResourceSlice(metadata=metadata, spec=spec)


def pool(*slice_names: str) -> list[SliceContent]:
    """A pool whose slices hold devices with names of one letter: pool("ab", "c")."""
    return [
        SliceContent(devices=tuple(slices.Device(name=letter) for letter in letters))
        for letters in slice_names
    ]


def seen(wanted: Sequence[SliceContent]) -> list[tuple[str, ...]]:
    """The names a scheduler should see."""
    return [tuple(device.name for device in content.devices) for content in wanted]


pools = st.lists(st.text("abcd", max_size=2), min_size=1, max_size=3).map(lambda each: pool(*each))


@given(runs=st.lists(st.tuples(pools, st.integers(0, 6)), max_size=6), last=pools)
def test_a_run_cut_short_never_shows_a_mixture_and_the_next_run_repairs_it(
    runs: list[tuple[list[SliceContent], int]], last: list[SliceContent]
) -> None:
    server = Server()
    before: list[tuple[str, ...]] | None = None
    for wanted, writes in [*runs, (last, 99)]:
        for _ in range(writes):
            if not server.run(wanted, at_most=0):
                break
            # One write of a plan at a time; planning again in between is what another run would do.
            server.run(wanted, at_most=1)
            assert server.complete_pool() in (None, before, seen(wanted))
        before = server.complete_pool() or before
    assert server.complete_pool() == seen(last)
    assert server.run(last) == 0


@given(runs=st.lists(st.tuples(pools, st.integers(0, 6)), max_size=6), last=pools)
def test_one_run_after_any_crash_is_enough(
    runs: list[tuple[list[SliceContent], int]], last: list[SliceContent]
) -> None:
    server = Server()
    before: list[tuple[str, ...]] | None = None
    for wanted, writes in runs:
        server.run(wanted, at_most=writes)
        assert server.complete_pool() in (None, before, seen(wanted))
        before = server.complete_pool() or before
    server.run(last)
    assert server.complete_pool() == seen(last)
    generations = {each.spec.pool.generation for each in server.slices.values()}
    assert len(generations) == 1
    assert server.run(last) == 0


def test_the_first_pool_is_of_generation_one() -> None:
    server = Server()
    assert server.run(pool("a", "b")) == 2
    names = sorted(server.slices)
    assert [name.rpartition("-")[0] for name in names] == [
        "00000-gpu.nvidia.com-node-a",
        "00001-gpu.nvidia.com-node-a",
    ]
    assert {each.spec.pool.generation for each in server.slices.values()} == {1}


def test_a_change_of_one_slice_is_one_write_and_keeps_the_generation() -> None:
    server = Server()
    server.run(pool("a", "b", "c"))
    assert server.run(pool("a", "x", "c")) == 1
    assert {each.spec.pool.generation for each in server.slices.values()} == {1}


def test_a_change_of_two_slices_starts_a_generation() -> None:
    server = Server()
    server.run(pool("a", "b", "c"))
    assert server.run(pool("x", "y", "c")) == 3
    assert {each.spec.pool.generation for each in server.slices.values()} == {2}


def test_the_order_of_devices_is_part_of_the_pool() -> None:
    server = Server()
    server.run(pool("ab"))
    assert server.run(pool("ba")) == 1


def test_a_slice_that_another_writer_added_goes_with_a_new_generation() -> None:
    server = Server()
    server.run(pool("a"))
    (own,) = server.slices.values()
    stranger = msgspec.structs.replace(own.metadata, name="stranger")
    server.slices["stranger"] = msgspec.structs.replace(own, metadata=stranger)
    server.run(pool("a"))
    assert set(server.slices) == {own.metadata.name}
    assert server.complete_pool() == [("a",)]


def test_the_time_that_the_server_adds_to_a_taint_is_no_change() -> None:
    taint = node_selectors.DeviceTaint(key="k", value="v", effect="NoSchedule")
    timed = msgspec.structs.replace(taint, time_added="2026-11-17T12:00:00Z")
    spec = slices.ResourceSliceSpec(devices=(slices.Device(name="a", taints=(timed,)),))
    content = SliceContent(devices=(slices.Device(name="a", taints=(taint,)),))
    assert reconcile.is_same(spec, content)
    (kept,) = reconcile.with_stored_times(content, spec.devices)
    assert kept.taints == (timed,)


def test_another_taint_is_a_change_and_has_no_time_yet() -> None:
    old = node_selectors.DeviceTaint(
        key="k", value="1", effect="NoSchedule", time_added="2026-11-17T12:00:00Z"
    )
    new = node_selectors.DeviceTaint(key="k", value="2", effect="NoSchedule")
    spec = slices.ResourceSliceSpec(devices=(slices.Device(name="a", taints=(old,)),))
    content = SliceContent(devices=(slices.Device(name="a", taints=(new,)),))
    assert not reconcile.is_same(spec, content)
    (device,) = reconcile.with_stored_times(content, spec.devices)
    assert device.taints == (new,)
