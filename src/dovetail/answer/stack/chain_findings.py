"""Whether the parts of the stack go together on a node: Kubernetes, containerd, operator, toolkit, driver, GPU, MIG.

Given the versions a node would have, and rows. Every pair that a row speaks of is one finding: fine, a warning, not, or
cannot tell, with the row. A pair with a version that is not known is named too. Never looks at images.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from dovetail.answer.stack import image_verdict
from dovetail.answer.stack.compatibility_rows import (
    BOARD,
    CONTAINERD,
    DRA_DRIVER,
    DRIVER,
    GPU,
    KUBELET,
    KUBERNETES,
    MIG,
    MIG_MANAGER,
    OPERATOR,
    TOOLKIT,
    Entry,
    Relation,
    Row,
    Rows,
)
from dovetail.answer.stack.node_stack import MIG_OFF, NodeStack
from dovetail.answer.stack.platform_objects import AGENT
from dovetail.answer.stack.stack_facts import NONE, Fact
from dovetail.quantity import dotted_versions

CONTAINERD_SCHEME: Final = "containerd://"
GRACE_WORDS: Final = ("gh200", "gb200", "gb300")  # boards with a Grace CPU


class State(enum.StrEnum):
    """What a finding says."""

    OK = "ok"
    WARNING = "warning"
    UNKNOWN = "cannot tell"
    NO = "no"


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """Two parts and whether they go together."""

    parts: str
    state: State
    why: str
    row: Row | None = None


# Which part must find which other part in the range of its rows.
_PAIRS: Final = (
    (KUBERNETES, CONTAINERD, Relation.SUPPORTS),
    (OPERATOR, KUBERNETES, Relation.SUPPORTS),
    (OPERATOR, CONTAINERD, Relation.SUPPORTS),
    (TOOLKIT, CONTAINERD, Relation.NEEDS),
    (DRA_DRIVER, KUBERNETES, Relation.NEEDS),
    (DRA_DRIVER, DRIVER, Relation.NEEDS),
)
# Parts without which nothing is to be said: an absent operator is no finding.
_OPTIONAL: Final = (OPERATOR, TOOLKIT, DRA_DRIVER)


def of_node(
    stack: NodeStack, versions: Mapping[str, Fact], now: Mapping[str, Fact], rows: Rows
) -> Iterator[Finding]:
    """The findings of one node, given the versions it would have and has."""
    for subject, other, relation in _PAIRS:
        yield from _pair(subject, other, relation, versions, rows)
    yield from _skew(versions, rows)
    yield from _steps(versions, now, rows)
    if stack.has_gpu:
        yield from _gpu(stack, versions[DRIVER], rows)
        yield from _known_bad(stack, versions, rows)


def runtime_version(runtime: Fact) -> Fact:
    """The version of containerd out of what a kubelet reports; none where another runtime is used."""
    if not runtime.is_known:
        return runtime
    if not runtime.value.startswith(CONTAINERD_SCHEME):
        scheme = runtime.value.partition("://")[0]
        return Fact(value=NONE, source=f"the runtime is {scheme}")
    return Fact(value=runtime.value.removeprefix(CONTAINERD_SCHEME), source=runtime.source)


def _pair(
    subject: str, other: str, relation: Relation, versions: Mapping[str, Fact], rows: Rows
) -> Iterator[Finding]:
    first, second = versions[subject], versions[other]
    if NONE in (first.value, second.value) or first.value == AGENT:
        return
    parts = f"{subject} {first} with {other} {second}"
    if not _is_version(first) or not _is_version(second):
        missing = subject if not _is_version(first) else other
        why = _reason(missing, versions[missing])
        yield Finding(parts, State.UNKNOWN, why)
        return
    entry = rows.decides(relation, subject, first.value, other=other)
    if entry is None or entry.others is None:
        if relation is Relation.SUPPORTS:
            yield Finding(
                parts, State.UNKNOWN, f"no row says which {other} {subject} {first} supports"
            )
        return
    yield _compared(parts, other, second, entry)


def _compared(parts: str, other: str, version: Fact, entry: Entry) -> Finding:
    assert entry.others is not None
    verb = "needs" if entry.row.relation is Relation.NEEDS else "supports"
    said = f"{entry.row.subject} {verb} {other} {entry.others}"
    if version.value in entry.others:
        return Finding(parts, State.OK, said, entry.row)
    note = f" ({entry.row.note})" if entry.row.note else ""
    return Finding(parts, State.NO, f"{said}, not {version}{note}", entry.row)


def _skew(versions: Mapping[str, Fact], rows: Rows) -> Iterator[Finding]:
    """How far a kubelet may be from the API server."""
    server, kubelet = versions[KUBERNETES], versions[KUBELET]
    if NONE in (server.value, kubelet.value):
        return
    if not _is_version(server) or not _is_version(kubelet):
        missing = KUBERNETES if not _is_version(server) else KUBELET
        parts = f"kubernetes {server} with kubelet {kubelet}"
        yield Finding(parts, State.UNKNOWN, _reason(missing, versions[missing]))
        return
    entry = rows.decides(Relation.STEP, KUBERNETES, server.value, other=KUBELET)
    if entry is None:
        return
    most = int(entry.row.range.rpartition(" ")[2])
    behind = dotted_versions.number_at(server.value, 1) - dotted_versions.number_at(
        kubelet.value, 1
    )
    parts = f"kubernetes {server} with kubelet {kubelet}"
    if behind < 0:
        yield Finding(
            parts, State.NO, f"the kubelet is newer by {-behind}: upgrade it last", entry.row
        )
    elif behind > most:
        why = f"the kubelet is {behind} versions older, at most {most} may be: upgrade it first"
        yield Finding(parts, State.NO, why, entry.row)
    else:
        yield Finding(parts, State.OK, f"the kubelet is {behind} versions older", entry.row)


def _steps(versions: Mapping[str, Fact], now: Mapping[str, Fact], rows: Rows) -> Iterator[Finding]:
    """How many releases an upgrade may go at once: Kubernetes by minor, the operator by major versions."""
    for component, place in ((KUBERNETES, 1), (OPERATOR, 0)):
        before, after = now[component], versions[component]
        if before == after or not after.is_present or before.value == NONE:
            continue
        parts = f"{component} {before} to {after}"
        if not _is_version(before):
            yield Finding(parts, State.UNKNOWN, _reason(component, before))
            continue
        entry = rows.decides(Relation.STEP, component, after.value, other=component)
        if entry is None:
            continue
        most = int(entry.row.range.rpartition(" ")[2])
        step = dotted_versions.number_at(after.value, place) - dotted_versions.number_at(
            before.value, place
        )
        if step > most:
            why = f"{step} versions at once, at most {most}: go there in steps"
            yield Finding(parts, State.NO, why, entry.row)
        elif dotted_versions.compare(after.value, before.value) < 0:
            yield Finding(parts, State.WARNING, "a downgrade: makers test upgrades", entry.row)
        else:
            yield Finding(parts, State.OK, f"{max(step, 0)} versions at once", entry.row)


def _gpu(stack: NodeStack, driver: Fact, rows: Rows) -> Iterator[Finding]:
    """Whether the driver serves the GPU, and MIG where it is used."""
    parts = f"{stack.gpu} with driver {driver}"
    if not _is_version(driver) or not stack.architecture.is_present:
        why = _reason("driver", driver) if not _is_version(driver) else _reason("gpu", stack.gpu)
        yield Finding(parts, State.UNKNOWN, why)
        return
    for name in stack.architecture.value.split(" + "):
        entry = rows.decides(Relation.SUPPORTS, GPU, "0", other=DRIVER, name=name)
        if entry is None:
            yield Finding(parts, State.UNKNOWN, f"no row speaks of GPUs of {name}")
        else:
            yield _compared(parts, DRIVER, driver, entry)
    for entry in image_verdict.board_entries(stack.gpu.value, BOARD, rows):
        yield _compared(parts, DRIVER, driver, entry)
    if uses_mig(stack):
        mig = f"MIG on {stack.gpu} with driver {driver}"
        entries = list(image_verdict.board_entries(stack.gpu.value, MIG, rows))
        if not entries:
            yield Finding(mig, State.UNKNOWN, f"no row says which driver has MIG on {stack.gpu}")
        for entry in entries:
            yield _compared(mig, DRIVER, driver, entry)


def uses_mig(stack: NodeStack) -> bool:
    """Whether the node's GPUs are partitioned."""
    return stack.mig.is_known and stack.mig.value.partition(",")[0] not in MIG_OFF


