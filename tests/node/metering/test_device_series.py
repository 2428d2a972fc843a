"""Which series a node exports: every figure once, whoever holds the GPU."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.model import dcgm_fields, exposition
from dovetail.model.dcgm_fields import Field
from dovetail.node.claims import checkpoint
from dovetail.node.device_use import GpuUse, MemoryUse, ProcessUse
from dovetail.node.inventory import Gpu, Inventory
from dovetail.node.metering import device_holders, device_series, process_pods
from dovetail.node.metering.device_holders import HolderPod

GPU = Gpu(
    minor=0,
    uuid="GPU-a",
    product_name="NVIDIA H100 80GB HBM3",
    brand="Nvidia",
    architecture="Hopper",
    cuda_compute_capability="9.0",
    memory_bytes=80 << 30,
    pci_bus_id="0000:1b:00.0",
)
INVENTORY = Inventory(driver_version="580.1", cuda_driver_version="13.0", gpus=(GPU,))


def claim(name: str, *, is_admin: bool = False) -> checkpoint.Claim:
    held = checkpoint.HeldDevice(
        request="gpu",
        pool="node-a",
        device="gpu-0",
        gpu_uuid=GPU.uuid,
        gpu_minor=0,
        is_admin=is_admin,
    )
    return checkpoint.Claim(
        uid=f"uid-{name}",
        namespace="ml",
        name=name,
        state=checkpoint.State.COMPLETED,
        devices=(held,),
    )


def exported(
    claims: list[checkpoint.Claim],
    pods: dict[str, list[HolderPod]],
    use: GpuUse,
    pods_of_processes: dict[int, str],
) -> list[exposition.Series]:
    return device_series.series(
        INVENTORY,
        [use],
        holders=device_holders.holders(claims, pods),
        pods_of_processes=pods_of_processes,
        xids={},
        node_name="node-a",
    )


processes = st.lists(
    st.builds(
        ProcessUse,
        pid=st.integers(1, 30),
        memory_bytes=st.one_of(st.none(), st.integers(0, 8 << 30)),
        busy_percent=st.integers(0, 100),
    ),
    unique_by=lambda process: process.pid,
    max_size=8,
)


@given(
    held_by=st.lists(st.lists(st.integers(0, 3), unique=True, max_size=3), max_size=4),
    running=processes,
    owners=st.dictionaries(st.integers(1, 30), st.sampled_from(["p0", "p1", "p2", "p3", "other"])),
    busy=st.integers(0, 100),
)
def test_sums_over_series_are_the_figures_of_the_gpu(
    held_by: list[list[int]],
    running: list[ProcessUse],
    owners: dict[int, str],
    busy: int,
) -> None:
    claims = [claim(f"c{number}") for number in range(len(held_by))]
    pods = {
        f"uid-c{number}": [HolderPod(f"pod-{pod}", f"p{pod}") for pod in each]
        for number, each in enumerate(held_by)
    }
    used = sum(process.memory_bytes or 0 for process in running)
    use = GpuUse(
        minor=0,
        uuid=GPU.uuid,
        busy_percent=busy,
        memory=MemoryUse(total_bytes=80 << 30, used_bytes=used, free_bytes=(80 << 30) - used),
        power_milliwatts=300_000,
        processes=tuple(running),
    )
    series = exported(claims, pods, use, owners)

    keys = [(each.name, *sorted(each.labels.items())) for each in series]
    assert len(set(keys)) == len(keys), "no series twice"
    totals: dict[str, float] = {}
    for each in series:
        totals[each.name] = totals.get(each.name, 0) + each.value
    assert totals[Field.POWER_USAGE] == 300
    assert totals[Field.FB_FREE] == ((80 << 30) - used) >> 20
    # Each part is rounded down to MiB, and the remainder takes what is left: the sum is that of the GPU.
    assert totals[Field.FB_USED] == used >> 20
    holders_busy = [
        each for each in series if each.name == Field.GPU_UTIL and "vgpu" in each.labels
    ]
    assert totals[Field.GPU_UTIL] == max(busy, sum(each.value for each in holders_busy))


def test_a_claim_with_admin_access_holds_nothing() -> None:
    use = GpuUse(minor=0, uuid=GPU.uuid, busy_percent=5)
    series = exported([claim("monitor", is_admin=True), claim("train")], {}, use, {})
    assert {each.labels["dra_claim_name"] for each in series} == {"train"}


def test_text_escapes_what_a_cluster_may_name() -> None:
    series = [exposition.Series(Field.GPU_UTIL, {"modelName": 'a"b\\c\nd', "pod": ""}, 5)]
    text = exposition.text(dcgm_fields.FAMILIES, series)
    assert text.splitlines()[-1] == 'DCGM_FI_DEV_GPU_UTIL{modelName="a\\"b\\\\c\\nd"} 5'


@pytest.mark.parametrize(
    ("cgroup", "uid"),
    [
        (
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-"
            "pod0d2a6a1e_6a1b_4a6c_9b58_7b9d3c1f0e2a.slice/cri-containerd-ab12.scope\n",
            "0d2a6a1e-6a1b-4a6c-9b58-7b9d3c1f0e2a",
        ),
        (
            "12:cpu:/kubepods/besteffort/pod0d2a6a1e-6a1b-4a6c-9b58-7b9d3c1f0e2a/ab12\n",
            "0d2a6a1e-6a1b-4a6c-9b58-7b9d3c1f0e2a",
        ),
        (
            "0::/kubepods.slice/kubepods-pod5f1d0b0a7e7b4c1d9f3a2b1c0d9e8f7a.slice/cri-o-a.scope",
            "5f1d0b0a7e7b4c1d9f3a2b1c0d9e8f7a",
        ),
        ("0::/system.slice/tripod-service.service\n", ""),
        ("", ""),
    ],
)
def test_the_pod_of_a_process_is_in_its_control_group(cgroup: str, uid: str) -> None:
    assert process_pods.uid_in(cgroup) == uid
