"""The counters that DCGM's exporter must collect for our alerts and dashboards, as its CSV file.

The exporter's defaults leave out what tells a busy GPU from an occupied one, throttling, and errors of links. A field
that a board does not have is left out by the exporter.
"""

from __future__ import annotations

from typing import Final

# Field, kind, meaning. Off by default in DCGM's exporter: those below the comment.
_USUAL: Final = (
    ("DCGM_FI_DRIVER_VERSION", "label", "Driver version."),
    ("DCGM_FI_DEV_SM_CLOCK", "gauge", "Clock of the multiprocessors (in MHz)."),
    ("DCGM_FI_DEV_MEM_CLOCK", "gauge", "Clock of the memory (in MHz)."),
    ("DCGM_FI_DEV_GPU_TEMP", "gauge", "Temperature of the GPU (in C)."),
    ("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Temperature of the memory (in C)."),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W)."),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Energy since the driver started (in mJ)."),
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "Time in which a kernel ran (in %)."),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Time in which memory was read or written (in %)."),
    ("DCGM_FI_DEV_FB_FREE", "gauge", "Memory that is free (in MiB)."),
    ("DCGM_FI_DEV_FB_USED", "gauge", "Memory in use (in MiB)."),
    ("DCGM_FI_DEV_FB_RESERVED", "gauge", "Memory that the driver keeps (in MiB)."),
    ("DCGM_FI_DEV_XID_ERRORS", "gauge", "Code of the last XID error."),
    (
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "counter",
        "Rows remapped for uncorrectable errors.",
    ),
    ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter", "Rows remapped for correctable errors."),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "Whether remapping of rows has failed."),
    ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "counter", "NVLink traffic of all links."),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "Share of time in which the engine worked."),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Share of cycles in which tensor cores worked."),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Share of cycles in which memory was busy."),
    ("DCGM_FI_PROF_PCIE_TX_BYTES", "counter", "Bytes sent over PCIe."),
    ("DCGM_FI_PROF_PCIE_RX_BYTES", "counter", "Bytes received over PCIe."),
)
_TURNED_ON: Final = (
    ("DCGM_FI_DEV_FB_TOTAL", "gauge", "All memory (in MiB)."),
    ("DCGM_FI_PROF_SM_ACTIVE", "gauge", "Mean share of multiprocessors with work."),
    ("DCGM_FI_PROF_SM_OCCUPANCY", "gauge", "Mean share of resident warps."),
    ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "gauge", "Why clocks are low, as a bit mask."),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Uncorrectable errors of memory since the reset."),
    ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "counter", "NVLink packets sent again."),
    ("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "counter", "NVLink recoveries."),
    ("DCGM_EXP_XID_ERRORS_COUNT", "gauge", "XID errors within the exporter's window."),
)


def text() -> str:
    """The file, for `dcgm-exporter -f`."""
    lines = ["# Field, kind, meaning. What DCGM's exporter collects by default:"]
    lines += map(", ".join, _USUAL)
    lines += ["", "# Off by default, and needed by Dovetail's alerts and dashboards:"]
    lines += map(", ".join, _TURNED_ON)
    return "\n".join(lines) + "\n"


def fields() -> frozenset[str]:
    """The names of all metrics in the file."""
    return frozenset(name for name, _, _ in (*_USUAL, *_TURNED_ON))
