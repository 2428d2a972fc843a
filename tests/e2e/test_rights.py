"""Every right the chart grants is needed: each is taken away in turn, and what then fails says which is missing."""

from __future__ import annotations

import copy
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from dovetail.devcluster import free_ports
from dovetail.kubetypes import registry
from tests.e2e.namespace_scene import Scene, exactly, node_of, phase_of, pod_tree, reason_of
from tests.support import cluster as planes
from tests.support import live
from tests.support.live import Live

pytestmark = pytest.mark.slow

ROLES = [item for item in live.rights() if item["kind"] in ("ClusterRole", "Role")]
SHORT = {"leaseDurationSeconds": 3, "renewDeadlineSeconds": 2, "retryPeriodSeconds": 0.5}
Right = tuple[str, str]  # resource, or several joined by +, and verb
# What most pods do not need: taken away together, to start fewer schedulers; each must still be named.
APART = (registry.NAMESPACE, *registry.STORAGE, *registry.OURS)
PICTURE = [kind for kind in registry.WATCHED if kind not in APART]
TOGETHER = "+".join(kind.plural for kind in APART)
OWNERS = (registry.JOB, registry.STATEFUL_SET)


def sees_nothing(story: Scene, right: Right) -> None:
    """Not ready, and the log names what cannot be listed."""
    _wait_logged(story, right)
    assert not story.live.is_serving("/readyz")
    assert all(node_of(pod) == "" for pod in story.pods().values())


def sees_late(story: Scene, right: Right) -> None:
    """It lists again and again instead; the log names what cannot be watched, and each time is counted."""
    _wait_logged(story, right)
    cluster = story.live
    names = {kind.plural: kind.name for kind in (*registry.WATCHED, *registry.OURS)}
    name = "dovetail_watch_restarts_total"
    expected = [names[resource] for resource in right[0].split("+")]
    cluster.wait_for(
        "a count", lambda: all(cluster.metric(name, kind=kind) > 0 for kind in expected)
    )


def refuses(*words: str) -> Callable[[Scene, Right], None]:
    """The pod's condition says that the API server refuses what."""

    def check(story: Scene, right: Right) -> None:
        story.wait_refused("claims", "the API server refuses", *words)
        assert node_of(story.pods()["claims"]) == ""
        story.wait(
            "nothing held for it",
            lambda: not [pool for pool, _ in story.held() if pool.endswith("-claims")],
        )

    return check


def refuses_classic(story: Scene, right: Right) -> None:
    """Only pods with classic resources are concerned: the claim for them cannot be made."""
    story.wait_refused("classic", "the API server refuses", "resourceclaims")
    story.wait_running("claims")


def reports_by_event_only(story: Scene, right: Right) -> None:
    """Pods whose status needs no write for the kubelet run; the others say why not in an event."""
    story.wait_running("claims")
    story.wait(
        "an event",
        lambda: [
            tree for tree in story.events("FailedScheduling", "classic") if _names(tree, right)
        ],
    )
    assert reason_of(story.pods()["classic"]) == ""


def leaves_volumes(provisioner: str) -> Callable[[Scene, Right], None]:
    """Only pods whose volumes are still to be chosen or made are concerned."""

    def check(story: Scene, right: Right) -> None:
        _ask_for_volume(story, provisioner)
        story.wait_refused("disk", "the API server refuses", right[0])
        assert node_of(story.pods()["disk"]) == ""
        story.wait_running("claims", "classic")

    return check


def leaves_claims_with_spaces(story: Scene, right: Right) -> None:
    """Only pods are concerned whose claims hold parameters that no patch leaves alone."""
    story.wait_running("claims", "classic")
    config = [{"opaque": {"driver": story.driver, "parameters": {"with": "spaces"}}}]
    spec = {"devices": {"requests": [exactly("gpu", story.device_class)], "config": config}}
    metadata = {"name": "spaced", "namespace": story.namespace}
    tree = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": spec,
    }
    story.rest.create("resourceclaims", tree, story.namespace)
    story.slice(story.node("spaced"), [{"name": "gpu-0"}])
    story.pod("spaced", claims=["spaced"])
    story.wait_refused("spaced", "the API server refuses", "cannot update")


