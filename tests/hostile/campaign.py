"""Runs honest tenants beside a hostile one on a real API server, attack by attack and then all at once.

Honest pods ask for less than their queues are due (or, without queues, are more important than the attacker's), so
each must get its node within a bound, whatever the attacker does. All choices follow from a seed, except what the
machine's own timing decides.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from dovetail.devcluster import control_plane
from tests.faults import slowness
from tests.hostile import attacks, checker
from tests.hostile.tenant import TEMPLATE, Tenant, pod, template
from tests.support import cluster as planes
from tests.support import live, rest

HOSTILE: Final = "hostile"
HONEST: Final = ("honest-a", "honest-b")
TOKEN: Final = control_plane.Bearer("hostile-token", "hostile-user", ())
IMPORTANT: Final = "honest-high"
DEFINITIONS: Final = ("queues.dovetail.dev", "topologies.dovetail.dev", "intents.dovetail.dev")
NODES: Final = 32
QUOTA_GPUS: Final = 64
Say = Callable[[str], None]


class Sizes(NamedTuple):
    """How long a campaign goes on, and how much honest work there is meanwhile."""

    seconds_after_attack: float = 3.0
    mixtures: int = 4
    attacks_in_mixture: int = 3
    honest_pods: int = 10  # that live at a time, of each tenant
    pause_seconds: float = 0.25  # between two honest pods of a tenant
    bound_seconds: float = 30.0  # on a machine with a free core


class Report(NamedTuple):
    """What happened."""

    seed: int
    has_queues: bool
    attacks: Counter[str]
    verdict: checker.Verdict
    tenures: float
    seconds: float

    def line(self) -> str:
        """For people who watch."""
        waits = self.verdict
        world = "queues" if self.has_queues else "priorities only"
        half, most, longest = (waits.percentile(part) for part in (0.5, 0.95, 1))
        figures = f"p50 {half:.2f} s, p95 {most:.2f} s, most {longest:.1f} s"
        harm = f"{len(waits.violations)} violations" if waits.violations else "no violation"
        done = f"{self.attacks.total()} attacks, {len(waits.waits)} honest pods bound"
        rest_ = f"{self.tenures:.0f} tenures, {self.seconds:.0f} s, {harm}"
        return f"hostile tenant, seed {self.seed}, {world}: {done}, {figures}, {rest_}"


class Campaign:
    """One run on one private cluster."""

    def __init__(
        self, cluster: live.Live, *, seed: int, has_queues: bool, say: Say = lambda _: None
    ) -> None:
        self._cluster = cluster
        self._seed = seed
        self._has_queues = has_queues
        self._chance = random.Random(seed)
        self._say = say
        self._attacks: Counter[str] = Counter()
        self._hostile = Tenant(
            rest.Rest(cluster.plane, token=TOKEN.token),
            HOSTILE,
            chance=random.Random(self._chance.random()),
        )

    def run(self, sizes: Sizes, chosen: dict[str, attacks.Attack] | None = None) -> Report:
        """Everything, from an empty cluster to the verdict."""
        began = time.monotonic()
        catalogue = chosen or attacks.ATTACKS
        self._furnish()
        cluster = self._cluster
        cluster.play("--nodes", str(NODES))
        cluster.schedule()
        cluster.wait_for("a leading scheduler", cluster.leads)
        with contextlib.ExitStack() as open_:
            machine = open_.enter_context(slowness.Slowness())
            open_.callback(self._hostile.api.close)
            recordings = [open_.enter_context(cluster.rest.record("pods", name)) for name in HONEST]
            for namespace in HONEST:
                open_.enter_context(self._working(namespace, sizes))
            time.sleep(sizes.seconds_after_attack)
            names = sorted(catalogue)
            self._chance.shuffle(names)
            for name in names:
                self._attack(catalogue, [name], sizes)
            for _ in range(sizes.mixtures):
                self._attack(
                    catalogue,
                    self._chance.choices(sorted(catalogue), k=sizes.attacks_in_mixture),
                    sizes,
                )
            ended = time.monotonic()
            history = [seen for recording in recordings for seen in list(recording.seen)]
        bound = sizes.bound_seconds * machine.factor
        verdict = checker.judged(history, ended=ended, bound_seconds=bound)
        if not cluster.is_running():
            verdict.violations.append(
                checker.Violation("ended", f"the scheduler ended: {cluster.log()[-2000:]}")
            )
        tenures = cluster.metric("dovetail_tenures_total") if cluster.is_running() else 0.0
        return Report(
            self._seed, self._has_queues, self._attacks, verdict, tenures, time.monotonic() - began
        )

    # What is there

    def _furnish(self) -> None:
        plane, api = self._cluster.plane, self._cluster.rest
        planes.apply(
            plane, [item for item in live.installed() if item["metadata"]["name"] in DEFINITIONS]
        )
        for name in DEFINITIONS:
            planes.kubectl(
                plane, "wait", "--for=condition=Established", f"crd/{name}", "--timeout=60s"
            )
        for name, value in ((attacks.HIGH, 10_000), (IMPORTANT, 1_000)):
            api.create("priorityclasses", _priority_class(name, value))
        for namespace in (HOSTILE, *HONEST):
            planes.kubectl(plane, "create", "namespace", namespace)
            planes.kubectl(
                plane, "label", "namespace", namespace, f"example.com/tenant={namespace}"
            )
            if self._has_queues:
                api.create("queues", _queue(namespace))
            api.create("resourceclaimtemplates", template(TEMPLATE), namespace=namespace)
        grant = (
            "create",
            "rolebinding",
            "hostile",
            "--clusterrole=edit",
            f"--user={TOKEN.user}",
            "-n",
            HOSTILE,
        )
        planes.kubectl(plane, *grant)

    # Who works

    @contextlib.contextmanager
    def _working(self, namespace: str, sizes: Sizes) -> Iterator[None]:
        """An honest tenant creates pods and deletes the oldest ones, until the block ends."""
        tenant = Tenant(
            rest.Rest(self._cluster.plane), namespace, chance=random.Random(self._chance.random())
        )
        is_over = threading.Event()
        thread = threading.Thread(target=self._work, args=(tenant, sizes, is_over), daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            tenant.api.close()

    def _work(self, tenant: Tenant, sizes: Sizes, is_over: threading.Event) -> None:
        living: list[str] = []
        while not is_over.wait(sizes.pause_seconds):
            name = tenant.name("work")
            spec: dict[str, Any] = {} if self._has_queues else {"priorityClassName": IMPORTANT}
            tenant.create("pods", pod(name, templates=(TEMPLATE,), requests={"cpu": "1"}, **spec))
            living.append(name)
            if len(living) > sizes.honest_pods and self._is_bound(tenant, living[0]):
                tenant.delete("pods", living.pop(0))
            while len(living) > 4 * sizes.honest_pods and not is_over.wait(0.2):
                if self._is_bound(
                    tenant, living[0]
                ):  # the scheduler is behind: no more work than the queue is due
                    tenant.delete("pods", living.pop(0))

    def _is_bound(self, tenant: Tenant, name: str) -> bool:
        return bool(
            tenant.api.read("pods", name, namespace=tenant.namespace)["spec"].get("nodeName")
        )

    # Who attacks

    def _attack(self, catalogue: dict[str, attacks.Attack], names: list[str], sizes: Sizes) -> None:
        began = time.monotonic()
        threads = [
            threading.Thread(target=catalogue[name], args=(self._hostile,), daemon=True)
            for name in names
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._attacks.update(names)
        time.sleep(sizes.seconds_after_attack)
        self._clean_up()
        self._say(f"{', '.join(names)}: {time.monotonic() - began:.1f} s")

    def _clean_up(self) -> None:
        """The attacker removes what it can, so that the next attack meets a cluster with room."""
        for plural in ("jobs", "pods", "poddisruptionbudgets", "resourceclaims"):
            path = f"/{rest.PREFIXES.get(plural, 'api/v1')}/namespaces/{HOSTILE}/{plural}"
            options = {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "propagationPolicy": "Background",
            }
            with contextlib.suppress(rest.RefusedError):  # the largest objects cannot be deleted
                self._hostile.api.ask("DELETE", path, options)


def _queue(namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": namespace},
        "spec": {
            "namespaceSelector": {"matchLabels": {"example.com/tenant": namespace}},
            "resources": {"gpu": {"quota": str(QUOTA_GPUS)}},
        },
    }


def _priority_class(name: str, value: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }
