"""Jobs that validate a node from the inside: what to run, and what their termination messages mean.

Given a check and a node. The Job tolerates every taint and asks for all GPUs of the node as extended resources. A
message says `ok`, or `failed: ...`, or for NCCL the bandwidth: `busbw=212.4`. Never creates anything.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from dovetail.upgrade.validation.validation_checks import Check, Subject

NAMESPACE: Final = "dovetail-system"
DEADLINE_SECONDS: Final = {
    1: 300,
    2: 900,
    3: 3_600,
    4: 10_800,
}  # of dcgmi diag: 30 s, 2, 15, 120 min
NCCL_SECONDS: Final = 900
_BANDWIDTH: Final = re.compile(r"busbw=(?P<value>[0-9]{1,6}(\.[0-9]{1,6})?)")

# The container writes its verdict where the kubelet reads the termination message.
_DCGM: Final = (
    "if dcgmi diag -r {level} >/tmp/diag 2>&1; then echo ok; "
    "else echo failed: $(grep -i fail /tmp/diag | head -c 900); fi >/dev/termination-log"
)
_NCCL: Final = (
    "all_reduce_perf -b 1G -e 1G -g {gpus} >/tmp/nccl 2>&1 "
    "&& echo busbw=$(awk '/Avg bus bandwidth/ {{print $NF}}' /tmp/nccl) >/dev/termination-log "
    "|| echo failed: $(tail -c 900 /tmp/nccl) >/dev/termination-log"
)


class JobResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a Job's container left behind."""

    is_ok: bool
    message: str
    gigabytes_per_second: float | None = None


def name_of(check: Check, node: str, attempt: str) -> str:
    """The Job's name: one of each node and attempt, so that a second create finds the first."""
    return f"validate-{check.check}-{node}-{attempt}"[:63].rstrip("-.")


def job(check: Check, node: str, *, gpus: int, attempt: str, namespace: str = NAMESPACE) -> Any:
    """The manifest of the Job, as a tree."""
    is_dcgm = check.check is Subject.DCGM
    script = _DCGM.format(level=check.level) if is_dcgm else _NCCL.format(gpus=gpus)
    deadline = DEADLINE_SECONDS.get(check.level, NCCL_SECONDS) if is_dcgm else NCCL_SECONDS
    container = {
        "name": str(check.check),
        "image": check.image,
        "command": ["sh", "-c", script],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name_of(check, node, attempt), "namespace": namespace},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": deadline,
            "ttlSecondsAfterFinished": 3_600,
            "template": {"spec": pod},
        },
    }


def result_of(check: Check, message: str) -> JobResult:
    """What a termination message means. An empty or foreign one is a failure: never a silent pass."""
    text = message.strip()
    if check.check is Subject.NCCL:
        match = _BANDWIDTH.fullmatch(text)
        if match is not None:
            return JobResult(is_ok=True, message=text, gigabytes_per_second=float(match["value"]))
    elif text == "ok":
        return JobResult(is_ok=True, message=text)
    return JobResult(is_ok=False, message=text or "the container left no termination message")
