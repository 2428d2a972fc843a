"""A corner of a shared cluster that one story has for itself: namespace, driver, class, hollow nodes with devices.

Built from plain trees; gone when the block ends. Stories on the same cluster do not see each other's devices.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tests.support import cluster as planes
from tests.support import rest
from tests.support.live import Live, devices_of

Tree = dict[str, Any]
RESOURCE = "resource.k8s.io/v1"
SCENE = "example.com/scene"


class Scene:
    """A namespace with its nodes and devices, and verbs for tests."""

    def __init__(self, live: Live, namespace: str) -> None:
        self.live = live
        self.rest = live.rest
        self.namespace = namespace
        self.driver = f"{namespace}.example.com"
        self.device_class = namespace
        self._made: list[tuple[str, str]] = []

    # What there is

    def put(self, plural: str, tree: Tree) -> Tree:
        """A cluster-scoped object that goes with the scene."""
        self._made.append((plural, tree["metadata"]["name"]))
        return self.rest.create(plural, tree)

    def node(
        self,
        name: str,
        *,
        labels: Mapping[str, str] | None = None,
        offers: Mapping[str, str] | None = None,
    ) -> str:
        """A hollow node; its full name."""
        full = f"{self.namespace}-{name}"
        offered = {"cpu": "64", "memory": "256Gi", "pods": "110"} | dict(offers or {})
        marks = {"kubernetes.io/hostname": full, SCENE: self.namespace} | dict(labels or {})
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        self.put(
            "nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": full,
                    "labels": marks,
                    "annotations": {"dovetail.dev/hollow": "true"},
                },
                "status": {"capacity": offered, "allocatable": offered, "conditions": [ready]},
            },
        )
        return full

    def slice(
        self,
        node: str,
        devices: Sequence[Tree],
        *,
        generation: int = 1,
        name: str = "",
        **spec: Any,
    ) -> str:
        """A pool of one slice, named after its node; the slice's name."""
        name = name or f"{node}-devices"
        pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
        body = {
            "driver": self.driver,
            "nodeName": node,
            "pool": pool,
            "devices": list(devices),
        } | spec
        self.put("resourceslices", _object("ResourceSlice", name, body))
        return name

    def classed(self, name: str = "", **spec: Any) -> str:
        """A class for the scene's devices."""
        expression = {"cel": {"expression": f"device.driver == '{self.driver}'"}}
        name = name or self.device_class
        self.put("deviceclasses", _object("DeviceClass", name, {"selectors": [expression]} | spec))
        return name

    def fleet(self, *, nodes: int = 1, gpus: int = 1) -> list[str]:
        """Equal nodes with devices gpu-0, gpu-1, ... and the class for them."""
        self.classed()
        names = [self.node(f"n{number}") for number in range(nodes)]
        for name in names:
            self.slice(name, [{"name": f"gpu-{number}"} for number in range(gpus)])
        return names

    def fabric(self, *, nodes: int) -> list[str]:
        """Nodes with one device each that is attached over a fabric when it is asked for, and a template."""
        self.classed()
        self.template()
        names = [self.node(f"n{number}") for number in range(nodes)]
        conditions = {
            "bindingConditions": ["Attached"],
            "bindingFailureConditions": ["AttachFailed"],
        }
        for name in names:
            self.slice(name, [{"name": "gpu-0", "bindsToNode": True} | conditions])
        return names

    def report(self, claim: Tree, condition: str, status: str) -> None:
        """What the driver says about the device a claim holds."""
        driver, pool, device = devices_of(claim)[0]
        moment = claim["metadata"]["creationTimestamp"]
        reported = {
            "type": condition,
            "status": status,
            "reason": "Reported",
            "message": "",
            "lastTransitionTime": moment,
        }
        devices = [{"driver": driver, "pool": pool, "device": device, "conditions": [reported]}]
        name = claim["metadata"]["name"]
        self.rest.patch(
            "resourceclaims", name, {"status": {"devices": devices}}, self.namespace, "status"
        )

    # What is wanted

    def template(self, name: str = "gpu", *requests: Tree) -> str:
        """A template of claims; by default for one device of the scene."""
        expected = list(requests) or [exactly("gpu", self.device_class)]
        tree = _object("ResourceClaimTemplate", name, {"spec": {"devices": {"requests": expected}}})
        self.rest.create("resourceclaimtemplates", tree, self.namespace)
        return name

    def claim(self, name: str, *requests: Tree) -> str:
        """A claim to name; by default for one device of the scene."""
        expected = list(requests) or [exactly("gpu", self.device_class)]
        self.rest.create(
            "resourceclaims",
            _object("ResourceClaim", name, {"devices": {"requests": expected}}),
            self.namespace,
        )
        return name

    def pod(
        self,
        name: str,
        *,
        templates: Iterable[str] = (),
        claims: Iterable[str] = (),
        limits: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Tree:
        """A pod for our scheduler that stays on the scene's nodes."""
        tree = pod_tree(
            name, templates=templates, claims=claims, limits=limits, annotations=annotations
        )
        tree["spec"]["nodeSelector"] = {SCENE: self.namespace}
        tree["spec"] |= spec
        return self.rest.create("pods", tree, self.namespace)

    # What became of it

    def pods(self) -> dict[str, Tree]:
        """All pods, by name."""
        return {item["metadata"]["name"]: item for item in self.rest.list("pods", self.namespace)}

    def claims(self) -> list[Tree]:
        """All claims."""
        return self.rest.list("resourceclaims", self.namespace)

    def held(self) -> list[tuple[str, str]]:
        """Every device of the scene's driver that a claim holds: pool and device, once per holder."""
        result = [item for claim in self.claims() for item in devices_of(claim)]
        return sorted((pool, device) for driver, pool, device in result if driver == self.driver)

    def held_once(self) -> int:
        """How many devices claims hold. Fails where one is held twice."""
        held = self.held()  # asked once: claims come and go meanwhile
        twice = [device for device, count in Counter(held).items() if count > 1]
        assert not twice, f"held by more than one claim: {twice}"
        return len(held)

    def allocated(self) -> Tree:
        """Waits for a claim that has devices; the first."""
        tree: Tree = self.wait(
            "devices", lambda: [claim for claim in self.claims() if devices_of(claim)]
        )[0]
        return tree

    def devices_of(self, pod: str) -> list[tuple[str, str]]:
        """What the pod's claims hold: pool and device."""
        uid = self.pods()[pod]["metadata"]["uid"]
        mine = [claim for claim in self.claims() if uid in users_of(claim)]
        return sorted((pool, device) for claim in mine for _, pool, device in devices_of(claim))

    def events(self, reason: str, name: str = "") -> list[Tree]:
        """Events of a reason, about an object of this name or about any."""
        result = self.rest.list("events", self.namespace)
        return [
            item
            for item in result
            if item["reason"] == reason and name in ("", item["regarding"]["name"])
        ]

    def wait(self, what: str, is_so: Any, *, seconds: float = 120.0) -> Any:
        """Waits for a condition; its value."""
        return self.live.wait_for(what, is_so, seconds=seconds)

    def wait_running(self, *names: str) -> dict[str, Tree]:
        """Waits until these pods run; all pods."""

        def running() -> dict[str, Tree] | None:
            result = self.pods()
            return (
                result if all(phase_of(result.get(name)) == "Running" for name in names) else None
            )

        result: dict[str, Tree] = self.wait(
            f"{len(names)} running pods ({', '.join(names[:3])} ...)", running
        )
        return result

    def wait_refused(self, name: str, *words: str) -> str:
        """Waits until the pod says why it waits, in these words; the message."""

        def wanted_message() -> str | None:
            text = reason_of(self.pods()[name])
            return text if text and all(word in text for word in words) else None

        try:
            message: str = self.wait(f"pod {name} to say {words}", wanted_message)
        except AssertionError as problem:
            raise AssertionError(f"it says: {reason_of(self.pods()[name])}") from problem
        return message

    def end(self) -> None:
        """Removes everything, pods first: nodes must be there to let go of them."""
        for name in self.pods():
            self.rest.delete("pods", name, self.namespace, gracePeriodSeconds=0)
        self.rest.delete("namespaces", self.namespace)
        for plural, name in reversed(self._made):
            self.rest.delete(plural, name)


@contextlib.contextmanager
def scene(live: Live) -> Iterator[Scene]:
    """A fresh scene. Whatever happens, hollow nodes must have had nothing to object to."""
    made = Scene(live, planes.fresh_namespace(live.plane))
    try:
        yield made
        objections = [
            line
            for line in live.log("player").splitlines()
            if made.namespace in line and "violation" in line
        ]
        assert objections == []
    finally:
        made.end()


def exactly(name: str, device_class: str, **wanted: Any) -> Tree:
    """A request for devices of one class."""
    return {"name": name, "exactly": {"deviceClassName": device_class} | wanted}


def selecting(expression: str) -> list[Tree]:
    """Selectors of one expression."""
    return [{"cel": {"expression": expression}}]


def pod_tree(
    name: str,
    *,
    templates: Iterable[str] = (),
    claims: Iterable[str] = (),
    limits: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    scheduler: str = "dovetail",
) -> Tree:
    """A pod of one container that uses all its claims."""
    entries: list[Tree] = [
        {"name": f"t{n}", "resourceClaimTemplateName": one} for n, one in enumerate(templates)
    ]
    entries += [{"name": f"c{n}", "resourceClaimName": one} for n, one in enumerate(claims)]
    resources: Tree = {"claims": [{"name": entry["name"]} for entry in entries]}
    if limits:
        resources["limits"] = dict(limits)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "example", "resources": resources}],
            "resourceClaims": entries,
        },
    }