def gives_no_shares(story: Scene, right: Right) -> None:
    """Only pods with KAI's shares of a GPU are concerned: their template cannot be created."""
    story.wait_running("claims", "classic")
    _ask_for_share(story)
    story.wait_refused("share", "the API server refuses", "resourceclaimtemplates")


def runs_without_events(story: Scene, right: Right) -> None:
    """Everything runs; the events that could not be sent are counted."""
    story.wait_running("claims", "classic")
    cluster = story.live
    cluster.wait_for(
        "a count", lambda: cluster.metric("dovetail_events_dropped_total", reason="refused") > 0
    )
    assert 'cannot create resource "events"' in _log(cluster)
    assert story.events("Scheduled") == []


def leaves_queues_unsaid(story: Scene, right: Right) -> None:
    """Everything runs; queues say nothing, and the log says why."""
    story.wait_running("claims", "classic")
    _queued(story.live, "unsaid")
    _wait_logged(story, right)
    assert "status" not in planes.get(story.live.plane, "queue", "unsaid")


def reads_no_owners(story: Scene, right: Right) -> None:
    """Pods that belong to no gang run; the log says what cannot be read."""
    _wait_logged(story, right)
    story.wait_running("claims", "classic")


def reads_no_intents(story: Scene, right: Right) -> None:
    """Everything runs; the log says that what a predecessor began for gangs cannot be read."""
    _wait_logged(story, right)
    story.wait_running("claims", "classic", *_gang(story))


def starts_no_gangs(story: Scene, right: Right) -> None:
    """Gangs of several pods wait and say so; others run."""
    names = _gang(story)
    story.wait_refused(names[0], "the API server refuses", "intents")
    story.wait_running("claims", "classic")
    assert all(node_of(story.pods()[name]) == "" for name in names)


def leaves_intents(story: Scene, right: Right) -> None:
    """Gangs start; what was put down about them stays, and the log says so."""
    story.wait_running(*_gang(story))
    _wait_logged(story, right)
    assert story.rest.list("intents", story.namespace)


def evicts_one(story: Scene) -> None:
    """A pod of higher priority comes where a node is full."""
    story.wait_running("claims", "classic")
    story.slice(story.node("busy", labels={"example.com/kind": "busy"}), [{"name": "gpu-0"}])
    there = {"nodeSelector": {"example.com/kind": "busy"}}
    story.pod(
        "victim", templates=["gpu"], annotations={"dovetail.dev/when-evicted": "end"}, **there
    )
    story.wait_running("victim")
    story.pod("important", templates=["gpu"], priorityClassName="system-cluster-critical", **there)


def evicts_no_pod(story: Scene, right: Right) -> None:
    """The pod of higher priority waits as if no pod could yield, and the log says why."""
    evicts_one(story)
    _wait_logged(story, right)
    assert not story.pods()["victim"]["metadata"].get("deletionTimestamp")


def reads_no_budgets(story: Scene, right: Right) -> None:
    """Victims are evicted one after the other; the log says what cannot be read."""
    evicts_one(story)
    story.wait_running("important")
    _wait_logged(story, right)


def never_leads(story: Scene, right: Right) -> None:
    """It stays a standby; the log says why."""
    _wait_logged(story, right)
    story.wait(
        "it to lead no longer", lambda: not story.live.leads()
    )  # it may create a lease it cannot renew


def checks_no_tokens(story: Scene, right: Right) -> None:
    """Where metrics are served beyond this machine every reader is refused; scheduling goes on."""
    resource, verb = right
    cluster = story.live
    story.wait_running("claims", "classic")
    with pytest.raises(urllib.error.HTTPError) as refused:
        _ask_with_token(cluster, "/metrics")
    refused.value.close()
    assert refused.value.code == 503
    assert f'cannot {verb} resource "{resource}"' in _log(cluster)


RIGHTS: dict[Right, Callable[[Scene, Right], None]] = {
    **{(kind.plural, "list"): sees_nothing for kind in PICTURE},
    **{(kind.plural, "watch"): sees_late for kind in PICTURE},
    (TOGETHER, "list"): sees_nothing,
    (TOGETHER, "watch"): sees_late,
    ("+".join(kind.plural for kind in OWNERS), "list"): reads_no_owners,
    ("+".join(kind.plural for kind in OWNERS), "watch"): reads_no_owners,
    ("persistentvolumes", "patch"): leaves_volumes("kubernetes.io/no-provisioner"),
    ("persistentvolumeclaims", "patch"): leaves_volumes("example.com/nobody"),
    ("resourceclaims", "patch"): refuses("resourceclaims"),
    ("resourceclaims", "create"): refuses_classic,
    ("resourceclaims", "update"): leaves_claims_with_spaces,
    ("resourceclaimtemplates", "create"): gives_no_shares,
    ("resourceclaims/status", "patch"): refuses("resourceclaims/status"),
    ("resourceclaims/binding", "patch"): refuses("resourceclaims/binding"),
    ("pods/binding", "create"): refuses("pods/binding"),
    ("pods/status", "patch"): reports_by_event_only,
    ("pods/eviction", "create"): evicts_no_pod,
    ("poddisruptionbudgets", "list"): reads_no_budgets,
    ("intents", "list"): reads_no_intents,
    ("intents", "create"): starts_no_gangs,
    ("intents", "delete"): leaves_intents,
    ("events", "create"): runs_without_events,
    ("queues/status", "patch"): leaves_queues_unsaid,
    ("tokenreviews", "create"): checks_no_tokens,
    ("subjectaccessreviews", "create"): checks_no_tokens,
    ("leases", "create"): never_leads,
    ("leases", "get"): never_leads,
    ("leases", "patch"): never_leads,
}
# Asked for only after a write that got no answer or a conflict; stories of broken connections need them.
AFTER_FAULTS = {
    (plural, "get")
    for plural in ("pods", "resourceclaims", "persistentvolumes", "persistentvolumeclaims")
}
# Kinds that are not served here: tests/e2e/test_grouping.py installs some of them and reads them with these rights.
NOT_SERVED = {
    (kind.plural, verb)
    for kind in (*registry.OWNERS, *registry.PARENTS)
    if kind not in OWNERS
    for verb in ("list", "watch")
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Live]:
    """A cluster that also enforces who may set owners, with hollow nodes and no scheduler."""
    flags = ["--enable-admission-plugins=OwnerReferencesPermissionEnforcement"]
    with live.private(extra_apiserver_flags=flags) as lives:
        lives.play("--nodes", "1")
        planes.apply(
            lives.plane,
            [item for item in live.installed() if item["kind"] == "CustomResourceDefinition"],
        )
        planes.kubectl(
            lives.plane,
            "wait",
            "--for=condition=Established",
            "crd/queues.dovetail.dev",
            "--timeout=60s",
        )
        _queued(lives, "everybody", namespaceSelector={})
        yield lives


@pytest.fixture
def story(cluster: Live) -> Iterator[Scene]:
    """Two pods that wait: one with a claim, one with a classic resource."""
    scene = Scene(cluster, planes.fresh_namespace(cluster.plane))
    resource = f"{scene.namespace}.example.com/gpu"
    scene.classed(extendedResourceName=resource)
    scene.template()
    for kind in ("claims", "classic"):
        node = scene.node(kind, labels={"example.com/kind": kind})
        scene.slice(node, [{"name": "gpu-0"}])
    scene.pod("claims", templates=["gpu"], nodeSelector={"example.com/kind": "claims"})
    scene.pod("classic", limits={resource: "1"}, nodeSelector={"example.com/kind": "classic"})
    try:
        yield scene
    finally:
        if cluster.is_running():
            cluster.stop(kill=True)
        cluster.rest.delete("leases", "dovetail-scheduler", "kube-system")
        scene.end()


