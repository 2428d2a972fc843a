"""A real control plane comes up on loopback, knows its users, survives its store, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dovetail.devcluster import certificates, control_plane, probe, processes
from tests.support import cluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(params=cluster.EACH_VERSION)
def plane(request: pytest.FixtureRequest) -> control_plane.ControlPlane:
    return cluster.control_plane(request.param)


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "none"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers} | spec,
    }


def test_the_server_is_of_the_asked_version_and_ready(plane: control_plane.ControlPlane) -> None:
    version = probe.ask(plane.port, "/version", ca=plane.ca, token=plane.token)
    assert f'"gitVersion": "{plane.parts.version}"' in version.body.decode()
    assert probe.ask(plane.port, "/readyz", ca=plane.ca, token=plane.token).is_ok
    names = {item["metadata"]["name"] for item in cluster.get(plane, "namespaces")["items"]}
    assert {"default", "kube-system"} <= names
    assert set(plane.pids) == {"etcd", "kube-apiserver", "kube-controller-manager"}


def test_device_taint_rules_are_served(plane: control_plane.ControlPlane) -> None:
    listed = cluster.kubectl(plane, "api-resources", "--api-group=resource.k8s.io", "--no-headers")
    served = {words[-1]: words[-3] for words in map(str.split, listed.splitlines())}
    assert served["ResourceSlice"] == served["ResourceClaim"] == "resource.k8s.io/v1"
    expected = {"1.37": "resource.k8s.io/v1", "1.36": "resource.k8s.io/v1beta2"}
    assert served["DeviceTaintRule"] == expected[plane.parts.minor]


def test_a_bearer_of_a_token_has_only_the_rights_it_was_given(
    plane: control_plane.ControlPlane,
) -> None:
    namespace = cluster.fresh_namespace(plane)
    tester = plane.write_kubeconfig("tester", token=cluster.TESTER.token)
    refused = cluster.run_kubectl(plane, "get", "pods", "-n", namespace, kubeconfig=tester)
    assert refused.returncode == 1
    assert 'User "tester" cannot list resource "pods"' in refused.stderr
    cluster.kubectl(
        plane,
        "create",
        "rolebinding",
        "view",
        "--clusterrole=view",
        "--group=testers",
        "-n",
        namespace,
    )
    wait_until(
        lambda: (
            cluster.run_kubectl(plane, "get", "pods", "-n", namespace, kubeconfig=tester).returncode
            == 0
        ),
        "the group may look",
    )


def test_a_client_certificate_names_its_user_and_groups(plane: control_plane.ControlPlane) -> None:
    pair = plane.client_certificate("ann", ["team-a", "odd/group"])
    who = cluster.run_kubectl(
        plane, "auth", "whoami", "-o", "json", kubeconfig=plane.write_kubeconfig("ann", pair=pair)
    )
    assert '"username": "ann"' in who.stdout, who.stderr
    assert '"team-a"' in who.stdout
    assert '"odd/group"' in who.stdout


def test_secrets_are_for_the_owner_only(plane: control_plane.ControlPlane) -> None:
    plane.client_certificate("ann", ["team-a"])
    private = [
        plane.kubeconfig,
        plane.directory / "pki" / "tokens.csv",
        *plane.directory.glob("pki/*.key"),
    ]
    assert len(private) > 4
    assert {oct(path.stat().st_mode & 0o777) for path in private} == {"0o600"}


def test_a_server_without_a_trusted_certificate_is_refused(
    plane: control_plane.ControlPlane, tmp_path: Path
) -> None:
    other = certificates.Authority(tmp_path / "other")
    answer = probe.ask(plane.port, "/readyz", ca=other.pair.certificate, token=plane.token)
    assert answer.status == 0
    assert "CERTIFICATE_VERIFY_FAILED" in str(answer)


def test_the_controllers_make_claims_from_templates(plane: control_plane.ControlPlane) -> None:
    namespace = cluster.fresh_namespace(plane)
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu"},
        "spec": {
            "spec": {
                "devices": {
                    "requests": [
                        {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.test"}}
                    ]
                }
            }
        },
    }
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    cluster.apply(plane, [template, pod("train", resourceClaims=claims)], namespace=namespace)
    made = wait_until(
        lambda: cluster.get(plane, "resourceclaims", "-n", namespace)["items"],
        "a claim for the pod",
    )
    assert made[0]["metadata"]["ownerReferences"][0]["name"] == "train"


def test_a_kube_scheduler_binds_the_pods_of_its_name_with_no_more_than_its_own_rights(
    plane: control_plane.ControlPlane,
) -> None:
    namespace = cluster.fresh_namespace(plane)
    name = f"kube-{namespace}"
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{namespace}", "labels": {"test": namespace}},
    }
    cluster.apply(plane, [node])
    cluster.kubectl(plane, "patch", "node", f"node-{namespace}", "--subresource=status", "--type=merge",
                    "-p", '{"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}}')  # fmt: skip
    kubeconfig = plane.scheduler_kubeconfig()
    process = plane.start_scheduler(name, qps=500, burst=500, kubeconfig=kubeconfig)
    try:
        cluster.apply(
            plane,
            [pod("ours", schedulerName=name, nodeSelector={"test": namespace})],
            namespace=namespace,
        )
        bound = wait_until(
            lambda: cluster.get(plane, "pod", "ours", "-n", namespace)["spec"].get("nodeName"),
            "the pod is bound",
        )
        assert bound == f"node-{namespace}"
        assert plane.pids[f"kube-scheduler-{name}"] == process.pid
    finally:
        plane.kill(f"kube-scheduler-{name}")
        cluster.kubectl(plane, "delete", "node", f"node-{namespace}")
    assert process.returncode is not None
    log = plane.log_of(f"kube-scheduler-{name}").read_text(encoding="utf-8")
    assert "forbidden" not in log.lower()
    assert f"kube-scheduler-{name}" not in plane.roster.all()


def test_what_was_stored_survives_the_end_of_etcd_and_the_api_server() -> None:
    with cluster.private_plane() as plane:
        namespace = cluster.fresh_namespace(plane)
        plane.kill_etcd()
        wait_until(
            lambda: not probe.ask(plane.port, "/readyz", ca=plane.ca, token=plane.token).is_ok,
            "not ready",
        )
        assert "etcd" not in plane.pids
        plane.start_etcd()
        plane.wait_ready()
        assert cluster.get(plane, "namespace", namespace)["metadata"]["name"] == namespace
        plane.restart_etcd()
        plane.kill("kube-apiserver")
        plane.start("kube-apiserver")
        assert cluster.get(plane, "namespace", namespace)["metadata"]["name"] == namespace


def test_stopping_in_good_order_leaves_no_process() -> None:
    with cluster.private_plane() as plane:
        started = list(plane.roster.all().values())
        assert [process.name for process in started] == [
            "etcd",
            "kube-apiserver",
            "kube-controller-manager",
        ]
        assert all(processes.is_alive(process) for process in started)
        plane.stop()
        assert [process.name for process in started if processes.is_alive(process)] == []
        assert plane.roster.all() == {}
        assert plane.pids == {}


def test_a_part_that_does_not_come_up_is_named_with_its_last_words_and_the_others_end(
    tmp_path: Path,
) -> None:
    with pytest.raises(
        control_plane.StartFailed, match=r"kube-apiserver ended with exit code 1 .*\n.*no-such-flag"
    ):
        control_plane.start(
            cluster.parts(), tmp_path / "plane", extra_apiserver_flags=["--no-such-flag=1"]
        )
    assert processes.ProcessRecords(tmp_path / "plane" / control_plane.ROSTER).all() == {}


def test_a_port_on_which_another_program_answers_is_not_taken_for_ours() -> None:
    with cluster.private_plane() as plane:
        plane.kill("kube-controller-manager")
        ports = dict(plane.layout.ports) | {"kube-controller-manager": plane.port}
        plane.layout = plane.layout._replace(ports=ports)
        with pytest.raises(control_plane.StartFailed, match="address already in use"):
            plane.start("kube-controller-manager")
