"""The cluster of a program or notebook: what it has, why work waits, when it starts, what changes would do.

Given how to reach it, or where it was saved. Loads the engine with the first cluster, not with the import. Never writes
to a cluster, never prints.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from dovetail import errors
from dovetail.sdk import change_list, given_prices, own_thread
from dovetail.sdk.answer_source import Source, Wanted
from dovetail.sdk.change_list import Change, Changes, Settings, Texts, Work
from dovetail.sdk.given_prices import Prices
from dovetail.sdk.result_table import ObjectTable, Table

if TYPE_CHECKING:
    from fractions import Fraction

    from dovetail.answer.right_size.right_size_answer import Answer as RightSizes
    from dovetail.answer.when import Expectation
    from dovetail.ask import cluster_view
    from dovetail.ask.right_size_asked import RecordedWork
    from dovetail.sdk.shown_answers import Capacity, WhatIf, Why
    from dovetail.sdk.usage import Usage
    from dovetail.tables.items.claim_items import ClaimItem
    from dovetail.tables.items.device_items import DeviceItem
    from dovetail.tables.items.gpu_items import GpuNodeItem
    from dovetail.tables.items.node_items import NodeItem
    from dovetail.tables.items.pod_items import PodItem
    from dovetail.tables.items.queue_items import QueueItem
    from dovetail.tables.work.work_items import WorkItem

Path = str | os.PathLike[str]

GANG: Final = "gang/"
MOST_GPUS: Final = 32  # of one pod
DEFAULT_HORIZON: Final = "24h"


class Cluster:
    """A cluster as it was at one time.

    The objects are read when the cluster is connected or loaded, and again by `refresh()`; in between nothing is read,
    so all answers are about the same time, which is `now`. Threads may share a cluster: tables are made side by side,
    questions to the engine are answered one after the other. No method writes to a cluster.
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    @classmethod
    def connect(
        cls,
        *,
        kubeconfig: Path | None = None,
        context: str | None = None,
        state: Path | None = None,
        url: str | None = None,
        token: str | None = None,
        config: Path | None = None,
    ) -> Cluster:
        """Reads a running cluster.

        Chooses it as the command line does: `kubeconfig` or `context`; `state` or $DOVETAIL_STATE, the directory of
        the embedded cluster; $KUBECONFIG; the embedded cluster of the user; ~/.kube/config; the pod we run in. With
        `url` a dashboard answers instead, which `token` signs in to. `config` is the scheduler's configuration, where
        it is not the default.

        Raises StateError where there is no cluster, InputError for a kubeconfig that cannot be used, and ApiFailure
        (Unavailable, Unauthorised, Refused) where the cluster cannot be reached or does not let us read.
        """
        if url is not None:
            return cls._of_dashboard(url, token, (kubeconfig, context, state, config))
        if token is not None:
            raise errors.InputError("token signs in to a dashboard: give its url as well")
        from dovetail.ask import cluster_view
        from dovetail.boot import cluster_choice
        from dovetail.sdk import python_words, read_cluster

        options = cluster_choice.Options(
            kubeconfig=_text(kubeconfig), context=context, state=_text(state)
        )
        with python_words.said():
            choice = cluster_choice.choose(options)

        def read() -> cluster_view.View:
            return own_thread.run(lambda: cluster_view.of_cluster(choice, read_cluster.reads()))

        namespace = choice.connection.namespace
        return cls(read_cluster.ReadCluster(read, namespace=namespace, config=_text(config)))

    @classmethod
    def load(cls, path: Path, *, config: Path | None = None) -> Cluster:
        """Reads a saved cluster: what `dovetail snapshot save` wrote, or any files of objects as kubectl prints them.

        `now` is when it was saved. Raises InputError for a path that holds no cluster, StateError for a snapshot that
        was changed since it was saved. What could not be read is in `problems`.
        """
        from dovetail.ask import cluster_view
        from dovetail.kubetypes import object_set
        from dovetail.sdk import read_cluster

        place = os.fspath(path)
        if place == "-":
            raise errors.InputError("standard input is not read here; give a path")

        def read() -> cluster_view.View:
            return cluster_view.of_path(place)

        namespace = object_set.DEFAULT_NAMESPACE
        return cls(read_cluster.ReadCluster(read, namespace=namespace, config=_text(config)))

    @classmethod
    def _of_dashboard(cls, url: str, token: str | None, others: tuple[object, ...]) -> Cluster:
        if any(other is not None for other in others):
            raise errors.InputError(
                "url names a dashboard, which knows its cluster and configuration: leave the others out"
            )
        from dovetail.sdk.dashboard import Dashboard

        return cls(Dashboard(url, token))

    @property
    def name(self) -> str:
        """How messages name the cluster."""
        return self._source.name

    @property
    def now(self) -> datetime.datetime:
        """The time that all answers are about: when the cluster was read, or saved."""
        return self._source.now

    @property
    def namespace(self) -> str:
        """Where names without a namespace are looked up: the context's namespace, or `default`."""
        return self._source.namespace

    @property
    def problems(self) -> tuple[str, ...]:
        """Objects that were left out because they cannot be read, or that were given twice."""
        return self._source.problems

    def refresh(self) -> Cluster:
        """Reads the cluster again, and returns it. Earlier results stay as they are; so does all, where this fails."""
        self._source.refresh()
        return self

    def __repr__(self) -> str:
        return f"<Cluster {self.name}, as of {self.now:%Y-%m-%d %H:%M:%S} UTC>"

    # What there is

    def gpus(self, *, node: str | None = None, labels: str = "") -> ObjectTable[GpuNodeItem]:
        """One row per node with GPUs: what it has and what is free. `labels` selects nodes, as -l does."""
        from dovetail.sdk import table_columns

        rows, documents = self._source.gpus(Wanted(node=node, labels=labels))
        return ObjectTable(rows, table_columns.gpus(), documents)

    def devices(self, *, node: str | None = None, labels: str = "") -> ObjectTable[DeviceItem]:
        """One row per published device: whole GPUs, MIG devices, shares, with who holds them."""
        from dovetail.sdk import table_columns

        rows, documents = self._source.devices(Wanted(node=node, labels=labels))
        return ObjectTable(rows, table_columns.devices(), documents)

    def nodes(self, *, labels: str = "") -> ObjectTable[NodeItem]:
        """One row per node."""
        from dovetail.sdk import table_columns

        rows, documents = self._source.nodes(Wanted(labels=labels))
        return ObjectTable(rows, table_columns.nodes(self.now), documents)

    def pods(
        self, *, namespace: str | None = None, node: str | None = None, labels: str = ""
    ) -> ObjectTable[PodItem]:
        """One row per pod, of all namespaces unless one is given."""
        from dovetail.sdk import table_columns

        rows, documents = self._source.pods(Wanted(namespace, node, labels))
        return ObjectTable(rows, table_columns.pods(self.now), documents)

    def claims(
        self, *, namespace: str | None = None, node: str | None = None
    ) -> ObjectTable[ClaimItem]:
        """One row per ResourceClaim, of all namespaces unless one is given."""
        from dovetail.sdk import table_columns

        rows, documents = self._source.claims(Wanted(namespace, node))
        return ObjectTable(rows, table_columns.claims(self.now), documents)

    def queues(self) -> ObjectTable[QueueItem]:
        """One row per queue, children below their parents."""
        from dovetail.sdk import table_columns

        rows, documents = self._source.queues(Wanted())
        return ObjectTable(rows, table_columns.queues(), documents)

    def usage(
        self,
        by: str | Iterable[str] = ("queue", "namespace", "type"),
        *,
        namespace: str | None = None,
    ) -> Usage:
        """Who holds GPUs and who waits for them, by queue, namespace, user, node or type, as `dovetail top`."""
        from dovetail.sdk.usage import Usage
        from dovetail.tables.work import gpu_holdings

        keys = [by] if isinstance(by, str) else list(by)
        for key in keys:
            _check_word(key, gpu_holdings.KEYS, "by")
        rows, total = self._source.usage(keys, Wanted(namespace))
        return Usage(rows, total)

    # What waits and runs

    def work(
        self,
        name: str | None = None,
        *,
        namespace: str | None = None,
        labels: str = "",
        pending: bool = False,
    ) -> Table[WorkItem]:
        """Waiting and running work in the scheduler's order, as `dovetail queue`: all, of a queue, or one job.

        Raises NotFound for a name that means neither a queue nor work.
        """
        from dovetail.sdk import table_columns
        from dovetail.tables.work import work_table

        items = self._source.work(Wanted(namespace, labels=labels))
        if name is not None:
            items = [
                item for item in items if item.queue == name or work_table.is_named(name, item)
            ]
            if not items:
                self._check_work(name)
        if pending:
            items = [item for item in items if item.state in work_table.PENDING_STATES]
        return Table(items, table_columns.work(self.now))

    def when(self, name: str | None = None, *, namespace: str | None = None) -> Table[Expectation]:
        """When waiting work starts: all of it, or the gang, workload or pod of that name.

        Raises NotFound for a name of nothing that waits.
        """
        from dovetail.sdk import table_columns

        expectations = self._source.when(name, namespace)
        if name is not None and not expectations:
            waiting = self._source.when(None, namespace)
            members = [member for each in waiting for member in each.members]
            names = [each.gang.name for each in waiting]
            plain = [each.rpartition("/")[2] for each in names]
            raise _missing(
                f'nothing called "{name}" waits for its start', name, [*names, *plain, *members]
            )
        return Table(expectations, table_columns.expectations(self.now))

    def why(self, name: str | PodItem | WorkItem, *, namespace: str | None = None) -> Why:
        """Why a pod or workload does not start, or that it does: "train-0", "job/train", or a row of a table.

        A name is looked up in `namespace`, by default the context's. Raises NotFound with what was probably meant.
        """
        from dovetail.sdk import shown_answers

        asked, place = _named(name)
        found = self._source.why(asked, namespace or place or self.namespace)
        return shown_answers.shown_as(shown_answers.Why, found)

    def why_waiting(self, *, namespace: str | None = None) -> Table[Why]:
        """Why each pod that waits does so, of all namespaces unless one is given."""
        from dovetail.sdk import shown_answers, table_columns

        found = self._source.why_waiting(namespace)
        shown = [shown_answers.shown_as(shown_answers.Why, answer) for answer in found]
        return Table(shown, table_columns.reasons())

    def right_sizes(
        self, recorded: RecordedWork, *, prices: Mapping[str, Fraction] | None = None
    ) -> RightSizes:
        """Which smaller devices recorded work could use, and what the engine makes of it: `History.right_size`."""
        return self._source.right_sizes(recorded, prices)

    # What would be

    def what_if(
        self,
        changes: Changes | Iterable[Change] | None = None,
        /,
        *,
        add: Texts = (),
        remove: Texts = (),
        cordon: Texts = (),
        uncordon: Texts = (),
        drain: Texts = (),
        set: Settings = (),
        end: Texts = (),
        work: Work | None = None,
        prices: Prices | None = None,
        horizon: str | datetime.timedelta = DEFAULT_HORIZON,
        namespace: str | None = None,
    ) -> WhatIf:
        """What changes would do: who starts, waits, yields or moves, and how that differs from today.

            cluster.what_if(add="4xh100", work="job.yaml")
            cluster.what_if(set={"queue/research.quota": 16})
            cluster.what_if(Changes().drain("node/h100-0").add("2xh100"))
            cluster.what_if([("drain", "node/h100-0"), ("add", "2xh100")])

        Each change applies to what those before it left: `Changes` and pairs in their order, keywords in the order of
        the signature, whatever order they are written in. `prices` are of one GPU-hour by type, or a YAML file of
        them. Work without a namespace goes to `namespace`, by default the context's. Raises InputError for a change
        that cannot be.
        """
        from dovetail.sdk import shown_answers

        keywords: dict[str, Any] = {
            "add": add,
            "remove": remove,
            "cordon": cordon,
            "uncordon": uncordon,
            "drain": drain,
            "set": set,
            "end": end,
            "work": work,
        }
        by_keyword = change_list.of_keywords(keywords)
        if changes is not None and len(by_keyword):
            raise errors.InputError("give the changes in order, or by keyword, not both")
        wanted = by_keyword if changes is None else Changes(changes)
        if not len(wanted):
            verbs = ", ".join((*change_list.VERBS, change_list.WORK))
            raise errors.InputError(f"give at least one change: {verbs}")
        answer = self._source.what_if(
            wanted,
            namespace=namespace or self.namespace,
            horizon=_duration(horizon),
            prices=given_prices.read(prices),
        )
        return shown_answers.shown_as(shown_answers.WhatIf, answer)

    def capacity(
        self,
        *,
        gpus: int | None = None,
        type: str = "",
        mig: str = "",
        gpu_memory: str = "",
        cpu: str = "",
        memory: str = "",
        queue: str = "",
        priority: int = 0,
        like: str | PodItem = "",
        gang: int | None = None,
        level: str = "",
        namespace: str | None = None,
    ) -> Capacity:
        """How many more pods of a shape start: now, after other work moves, and if lower work yields.

        Without a shape, whole GPUs of every type. `like` takes the shape of a pod: "namespace/name", or a row of
        `pods()`. `gang` also asks which work blocks a gang of so many, `level` in one domain of a topology.
        """
        from dovetail.ask import shapes_asked
        from dovetail.sdk import shown_answers

        if gpus is not None and not 0 <= gpus <= MOST_GPUS:
            raise errors.InputError(
                f"gpus is {gpus}; expected 0 to {MOST_GPUS}, the GPUs of one pod"
            )
        if gang is not None and gang < 1:
            raise errors.InputError(f"gang is {gang}; expected at least 1, the pods of a gang")
        shape = shapes_asked.ShapeAsked(
            gpus=gpus,
            gpu_type=type,
            mig=mig,
            gpu_memory=gpu_memory,
            cpu=cpu,
            memory=memory,
            queue=queue,
            priority=priority,
            like=like if isinstance(like, str) else f"{like.namespace}/{like.name}",
            namespace=namespace or self.namespace,
        )
        answer = self._source.capacity(shape, gang=gang, level=level)
        return shown_answers.shown_as(shown_answers.Capacity, answer)

    def _check_work(self, name: str) -> None:
        """Raises NotFound where no queue has the name; a queue may be empty."""
        items = self._source.work(Wanted())
        queues = {item.queue for item in items} - {""}
        try:
            rows, _ = self._source.queues(Wanted())
        except errors.StateError:  # the cluster has none
            rows = []
        queues |= {row.name for row in rows}
        if name in queues:
            return
        names = [item.name for item in items]
        plain = [each.rpartition("/")[2] for each in names]
        known = f"; queues: {', '.join(sorted(queues))}" if queues else ""
        message = f'no queue "{name}", and no work of that name waits or runs{known}'
        raise _missing(message, name, [*queues, *names, *plain])


def _named(name: str | PodItem | WorkItem) -> tuple[str, str]:
    """What to ask about, and its namespace where that is known."""
    if isinstance(name, str):
        return name, ""
    owner = getattr(name, "owner", "")
    is_gang = name.name.startswith(GANG)  # by a label: no object has its name, but its owner may
    return owner if is_gang and owner else name.name, name.namespace


def _missing(message: str, name: str, candidates: Iterable[str]) -> errors.NotFound:
    from dovetail.answer.why import near_values

    near = near_values.nearest(name, candidates)
    return errors.NotFound(f"{message}; did you mean {near}?" if near else message)


def _check_word(word: str, known: Iterable[str], parameter: str) -> None:
    words = tuple(known)
    if word in words:
        return
    from dovetail.answer.why import near_values

    near = near_values.nearest(word, words)
    hint = f"did you mean {near}?" if near else f"expected one of {', '.join(words)}"
    raise errors.InputError(f'{parameter} "{word}": {hint}')


def _duration(horizon: str | datetime.timedelta) -> str:
    if isinstance(horizon, datetime.timedelta):
        return f"{int(horizon.total_seconds())}s"
    return horizon


def _text(path: Path | None) -> str | None:
    return None if path is None else os.fspath(path)