def test_every_right_that_is_granted_is_in_the_table() -> None:
    granted = {
        (resource, verb)
        for role in ROLES
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    taken = {(resource, verb) for several, verb in RIGHTS for resource in several.split("+")}
    assert granted == taken | AFTER_FAULTS | NOT_SERVED


def test_with_all_rights_a_share_of_a_gpu_is_given(cluster: Live, story: Scene) -> None:
    """The scheduler may set the owner of the template that it creates."""
    _schedule(cluster)
    _ask_for_share(story)
    story.wait_running("share")


def test_with_all_rights_both_pods_run(cluster: Live, story: Scene) -> None:
    """Also with the chart's own configuration file, and its lease, which has no holder yet."""
    (lease,) = [item for item in live.installed() if item["kind"] == "Lease"]
    planes.apply(cluster.plane, [lease], namespace="kube-system")
    _schedule(cluster, is_open=True)
    pods = story.wait_running("claims", "classic")
    assert all(phase_of(pod) == "Running" for pod in pods.values())
    story.wait("events", lambda: len(story.events("Scheduled")) == 2)
    assert "cannot" not in cluster.log().rpartition("serving")[2]
    with _ask_with_token(cluster, "/metrics") as answer:
        assert answer.status == 200
    held = cluster.rest.read("leases", lease["metadata"]["name"], "kube-system")
    assert held["metadata"]["labels"].items() >= lease["metadata"]["labels"].items()
    assert held["spec"]["holderIdentity"]


@pytest.mark.parametrize(
    "right", RIGHTS, ids=lambda right: "-".join(right).replace(TOGETHER, "others").replace("/", ".")
)
def test_without_a_right_what_fails_says_so(cluster: Live, story: Scene, right: Right) -> None:
    try:
        _take_away(cluster, right)
        (cluster.directory / "dovetail.log").write_text("", encoding="utf-8")
        _schedule(cluster, is_open=RIGHTS[right] is checks_no_tokens)
        RIGHTS[right](story, right)
    finally:
        for role in ROLES:
            _put(cluster, role)
        cluster.wait_for("the right given back", lambda: _is_allowed(cluster, right))


def _schedule(cluster: Live, *, is_open: bool = False) -> None:
    """Starts a scheduler; an open one serves on every address, so that who asks for metrics is checked."""
    configuration: dict[str, Any] = {"leaderElection": SHORT}
    port = free_ports.reserve()
    if is_open:
        (given,) = [
            item["data"]["scheduler.yaml"]
            for item in live.installed()
            if item["kind"] == "ConfigMap"
        ]
        configuration = yaml.safe_load(given)
        configuration["leaderElection"] |= SHORT
        configuration["serving"]["port"] = port  # on every address; asked on loopback only
    cluster.schedule(configuration=configuration)
    if is_open:
        cluster.ports["dovetail"] = port
    cluster.wait_for("a scheduler", lambda: cluster.is_serving("/healthz"))


def _gang(story: Scene) -> list[str]:
    """Two pods that start together, beside those of the story."""
    names = ["together-0", "together-1"]
    for name in names:
        tree = pod_tree(name)
        tree["metadata"]["labels"] = {"dovetail.dev/gang": "together", "dovetail.dev/gang-min": "2"}
        tree["spec"]["nodeSelector"] = {"example.com/kind": "claims"}
        story.rest.create("pods", tree, story.namespace)
    return names


def _queued(cluster: Live, name: str, **spec: Any) -> None:
    """A queue; one without a selector is for no namespace."""
    head = {"apiVersion": registry.QUEUE.api_version, "kind": "Queue", "metadata": {"name": name}}
    planes.apply(cluster.plane, [head | {"spec": spec}])


def _take_away(cluster: Live, right: Right) -> None:
    taken, verb = right[0].split("+"), right[1]
    for role in ROLES:
        left = copy.deepcopy(role)
        for rule in list(left["rules"]):
            less = [item for item in rule["resources"] if item in taken]
            if less and verb in rule["verbs"]:
                others = {
                    **rule,
                    "resources": [item for item in rule["resources"] if item not in taken],
                }
                left["rules"] += [others] if others["resources"] else []
                rule["resources"] = less
                rule["verbs"] = [item for item in rule["verbs"] if item != verb]
        left["rules"] = [rule for rule in left["rules"] if rule["verbs"]]
        _put(cluster, left)
    cluster.wait_for("the right taken away", lambda: not _is_allowed(cluster, right))


def _put(cluster: Live, role: dict[str, Any]) -> None:
    plural, metadata = f"{role['kind'].lower()}s", role["metadata"]
    cluster.rest.patch(
        plural, metadata["name"], {"rules": role["rules"]}, metadata.get("namespace", "")
    )


def _is_allowed(cluster: Live, right: Right) -> bool:
    """What the server's authoriser says now: it learns of a changed role a moment later."""
    several, verb = right
    allowed = [_is_one_allowed(cluster, resource, verb) for resource in several.split("+")]
    return any(allowed)


def _is_one_allowed(cluster: Live, resource: str, verb: str) -> bool:
    name, _, subresource = resource.partition("/")
    group = next(
        rule["apiGroups"][0]
        for role in ROLES
        for rule in role["rules"]
        if resource in rule["resources"]
    )
    about = {
        "namespace": "kube-system",
        "verb": verb,
        "group": group,
        "resource": name,
        "subresource": subresource,
    }
    if name == "leases" and verb != "create":
        about["name"] = "dovetail-scheduler"
    review = {"spec": {"user": live.SERVICE_ACCOUNT, "resourceAttributes": about}}
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    answer = cluster.rest.ask(
        "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", kind | review
    )
    return bool(answer["status"]["allowed"])


def _ask_with_token(cluster: Live, path: str) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{cluster.ports['dovetail']}{path}",
        headers={"Authorization": f"Bearer {cluster.plane.token}"},
    )
    return urllib.request.urlopen(request, timeout=60)


