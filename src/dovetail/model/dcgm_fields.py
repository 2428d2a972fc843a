"""The names that DCGM and its exporter give to measurements of GPUs: fields, their aliases, and labels.

Tables only. The node agent exports under these names, and the reader of Prometheus understands them, also under the
names that other versions use. Never measures.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from dovetail.model.exposition import Family


class Field(StrEnum):
    """What is measured, by the name of DCGM up to 4.5, which later versions keep as an alias."""

    GPU_UTIL = "DCGM_FI_DEV_GPU_UTIL"
    MEM_COPY_UTIL = "DCGM_FI_DEV_MEM_COPY_UTIL"
    FB_USED = "DCGM_FI_DEV_FB_USED"
    FB_FREE = "DCGM_FI_DEV_FB_FREE"
    FB_RESERVED = "DCGM_FI_DEV_FB_RESERVED"
    FB_TOTAL = "DCGM_FI_DEV_FB_TOTAL"
    POWER_USAGE = "DCGM_FI_DEV_POWER_USAGE"
    ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    GPU_TEMP = "DCGM_FI_DEV_GPU_TEMP"
    SM_CLOCK = "DCGM_FI_DEV_SM_CLOCK"
    XID_ERRORS = "DCGM_FI_DEV_XID_ERRORS"
    GR_ENGINE_ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
    SM_ACTIVE = "DCGM_FI_PROF_SM_ACTIVE"
    # Read where DCGM exports them; the node agent has no way to measure them.
    TENSOR_ACTIVE = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
    DRAM_ACTIVE = "DCGM_FI_PROF_DRAM_ACTIVE"


FAMILIES: Final = (
    Family(Field.GPU_UTIL, "gauge", "Time in which a kernel ran, in percent."),
    Family(Field.MEM_COPY_UTIL, "gauge", "Time in which memory was read or written, in percent."),
    Family(Field.FB_USED, "gauge", "Memory in use, in MiB."),
    Family(Field.FB_FREE, "gauge", "Memory that is free, in MiB."),
    Family(Field.FB_RESERVED, "gauge", "Memory that the driver keeps, in MiB."),
    Family(Field.FB_TOTAL, "gauge", "All memory, in MiB."),
    Family(Field.POWER_USAGE, "gauge", "Power drawn now, in W."),
    Family(Field.ENERGY, "counter", "Energy since the driver was loaded, in mJ."),
    Family(Field.GPU_TEMP, "gauge", "Temperature, in degrees Celsius."),
    Family(Field.SM_CLOCK, "gauge", "Clock of the multiprocessors, in MHz."),
    Family(Field.XID_ERRORS, "gauge", "Code of the last XID since the agent started; 0: none."),
    Family(
        Field.GR_ENGINE_ACTIVE,
        "gauge",
        "Share of the time in which the graphics or compute engine was busy.",
    ),
    Family(Field.SM_ACTIVE, "gauge", "Mean share of multiprocessors with work."),
)

# Names since DCGM 4.6. The figures that became ratios count from 0 to 1 under the new name.
NEW_NAMES: Final = {
    "DCGM_FI_DEV_GPU_UTIL_RATIO": Field.GPU_UTIL,
    "DCGM_FI_DEV_MEM_COPY_UTIL_RATIO": Field.MEM_COPY_UTIL,
    "DCGM_FI_DEV_BOARD_POWER_WATTS": Field.POWER_USAGE,
    "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": Field.GR_ENGINE_ACTIVE,
    "DCGM_FI_PROF_SM_UTIL_RATIO": Field.SM_ACTIVE,
    "DCGM_FI_PROF_TENSOR_UTIL_RATIO": Field.TENSOR_ACTIVE,
}
RATIOS_OF_PERCENT: Final = frozenset(
    {"DCGM_FI_DEV_GPU_UTIL_RATIO", "DCGM_FI_DEV_MEM_COPY_UTIL_RATIO"}
)
# With `vgpu` the exporter has these per process; all others are copies of the figure of the whole device.
PER_PROCESS: Final = frozenset({Field.GPU_UTIL, Field.FB_USED})

# DCGM writes such numbers for "not supported" and "not found": 2**63 - 14 and its neighbours, and half of that for
# 32-bit fields. No measurement comes near.
LEAST_SENTINEL: Final = 2**62
SENTINELS_32: Final = range(2**31 - 16, 2**31)

# Labels of old exporters, by what they are called now.
OLD_LABELS: Final = {
    "pod_name": "pod",
    "pod_namespace": "namespace",
    "container_name": "container",
    "hostname": "Hostname",
}
EXPORTED: Final = "exported_"  # how Prometheus renames labels that collide with the target's


def names_of(field: Field) -> tuple[str, ...]:
    """All names of a field, the oldest first."""
    return (field.value, *(name for name, meant in NEW_NAMES.items() if meant is field))
