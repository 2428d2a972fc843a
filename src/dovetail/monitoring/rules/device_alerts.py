"""Alerts about GPUs: errors of the driver, memory, heat, links, missing metrics, versions.

Which XID asks for what is taken from the node agent's table of faults, so that a taint and an alert never disagree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dovetail.monitoring.rules import recorded_series
from dovetail.monitoring.rules.rule import Alert, Audience, Group, Severity
from dovetail.node.health import policy_table

HOT_CELSIUS: Final = (
    90  # boards slow down between 87 and 95 degrees; the node agent's taint comes at 95
)
# Bits of nvmlClocksEventReasons: what the hardware does to protect itself, not what a power cap asks for.
SLOWDOWN_BITS: Final = {"hardware": 0x8, "thermal": 0x40, "power brake": 0x80}
SLOWED_SHARE: Final = 0.25  # of the last 15 minutes
IDLE_RATIO: Final = 0.01

_WHERE: Final = "GPU {{ $labels.gpu }} ({{ $labels.UUID }}) of node {{ $labels.node }}"


def xids_with(*advice: policy_table.Advice) -> str:
    """The codes whose rule gives this advice, as a regular expression."""
    return _alternatives(
        name
        for name, rule in policy_table.DEFAULTS.items()
        if _is_code(name) and rule.advice in advice
    )


def known_xids() -> str:
    """All codes that have a rule."""
    return _alternatives(filter(_is_code, policy_table.DEFAULTS))


def _is_code(name: str) -> bool:
    return name.startswith("xid-") and name != policy_table.OTHER_XID


def _alternatives(names: Iterable[str]) -> str:
    return "|".join(map(str, sorted(int(name.removeprefix("xid-")) for name in names)))


def _slowed(bit: int) -> str:
    """Whether a bit of the reasons is set: PromQL has no bitwise operators."""
    metric = recorded_series.supported("DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
    return f"(floor({metric} / {bit}) % 2)"


def _slowdown() -> str:
    """1 while any of the reasons is given."""
    bits = " + ".join(_slowed(bit) for bit in SLOWDOWN_BITS.values())
    return recorded_series.labelled(f"({bits} > bool 0)")


GROUP: Final = Group(
    name="dovetail-devices",
    rules=(
        Alert(
            name="GpuXidHardware",
            expr=(
                'accelerator_last_xid{xid=~"'
                + xids_with(
                    policy_table.Advice.RESET_GPU,
                    policy_table.Advice.REBOOT_NODE,
                    policy_table.Advice.CHECK_MECHANICS,
                )
                + '"} > 0'
            ),
            severity=Severity.CRITICAL,
            summary="XID {{ $labels.xid }}: the GPU needs a reset or its node a reboot.",
            description=(
                f"{_WHERE} reported XID {{{{ $labels.xid }}}}. Work on it has failed or will fail"
                "{{ with $labels.pod }} (pod {{ $labels.namespace }}/{{ . }}){{ end }}."
            ),
        ),
        Alert(
            name="GpuXidUnknown",
            expr=f'accelerator_last_xid{{xid!~"{known_xids()}"}} > 0',
            severity=Severity.WARNING,
            summary="XID {{ $labels.xid }} is in no table of ours.",
            description=f"{_WHERE} reported XID {{{{ $labels.xid }}}}, about which no rule says what to do.",
        ),
        Alert(
            name="GpuXidApplication",
            expr=f'accelerator_recent_xid{{xid=~"{xids_with(policy_table.Advice.RESTART_APP)}"}} > 0',
            severity=Severity.INFO,
            audience=Audience.OWNER,
            summary="XID {{ $labels.xid }}: an application failed on its GPU.",
            description=(
                f"{_WHERE} reported XID {{{{ $labels.xid }}}}, which programs cause"
                "{{ with $labels.pod }}; pod {{ $labels.namespace }}/{{ . }} holds the GPU{{ end }}."
            ),
        ),
        Alert(
            name="GpuRowRemapFailed",
            expr=recorded_series.labelled(
                recorded_series.supported("DCGM_FI_DEV_ROW_REMAP_FAILURE") + " > 0"
            ),
            severity=Severity.CRITICAL,
            summary="The GPU has no spare memory rows left.",
            description=f"{_WHERE} could not remap a faulty row of its memory: replace the GPU.",
        ),
        Alert(
            name="GpuRowsRemapped",
            expr=recorded_series.labelled(
                "increase(DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS[1d]) > 0"
            ),
            severity=Severity.WARNING,
            summary="Rows of GPU memory were remapped after uncorrectable errors.",
            description=(
                f"{_WHERE} remapped about {{{{ $value | humanize }}}} rows in the last day. They are in use"
                " after the next reset."
            ),
        ),
        Alert(
            name="GpuUnhealthy",
            expr='dovetail_device_unhealthy{effect=~"NoSchedule|NoExecute"} > 0',
            hold="5m",
            severity=Severity.WARNING,
            summary="A fault keeps new work off a GPU.",
            description=(
                "Device {{ $labels.device }} of pool {{ $labels.pool }} has the taint {{ $labels.key }}"
                ":{{ $labels.effect }}."
            ),
        ),
        Alert(
            name="GpuHot",
            expr=f"accelerator_temperature_celsius >= {HOT_CELSIUS}",
            hold="5m",
            severity=Severity.WARNING,
            summary="The GPU is at {{ $value }} degrees.",
            description=f"{_WHERE} has been at {HOT_CELSIUS} degrees or more for 5 minutes and is about to slow down.",
        ),
        Alert(
            name="GpuSlowedDown",
            expr=f"avg_over_time({_slowdown()}[15m:1m]) > {SLOWED_SHARE}",
            hold="5m",
            severity=Severity.WARNING,
            summary="The GPU slows itself down because of heat or power.",
            description=(
                f"{_WHERE} lowered its clocks to protect itself in {{{{ $value | humanizePercentage }}}} of the"
                " last 15 minutes. Every GPU of the same job waits for it."
            ),
        ),
        Alert(
            name="GpuNvlinkErrors",
            expr=recorded_series.labelled(
                "(increase(DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL[15m]) > 0"
                " or increase(DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL[15m]) > 100)"
            ),
            hold="5m",
            severity=Severity.WARNING,
            summary="An NVLink of the GPU has errors.",
            description=(
                f"{_WHERE} counted about {{{{ $value | humanize }}}} NVLink recoveries or replays in 15 minutes."
                " Collective operations over it are slow or hang."
            ),
        ),
        Alert(
            name="GpuMetricsMissing",
            expr=(
                "node:dovetail_gpus:count unless on (node)"
                " (accelerator_temperature_celsius or accelerator_memory_used_bytes)"
                " and on () count(accelerator_temperature_celsius) > 0"
            ),
            hold="15m",
            severity=Severity.WARNING,
            summary="No metrics of the GPUs of node {{ $labels.node }}.",
            description=(
                "Node {{ $labels.node }} publishes {{ $value }} GPUs, and other nodes have metrics of theirs. Idle"
                " work and faults on this node go unnoticed."
            ),
        ),
        Alert(
            name="GpuUnread",
            expr='dovetail_node_gpus{state="unread"} > 0',
            hold="10m",
            severity=Severity.WARNING,
            summary="{{ $value }} GPUs of a node do not answer the node agent.",
            description=(
                "The node agent at {{ $labels.instance }} could not read {{ $value }} GPUs for 10 minutes: the"
                " driver hangs, or the GPU is gone."
            ),
        ),
        Alert(
            name="GpuDriverSkew",
            expr=(
                "count by (modelName) (group by (modelName, DCGM_FI_DRIVER_VERSION)"
                " (accelerator_temperature_celsius)) > 1"
            ),
            hold="1d",
            severity=Severity.INFO,
            summary="{{ $value }} driver versions serve {{ $labels.modelName }}.",
            description="Nodes with the same GPUs have had different drivers for a day: jobs over both may not start.",
        ),
        Alert(
            name="GpuMigConfigFailed",
            expr='kube_node_labels{label_nvidia_com_mig_config_state="failed"} > 0',
            hold="5m",
            severity=Severity.WARNING,
            summary="NVIDIA's MIG manager could not partition node {{ $labels.node }}.",
            description="The label nvidia.com/mig.config.state of node {{ $labels.node }} is `failed`.",
        ),
    ),
)