def _wait_logged(story: Scene, right: Right) -> None:
    several, verb = right
    words = [f'cannot {verb} resource "{resource}"' for resource in several.split("+")]
    story.wait("word of it", lambda: all(word in _log(story.live) for word in words))


def _log(cluster: Live) -> str:
    """What the scheduler said, quotes inside quotes as they were meant."""
    return cluster.log().replace('\\"', '"')


def _ask_for_volume(story: Scene, provisioner: str) -> None:
    """A pod whose claim waits for it: with a volume to choose, or one to be made by a provisioner that does not run."""
    storage, name = "storage.k8s.io/v1", f"{story.namespace}-{provisioner.rpartition('/')[2]}"
    node = story.node("disk")
    local = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    volume = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": name,
        "local": {"path": "/disk"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [local]}]}},
    }
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": name,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    waits = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    story.put(
        "storageclasses",
        {"apiVersion": storage, "kind": "StorageClass", "metadata": {"name": name}} | waits,
    )
    if provisioner.startswith("kubernetes.io/"):
        head = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
        story.put("persistentvolumes", head | {"spec": volume})
    head = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk"}}
    story.rest.create("persistentvolumeclaims", head | {"spec": claim}, story.namespace)
    uses = {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}
    story.pod("disk", volumes=[uses], nodeSelector={"kubernetes.io/hostname": node})


def _ask_for_share(story: Scene) -> None:
    """A pod that names the template of a share, and a GPU that offers shares."""
    policy = {"default": "80Gi", "validRange": {"min": "1Mi", "step": "1Mi"}}
    device = {
        "name": "gpu-0",
        "allowMultipleAllocations": True,
        "attributes": {"type": {"string": "gpu"}},
        "capacity": {"memory": {"value": "80Gi", "requestPolicy": policy}},
    }
    story.slice(story.node("shared"), [device], driver="gpu.nvidia.com")
    story.pod("share", templates=["dovetail-gpu-fraction-0.5"])


def _names(event: dict[str, Any], right: Right) -> bool:
    return right[0] in event["note"]
