"""The series of devices under names that no vendor owns, which alerts and dashboards read.

DCGM's exporter and our node agent write the same names. Here their labels are brought to one form: `node` for the host,
however the exporter spells it, and `pod`, `namespace`, `container` for the holder, also where Prometheus had to rename
them. Figures that an exporter marks as not supported are left out. Another vendor needs expressions here, and nothing
else.
"""

from __future__ import annotations

from typing import Final

from dovetail.monitoring.rules.rule import Group, Recording

VENDOR: Final = {"vendor": "nvidia"}
# DCGM writes 9223372036854775794 and its neighbours for "not supported"; no true figure comes near.
UNSUPPORTED: Final = "1e15"
DEVICE: Final = "node, UUID, gpu, modelName, namespace, pod"  # by which faults are counted
RECENT: Final = "15m"  # how long the error of an application is news
MEBIBYTE: Final = 1024 * 1024
MEGAHERTZ: Final = 1_000_000

# How exporters and Prometheus spell what we call `node`, `pod`, `namespace` and `container`.
_SPELLINGS: Final = (
    ("node", "Hostname"),
    ("node", "hostname"),
    ("pod", "exported_pod"),
    ("namespace", "exported_namespace"),
    ("container", "exported_container"),
)


def labelled(expr: str) -> str:
    """The expression with the labels in our form."""
    for label, spelling in _SPELLINGS:
        expr = f'label_replace({expr}, "{label}", "$1", "{spelling}", "(.+)")'
    return expr


def supported(metric: str) -> str:
    """The metric without the placeholders for "not supported"."""
    return f"({metric} < {UNSUPPORTED})"


def _device(record: str, expr: str) -> Recording:
    return Recording(record=record, expr=labelled(expr), labels=VENDOR)


# The first seven names are those that NVIDIA's operator and OpenShift record already, with the same units.
GROUP: Final = Group(
    name="dovetail-accelerators",
    rules=(
        _device("accelerator_gpu_utilization", supported("DCGM_FI_DEV_GPU_UTIL")),
        _device(
            "accelerator_memory_used_bytes", f"{supported('DCGM_FI_DEV_FB_USED')} * {MEBIBYTE}"
        ),
        _device(
            "accelerator_memory_total_bytes",
            f"({supported('DCGM_FI_DEV_FB_TOTAL')} or ({supported('DCGM_FI_DEV_FB_USED')}"
            f" + {supported('DCGM_FI_DEV_FB_FREE')})) * {MEBIBYTE}",
        ),
        _device("accelerator_power_usage_watts", supported("DCGM_FI_DEV_POWER_USAGE")),
        _device("accelerator_temperature_celsius", supported("DCGM_FI_DEV_GPU_TEMP")),
        _device("accelerator_sm_clock_hertz", f"{supported('DCGM_FI_DEV_SM_CLOCK')} * {MEGAHERTZ}"),
        _device(
            "accelerator_memory_clock_hertz", f"{supported('DCGM_FI_DEV_MEM_CLOCK')} * {MEGAHERTZ}"
        ),
        # The engine's own figure where there is one: utilisation says "any kernel ran", and is absent under MIG.
        _device(
            "accelerator_active_ratio",
            f"({supported('DCGM_FI_PROF_GR_ENGINE_ACTIVE')} or {supported('DCGM_FI_DEV_GPU_UTIL')} / 100)",
        ),
        _device("accelerator_sm_active_ratio", supported("DCGM_FI_PROF_SM_ACTIVE")),
        # The code of the last error, as a label. It stays until the exporter or the GPU starts again.
        Recording(
            record="accelerator_last_xid",
            expr=f'count_values by ({DEVICE}) ("xid", {labelled("DCGM_FI_DEV_XID_ERRORS > 0")})',
            labels=VENDOR,
        ),
        # The same only while it is news, from the change of the code or from DCGM's own count of a window.
        Recording(
            record="accelerator_recent_xid",
            expr=(
                f"sum by ({DEVICE}, xid) ({labelled('DCGM_EXP_XID_ERRORS_COUNT > 0')})"
                f' or count_values by ({DEVICE}) ("xid", '
                + labelled(
                    f"(DCGM_FI_DEV_XID_ERRORS > 0) and changes(DCGM_FI_DEV_XID_ERRORS[{RECENT}]) > 0"
                )
                + ")"
            ),
            labels=VENDOR,
        ),
        # GPUs that a node publishes, and those of them that a claim holds, as a whole or a slice of them.
        Recording(record="node:dovetail_gpus:count", expr="count by (node) (dovetail_device_info)"),
        Recording(
            record="node:dovetail_gpus_allocated:count",
            expr=(
                "count by (node) (dovetail_device_info and on (driver, pool, device) label_replace("
                'kube_resourceclaim_allocation_device_info, "device", "$1", "device", "(gpu-[0-9]+)-mig-.+"))'
            ),
        ),
    ),
)