def users_of(claim: Tree) -> list[str]:
    """Uids of the pods a claim is reserved for."""
    return [item["uid"] for item in claim.get("status", {}).get("reservedFor", ())]


def owner_of(claim: Tree) -> str:
    """The name of the pod a claim was made for."""
    return next((str(item["name"]) for item in claim["metadata"].get("ownerReferences", ())), "")


def phase_of(pod: Tree | None) -> str:
    """The pod's phase; nothing if there is no pod."""
    return str(pod["status"].get("phase", "")) if pod else ""


def node_of(pod: Tree) -> str:
    """The pod's node; nothing if it has none."""
    return str(pod["spec"].get("nodeName", ""))


def reason_of(pod: Tree) -> str:
    """What the pod's condition says about why it has no node."""
    conditions = pod["status"].get("conditions", ())
    return next(
        (
            condition.get("message", "")
            for condition in conditions
            if condition["type"] == "PodScheduled"
        ),
        "",
    )


def held_together(seen: list[rest.Seen]) -> list[str]:
    """Devices that two claims held at one moment, by the order in which the server wrote them."""
    holders: dict[tuple[str, str, str], set[str]] = {}
    held: dict[str, list[tuple[str, str, str]]] = {}
    names: list[str] = []
    for item in sorted(seen, key=lambda item: item.version):
        uid = item.object["metadata"]["uid"]
        for device in held.get(uid, ()):
            holders[device].discard(uid)
        held[uid] = [] if item.type == "DELETED" else devices_of(item.object)
        for device in held[uid]:
            users = holders.setdefault(device, set())
            users.add(uid)
            if len(users) > 1:
                names.append(f"{item.version}: {'/'.join(device)}")
    return names


def _object(kind: str, name: str, spec: Tree) -> Tree:
    return {"apiVersion": RESOURCE, "kind": kind, "metadata": {"name": name}, "spec": spec}
