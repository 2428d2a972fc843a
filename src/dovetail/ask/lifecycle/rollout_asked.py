"""Asks for the plan of a roll-out, stated as people type it: versions, nodes, durations, windows.

Given a view of a cluster and texts of options. Raises InputError naming the option that is wrong. Never changes a
cluster.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

import msgspec

from dovetail import errors, timestamps
from dovetail.answer.replica.replica import Replica
from dovetail.answer.rollout import rollout, rollout_answer, rollout_policy, rollout_units
from dovetail.answer.what_if import node_selection
from dovetail.ask import cluster_view, replicas
from dovetail.ask.lifecycle import drain_asked
from dovetail.model import policy
from dovetail.quantity import durations
from dovetail.tables import text as plain_text

PARTS: Final = ("driver", "operator", "toolkit", "containerd", "kubernetes", "kernel")
GPU_PARTS: Final = rollout_policy.GPU_PARTS
DONE: Final = "Done"  # phase of a node in the status of a StackUpgrade
DEFAULT_NODE_MINUTES: Final = "30/50"
_VERSION: Final = re.compile(r"v?[0-9]+(\.[0-9]+){0,3}([+._-][0-9A-Za-z.+_-]{1,60})?")
_MINUTES: Final = re.compile(r"(?P<likely>[0-9]{1,5})(/(?P<late>[0-9]{1,5}))?")


def targets(texts: Sequence[str]) -> dict[str, str]:
    """The versions of `driver=580.95.05,containerd=2.2.1`."""
    wanted: dict[str, str] = {}
    for pair in ",".join(texts).split(","):
        part, is_pair, version = (word.strip() for word in pair.partition("="))
        if part not in PARTS or not is_pair:
            raise errors.InputError(
                f'--to "{pair}": expected PART=VERSION; parts: {", ".join(PARTS)}'
            )
        if not _VERSION.fullmatch(version):
            raise errors.InputError(
                f'--to "{pair}": "{version}" is not a version such as 580.95.05'
            )
        if wanted.get(part, version) != version:
            raise errors.InputError(f"--to: two versions of {part}: {wanted[part]} and {version}")
        wanted[part] = version
    return wanted


def node_durations(minutes: str | None, recorded: str | None) -> rollout_policy.Durations:
    """How long a node takes: what was recorded, else what is stated as P50 or P50/P90 minutes."""
    if recorded is not None:
        if minutes is not None:
            raise errors.InputError("give --node-minutes or --durations, not both")
        return _recorded(recorded)
    text = minutes if minutes is not None else DEFAULT_NODE_MINUTES
    parts = _MINUTES.fullmatch(text.strip())
    likely = int(parts["likely"]) * 60 if parts is not None else 0
    late = int(parts["late"]) * 60 if parts is not None and parts["late"] else likely
    if not 0 < likely <= late:
        raise errors.InputError(
            f'--node-minutes "{text}": expected minutes such as 30, or P50/P90 such as 30/50'
        )
    source = "--node-minutes" if minutes is not None else "default"
    return rollout_policy.Durations(likely, late, source)


def seconds(option: str, text: str | None) -> int | None:
    """A duration of an option; None where it was not given."""
    if text is None:
        return None
    amount = durations.seconds(text)
    if amount is None:
        raise errors.InputError(f'{option} "{text}": expected a duration such as 30m or 2h')
    return amount


def planned(
    seen: cluster_view.View,
    rules: policy.Policy,
    to: Mapping[str, str],
    policy_: rollout_policy.Policy,
    *,
    selects: Callable[[Mapping[str, str]], bool] | None = None,
    start: str | None = None,
    horizon_seconds: int,
    prices: Mapping[str, Fraction],
) -> rollout_answer.Plan:
    """The plan. Raises InputError where the options name nothing, or what cannot be."""
    replica = replicas.replica_of(seen, rules)
    begin = _begin(start, replica.now)
    chosen = _nodes(replica, to, selects)
    current = [name for name in chosen if _is_there(replica, name, to)]
    _refuse_impossible(policy_, len(chosen) - len(current), len(replica.world.nodes))
    wish = rollout.Wish(
        to=to,
        nodes=[name for name in chosen if name not in frozenset(current)],
        skipped=current,
        begin=begin,
        horizon_seconds=horizon_seconds,
        prices=prices,
    )
    return rollout.planned(replica, wish, policy_, drain_asked.daemon_sets(seen))


def _nodes(
    replica: Replica, to: Mapping[str, str], selects: Callable[[Mapping[str, str]], bool] | None
) -> list[str]:
    """The nodes with GPUs, or all where another part changes, as far as their labels are selected."""
    only_gpus = GPU_PARTS.issuperset(to)
    world = replica.world
    names = [
        name
        for name, node in world.nodes.items()
        if (selects is None or selects(node.metadata.labels))
        and (not only_gpus or node_selection.gpu_type(world, name) != node_selection.NO_GPUS)
    ]
    if not names:
        what = "nodes with GPUs" if only_gpus else "nodes"
        raise errors.InputError(
            f"no {what} are selected; the cluster has {plain_text.counted(len(world.nodes), 'node')};"
            " `dovetail stack inventory` shows their GPUs, `dovetail get nodes --show-labels` labels"
        )
    return sorted(names, key=node_selection.natural)


def _refuse_impossible(policy_: rollout_policy.Policy, count: int, total: int) -> None:
    """What no order of nodes could meet."""
    if rollout_policy.unavailable_nodes(policy_.max_unavailable, total) == 0:
        raise errors.InputError(
            f'max unavailable "{policy_.max_unavailable}": no node could ever go; allow 1 or more'
        )
    if policy_.canary > count > 0:
        raise errors.InputError(
            f"canary {policy_.canary}: the roll-out has {plain_text.counted(count, 'node')}; give fewer"
        )


def _is_there(replica: Replica, name: str, to: Mapping[str, str]) -> bool:
    """Whether a node has the wanted driver loaded, and nothing else is wanted."""
    if set(to) != {"driver"}:
        return False
    loaded = rollout_units.loaded_driver(replica.world, name)
    return bool(loaded) and rollout_units.is_same_version(loaded, to["driver"])


def _begin(text: str | None, now: datetime.datetime) -> datetime.datetime:
    if text is None:
        return now
    begin = timestamps.parse_or_none(text)
    if begin is None or begin < now:
        raise errors.InputError(
            f'--start "{text}": expected a time from {timestamps.to_text(now)} on, in RFC 3339'
        )
    return begin


class _Record(msgspec.Struct):
    """A node of an earlier roll-out."""

    seconds: float
    node: str = ""


class _UpgradedNode(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    phase: str = ""
    started_at: str = ""
    finished_at: str = ""


class _UpgradeStatus(msgspec.Struct, frozen=True):
    nodes: tuple[_UpgradedNode, ...] = ()


class _Upgrade(msgspec.Struct, frozen=True):
    status: _UpgradeStatus = _UpgradeStatus()


class _Upgrades(_Upgrade, frozen=True):
    """A StackUpgrade, or a list of them."""

    items: tuple[_Upgrade, ...] = ()


def _recorded(path: str) -> rollout_policy.Durations:
    """The p50 and p90 of a JSON list of `{"node": ..., "seconds": ...}`, or of StackUpgrade objects."""
    from dovetail.files import bounded_files

    try:
        text = bounded_files.text(path)
        records = msgspec.json.decode(text, type=list[_Record] | _Upgrades)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.InputError(
            f'--durations {path}: expected a JSON list of {{"node", "seconds"}}, or the output of '
            f"kubectl get stackupgrades -o json: {error}"
        ) from None
    if isinstance(records, _Upgrades):
        records = list(_finished_nodes(records))
    times = sorted(record.seconds for record in records)
    if not times or not 0 < times[0] <= times[-1] <= durations.LONGEST_SECONDS:
        raise errors.InputError(f"--durations {path}: no usable seconds")
    likely, late = (int(times[_rank(len(times), percent)]) for percent in (50, 90))
    source = f"{len(times)} recorded nodes"
    return rollout_policy.Durations(max(likely, 1), max(late, 1), source)


def _finished_nodes(upgrades: _Upgrades) -> Iterator[_Record]:
    """The nodes that an upgrade has done, from their fence to the end of their validation."""
    for upgrade in (*upgrades.items, upgrades):
        for node in upgrade.status.nodes:
            begin = timestamps.parse_or_none(node.started_at)
            end = timestamps.parse_or_none(node.finished_at)
            if node.phase == DONE and begin is not None and end is not None and end > begin:
                yield _Record((end - begin).total_seconds(), node.name)


def _rank(count: int, percent: int) -> int:
    """The nearest rank."""
    return max(0, -(-count * percent // 100) - 1)