def _known_bad(stack: NodeStack, versions: Mapping[str, Fact], rows: Rows) -> Iterator[Finding]:
    for component in (DRIVER, OPERATOR, TOOLKIT, MIG_MANAGER):
        version = versions[component]
        if not _is_version(version):
            continue
        for entry in rows.matching(Relation.BREAKS, component, version.value):
            state = _condition(stack, entry.row.range)
            if state is not None:
                note = entry.row.note or "known to be bad"
                parts = f"{component} {version}, {entry.row.range}"
                why = note if state is State.NO else f"no object tells whether it applies: {note}"
                yield Finding(parts, state, why, entry.row)


def _condition(stack: NodeStack, text: str) -> State | None:
    """Whether a node meets the conditions of a known-bad row; a warning where nothing tells. None: it does not."""
    states = [_holds(stack, part.strip()) for part in text.split("+")]
    if False in states:
        return None
    return State.WARNING if None in states else State.NO


def _holds(stack: NodeStack, condition: str) -> bool | None:
    word, _, name = condition.partition(" ")
    product = stack.gpu.value.lower().replace("-", " ").split()
    match word:
        case "always":
            return True
        case "mig":
            return uses_mig(stack) if stack.mig.is_known else None
        case "mig-mixed":
            return stack.mig.value.startswith("mixed") if stack.mig.is_known else None
        case "grace":
            return any(each in product for each in GRACE_WORDS) if stack.gpu.is_known else None
        case "board":
            return name.lower() in " ".join(product) if stack.gpu.is_known else None
        case "os":
            return all(each in _os_words(stack) for each in name.lower().split())
        case _:
            return None  # such as rdma: no object tells


def _os_words(stack: NodeStack) -> list[str]:
    text = stack.os.value.lower().replace("red hat enterprise linux", "rhel")
    words = text.replace("(", " ").split()
    return [*words, *(word.partition(".")[0] for word in words)]


def _is_version(value: Fact) -> bool:
    return value.is_present and dotted_versions.is_version(value.value)


def _reason(component: str, value: Fact) -> str:
    if value.is_known:
        return f"{component} {value} is no version that rows can speak of"
    return f"the version of {component} is not known: {value.unknown}"
