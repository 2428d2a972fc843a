"""The chart as this program renders it: values held against their schema, objects that belong together."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import dovetail
from dovetail import errors
from dovetail.boot.observing import exporter
from dovetail.cli import main
from dovetail.cli.processes import (
    dashboard_command,
    exporter_command,
    history_command,
    lifecycle_command,
    node_agent_command,
)
from dovetail.files import configuration_file
from dovetail.history import history_recorder
from dovetail.install import chart, chart_values
from dovetail.kubetypes import gpu_stack_kinds, registry
from dovetail.upgrade import recorded_events, upgrade_loop
from dovetail.upgrade.validation import validation_checks
from dovetail.web.source import watched_kinds
from tests.deploy import build

READ = ("list", "watch")
REFERENCE = build.ROOT / "docs" / "reference" / "chart-values.md"
RIGHTS_REFERENCE = build.ROOT / "docs" / "reference" / "rbac.md"


def test_the_defaults_in_the_file_are_those_of_the_structs() -> None:
    written = yaml.safe_load((chart.home() / "values.yaml").read_text(encoding="utf-8"))
    assert written == json.loads(msgspec.json.encode(chart_values.Values()))


def test_the_schema_in_the_chart_is_made_of_the_structs() -> None:
    written = json.loads((chart.home() / "values.schema.json").read_text(encoding="utf-8"))
    assert written == json.loads(msgspec.json.encode(chart.schema())), (
        "run: .venv/bin/python tools/helm/schema.py"
    )


def test_the_chart_is_of_this_version() -> None:
    about = yaml.safe_load((chart.home() / "Chart.yaml").read_text(encoding="utf-8"))
    assert (about["version"], about["appVersion"]) == (dovetail.__version__, dovetail.__version__)


def test_the_reference_lists_every_value() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    missing = [
        row for field in chart_values.fields() if (row := build.reference_row(field)) not in text
    ]
    assert not missing, "\n".join(missing)


def test_the_rights_are_documented_one_by_one() -> None:
    text = RIGHTS_REFERENCE.read_text(encoding="utf-8")
    for role in build.of_kind(build.objects(), "ClusterRole", "Role"):
        for rule in role["rules"]:
            for resource in rule["resources"]:
                assert f"`{resource}`" in text, (
                    f"{RIGHTS_REFERENCE.name} does not speak of {resource}"
                )


def test_an_image_must_be_named() -> None:
    with pytest.raises(
        errors.InputError, match=r"image\.repository is required: name the image you built"
    ):
        chart.objects(chart.values_of())


@pytest.mark.parametrize(
    ("setting", "words"), build.WRONG, ids=[setting for setting, _ in build.WRONG]
)
def test_wrong_values_are_refused_with_their_path(setting: str, words: str) -> None:
    with pytest.raises(errors.InputError, match=words):
        chart.objects(chart.values_of(settings=[build.IMAGE, setting]))


def test_settings_go_over_files_and_later_ones_over_earlier_ones(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "replicas: 3\nimage: {repository: a, tag: one}\n", encoding="utf-8"
    )
    (tmp_path / "b.yaml").write_text("image: {repository: b}\n", encoding="utf-8")
    tree = chart.values_of(
        [tmp_path / "a.yaml", tmp_path / "b.yaml"], settings=["replicas=4", "replicas=5"]
    )
    assert (tree["replicas"], tree["image"]["repository"], tree["image"]["tag"]) == (
        5,
        "b",
        "one",
    )


@pytest.mark.parametrize("text", ["- a list", "a: 1\n---\nb: 2", "a: [", ""])
def test_files_that_hold_no_values_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(errors.InputError, match=r"values\.yaml: "):
        chart.values_of([tmp_path / "values.yaml"])


@pytest.mark.parametrize(
    "release", [chart.Release("Big", "a"), chart.Release("a" * 54, "a"), chart.Release("a", "a.b")]
)
def test_names_that_kubernetes_would_not_take_are_refused(release: chart.Release) -> None:
    with pytest.raises(errors.InputError, match="DNS label"):
        build.objects(release=release)


def test_the_configuration_is_one_the_scheduler_accepts() -> None:
    """Accepted names and every section pass through; what the installation decides is decided."""
    result = build.objects(
        'schedulerNames=["dovetail", "kai-scheduler"]',
        "configuration.leaderElection.leaseDurationSeconds=20",
    )
    (config,) = build.of_kind(result, "ConfigMap")
    read = configuration_file.read(config["data"]["scheduler.yaml"], file="rendered")
    assert read.scheduler_names == ("dovetail", "kai-scheduler")
    assert read.leader_election.lease_duration_seconds == 20
    assert (read.leader_election.namespace, read.leader_election.name) == (
        "dovetail-system",
        "dovetail-scheduler",
    )
    assert (read.serving.address, read.serving.port, read.logging.format) == (
        "0.0.0.0",
        10351,
        "json",
    )


def test_a_changed_configuration_starts_new_pods() -> None:
    def stamp(*settings: str) -> str:
        (deployment,) = build.of_kind(build.objects(*settings), "Deployment")
        return str(
            deployment["spec"]["template"]["metadata"]["annotations"]["dovetail.dev/configuration"]
        )

    assert stamp() == stamp("replicas=3") != stamp("configuration.logging.level=debug")


def test_the_pods_are_as_restricted_as_kubernetes_knows() -> None:
    """What the `restricted` pod security level asks for, and a file system that cannot be written."""
    (deployment,) = build.of_kind(build.objects(), "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not any(pod.get(name) for name in ("hostNetwork", "hostPID", "hostIPC"))
    assert {"livenessProbe", "readinessProbe", "startupProbe", "resources"} <= set(container)


def test_every_object_carries_the_recommended_labels() -> None:
    names = ("name", "instance", "version", "component", "part-of", "managed-by")
    for item in build.objects(*build.EVERYTHING, api_versions=chart.OPTIONAL):
        labels = item["metadata"]["labels"]
        assert {f"app.kubernetes.io/{name}" for name in names} <= set(labels), item["kind"]
        assert all(len(value) <= 63 for value in labels.values())


def test_rights_are_never_wildcards_and_only_a_lease_is_named() -> None:
    for role in build.of_kind(build.objects(), "ClusterRole", "Role"):
        for rule in role["rules"]:
            assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
            assert "secrets" not in rule["resources"]
            assert not {"deletecollection", "escalate", "bind", "impersonate"} & set(rule["verbs"])
            assert "delete" not in rule["verbs"] or rule["resources"] == ["intents"]
            assert "update" not in rule["verbs"] or rule["resources"] == ["resourceclaims"]


def test_the_admission_policy_is_left_out_where_the_server_has_none() -> None:
    policies = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
    assert build.of_kind(build.objects(), *policies) == []
    assert (
        build.of_kind(
            build.objects("defaulting.enabled=false", api_versions=chart.OPTIONAL), *policies
        )
        == []
    )
    for served in chart.OPTIONAL[1:], chart.OPTIONAL:
        result = build.of_kind(build.objects(api_versions=served), *policies)
        assert {item["apiVersion"] for item in result} == {served[0].rpartition("/")[0]}
        assert len(result) == 2


def test_the_policies_that_can_be_applied_alone_are_those_of_the_chart() -> None:
    file = build.ROOT / "deploy" / "policies" / "keep-general-pods-off.yaml"
    alone = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    result = build.objects(
        "keepGeneralPodsOff.enabled=true", "defaulting.enabled=false", api_versions=chart.OPTIONAL
    )
    inside = {(item["kind"], item["metadata"]["name"]): item for item in result}
    assert len(alone) == 4
    for item in alone:
        same = inside[item["kind"], item["metadata"]["name"]]
        assert (same["apiVersion"], same["spec"]) == (item["apiVersion"], item["spec"])


def test_what_templates_ask_a_cluster_for_is_what_we_look_for() -> None:
    asked = {
        result
        for path in (chart.home() / "templates").iterdir()
        for result in re.findall(r'APIVersions\.Has "([^"]+)"', path.read_text(encoding="utf-8"))
    }
    assert asked == set(chart.OPTIONAL)


def test_what_is_printed_is_what_is_applied(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["install", "--set", build.IMAGE, "--dry-run", "-o", "yaml"]) == 0
    printed: list[Any] = list(yaml.safe_load_all(capsys.readouterr().out))
    assert printed == build.objects()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["install", "-o", "yaml"], 2, "go with --dry-run"),
        (["install", "--dry-run", "--set", "replicas"], 1, "--set replicas: expected path=value"),
        (["install", "--dry-run", "--set", "replicas=[1"], 1, "the value is not YAML"),
        (["install", "--dry-run", "-f", "absent.yaml"], 1, "absent.yaml: cannot be read"),
        (["upgrade", "--dry-run"], 2, "No such option"),
        (["uninstall", "--kubeconfig", "absent"], 1, "absent"),
    ],
)
def test_what_cannot_be_meant_ends_before_anything_is_asked(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(arguments) == code
    assert words in capsys.readouterr().err


def test_the_dashboard_may_list_what_it_reads_and_nothing_else() -> None:
    rendered = build.objects("dashboard.enabled=true")
    (role,) = [
        item
        for item in build.of_kind(rendered, "ClusterRole")
        if item["metadata"]["name"] == "dovetail-dashboard"
    ]
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    needed = {
        (read.kind.group, read.kind.plural, verb)
        for read in watched_kinds.READS
        for verb in ("list", "watch")
    }
    reviews = {
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    }
    assert granted == needed | reviews
    assert ("", "secrets", "list") not in granted


def test_the_dashboard_is_off_unless_wanted() -> None:
    names = {item["metadata"]["name"] for item in build.objects()}
    assert not any("dashboard" in name for name in names)


def test_the_arguments_of_the_dashboard_are_options_of_the_command() -> None:
    (deployment,) = [
        item
        for item in build.of_kind(build.objects(*build.EVERYTHING), "Deployment")
        if item["metadata"]["name"] == "dovetail-dashboard"
    ]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    name, *options = container["args"]
    assert name == "dashboard"
    known = {word for parameter in dashboard_command.command.params for word in parameter.opts}
    given = {option.partition("=")[0] for option in options}
    assert given <= known


def test_the_recorder_of_history_may_list_what_it_records_and_nothing_else() -> None:
    roles = [
        item
        for item in build.of_kind(build.objects("history.enabled=true"), "ClusterRole")
        if item["metadata"]["name"] == "dovetail-history"
    ]
    granted = {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    kinds = (*history_recorder.KINDS, registry.QUEUE, registry.INTENT)
    assert granted == {
        *((kind.group, kind.plural, verb) for kind in kinds for verb in READ),
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    }


@pytest.mark.parametrize("part", ["history", "exporter", "lifecycle"])
def test_observers_are_off_unless_wanted(part: str) -> None:
    names = {item["metadata"]["name"] for item in build.objects()}
    assert not any(part in name for name in names)


def test_the_scheduler_reads_agents_with_a_token_that_opens_nothing_else() -> None:
    settings = (
        "nodeAgent.enabled=true",
        "nodeAgent.metricsPort=9400",
        "nodeAgent.idleMetrics=true",
    )
    items = {(item["kind"], item["metadata"]["name"]): item for item in build.objects(*settings)}
    name = "dovetail-agent-metrics"
    rules = items["ClusterRole", name]["rules"]
    assert rules == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    (subject,) = items["ClusterRoleBinding", name]["subjects"]
    assert subject["name"] == name, "not the scheduler's own account"
    text = items["ConfigMap", "dovetail-scheduler"]["data"]["scheduler.yaml"]
    agents = yaml.safe_load(text)["metrics"]["nodeAgents"]
    service = items["Service", "dovetail-node-agent"]
    assert agents["service"] == f"{service['metadata']['namespace']}/dovetail-node-agent"
    pod = items["Deployment", "dovetail-scheduler"]["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    (mount,) = [
        mount
        for mount in pod["containers"][0]["volumeMounts"]
        if agents["tokenFile"].startswith(mount["mountPath"] + "/")
    ]
    assert volumes[mount["name"]]["secret"]["secretName"] == name
    egress = items["NetworkPolicy", "dovetail-scheduler"]["spec"]["egress"]
    selector = service["spec"]["selector"]
    assert {"podSelector": {"matchLabels": selector}} in [
        peer for rule in egress for peer in rule.get("to", [])
    ]


def test_agents_that_serve_no_metrics_cannot_be_read() -> None:
    with pytest.raises(
        errors.InputError, match=r"needs nodeAgent.enabled and a nodeAgent.metricsPort"
    ):
        build.objects("nodeAgent.idleMetrics=true")


def test_the_agent_runs_commands_of_the_owner_only_where_they_are_given() -> None:
    def agent(*settings: str) -> tuple[dict[str, Any], dict[str, str]]:
        rendered = build.of_kind(build.objects("nodeAgent.enabled=true", *settings), "DaemonSet")
        pod = rendered[0]["spec"]["template"]["spec"]
        name, *options = pod["containers"][0]["args"]
        assert name == "node-agent"
        words = [word for option in options for word in option.split("=", 1)]
        pairs = zip(words[::2], words[1::2], strict=True)
        return pod, {name.lstrip("-"): value for name, value in pairs}

    known = {word for parameter in node_agent_command.command.params for word in parameter.opts}
    pod, plain = agent()
    assert "hostPID" not in pod
    assert not [name for name in plain if "command" in name or "hook-seconds" in name]
    reset = "chroot /driver-root nvidia-smi -r -i {gpus}"
    pod, options = agent(f"nodeAgent.heal.resetCommand={reset}")
    assert options["reset-command"] == reset
    assert options["hook-seconds"] == "300"
    assert "hostPID" not in pod
    pod, options = agent("nodeAgent.heal.rebootCommand=nsenter -t 1 -m -- systemctl reboot")
    assert options["reboot-command"] == "nsenter -t 1 -m -- systemctl reboot"
    assert pod["hostPID"], "the host's init is among the processes"
    assert {f"--{name}" for name in options} <= known


def test_the_exporter_may_list_what_its_metrics_are_about_and_review_their_readers() -> None:
    rendered = build.objects("exporter.enabled=true")
    (role,) = [
        item
        for item in build.of_kind(rendered, "ClusterRole")
        if item["metadata"]["name"] == "dovetail-exporter"
    ]
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    kinds = (*exporter.KINDS, *registry.OWNERS, *registry.PARENTS)
    assert granted == {
        *((kind.group, kind.plural, verb) for kind in kinds for verb in READ),
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    }


@pytest.mark.parametrize("settings", [("exporter.enabled=true",), build.EVERYTHING])
def test_the_exporter_of_the_chart_is_found_by_its_service(settings: tuple[str, ...]) -> None:
    rendered = build.objects(*settings)
    (deployment,) = [
        item
        for item in build.of_kind(rendered, "Deployment")
        if item["metadata"]["name"] == "dovetail-exporter"
    ]
    (service,) = [
        item
        for item in build.of_kind(rendered, "Service")
        if item["metadata"]["name"] == "dovetail-exporter"
    ]
    pod = deployment["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert service["metadata"]["labels"]["app.kubernetes.io/component"] == "exporter"
    (container,) = pod["spec"]["containers"]
    name, *options = container["args"]
    assert name == "exporter"
    known = {word for parameter in exporter_command.command.params for word in parameter.opts}
    assert {option.partition("=")[0] for option in options} <= known
    (port,) = container["ports"]
    assert f"--listen=0.0.0.0:{port['containerPort']}" in options
    assert port["name"] == service["spec"]["ports"][0]["targetPort"]


@pytest.mark.parametrize("settings", [("history.enabled=true",), build.EVERYTHING])
def test_the_arguments_of_the_recorder_are_options_of_the_command(
    settings: tuple[str, ...],
) -> None:
    rendered = build.objects(*settings)
    (deployment,) = [
        item
        for item in build.of_kind(rendered, "Deployment")
        if item["metadata"]["name"] == "dovetail-history"
    ]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    group, name, *options = container["args"]
    assert (group, name) == ("history", "record")
    known = {word for parameter in history_command.record.params for word in parameter.opts}
    assert {option.partition("=")[0] for option in options} <= known
    (variable,) = container["env"]
    assert variable["name"] == history_command.STORE_VARIABLE
    is_file = "value" in variable
    claims = [item["metadata"]["name"] for item in build.of_kind(rendered, "PersistentVolumeClaim")]
    assert claims == (["dovetail-history"] if is_file else [])
    assert ("--leader-elect" in " ".join(options)) is not is_file
    (port,) = container["ports"]
    assert f"--listen=0.0.0.0:{port['containerPort']}" in options
    mounted = {mount["mountPath"] for mount in container.get("volumeMounts", ())}
    prices = [option.partition("=")[2] for option in options if option.startswith("--prices")]
    assert {str(Path(path).parent) for path in prices} <= mounted


def _granted(rendered: list[dict[str, Any]], name: str) -> set[tuple[str, str, str]]:
    roles = [
        item for item in build.of_kind(rendered, "ClusterRole") if item["metadata"]["name"] == name
    ]
    return {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


WRITTEN_FOR_UPGRADES = {
    ("authentication.k8s.io", "tokenreviews", "create"),
    ("authorization.k8s.io", "subjectaccessreviews", "create"),
    ("", "nodes", "patch"),
    ("", "pods", "patch"),
    ("", "pods/eviction", "create"),
    ("resource.k8s.io", "devicetaintrules", "create"),
    ("resource.k8s.io", "devicetaintrules", "delete"),
    ("dovetail.dev", "stackupgrades", "patch"),
    ("dovetail.dev", "stackupgrades/status", "patch"),
}


def test_the_lifecycle_process_may_read_what_an_upgrade_depends_on_and_write_its_steps() -> None:
    read = {(kind.group, kind.plural, verb) for kind in upgrade_loop.KINDS for verb in READ}
    granted = _granted(build.objects("lifecycle.enabled=true"), "dovetail-lifecycle")
    assert granted == read | WRITTEN_FOR_UPGRADES


def test_only_with_a_value_upgrades_change_the_objects_of_the_gpu_operator() -> None:
    settings = ("lifecycle.enabled=true", "lifecycle.operator.enabled=true")
    without = build.objects(settings[0])
    rendered = build.objects(*settings, "lifecycle.operator.namespace=nvidia")
    more = _granted(rendered, "dovetail-lifecycle") - _granted(without, "dovetail-lifecycle")
    assert more == {("nvidia.com", kind.plural, "patch") for kind in gpu_stack_kinds.OPERATOR_KINDS}
    known = {item["metadata"]["name"] for item in build.of_kind(without, "Role")}
    (role,) = [
        item for item in build.of_kind(rendered, "Role") if item["metadata"]["name"] not in known
    ]
    assert role["metadata"]["namespace"] == "nvidia"
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]}]


@pytest.mark.parametrize("settings", [("lifecycle.enabled=true",), build.EVERYTHING])
def test_the_lifecycle_process_of_the_chart_is_one_that_the_command_starts(
    settings: tuple[str, ...],
) -> None:
    rendered = [
        item
        for item in build.objects(*settings)
        if item["metadata"]["name"].startswith("dovetail-lifecycle")
    ]
    items = {item["kind"]: item for item in rendered if item["kind"] != "Role"}
    deployment = items["Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    name, *options = container["args"]
    assert name == "lifecycle"
    known = {word for parameter in lifecycle_command.command.params for word in parameter.opts}
    given = dict(option.partition("=")[::2] for option in options)
    assert given.keys() <= known
    (port,) = container["ports"]
    assert given["--listen"] == f"0.0.0.0:{port['containerPort']}"
    lease = items["Lease"]["metadata"]
    assert given["--leader-elect"] == f"{lease['namespace']}/{lease['name']}"
    assert items["PodDisruptionBudget"]["spec"]["selector"] == deployment["spec"]["selector"]
    pod_labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert items["Service"]["spec"]["selector"].items() <= pod_labels.items()
    if "--checks" in given:
        (mount,) = container["volumeMounts"]
        folder, _, file = given["--checks"].rpartition("/")
        assert mount["mountPath"] == folder
        checks = validation_checks.read(items["ConfigMap"]["data"][file], file)
        assert (len(checks.checks), checks.settle_seconds) == (2, 300)


def test_only_one_lease_of_its_own_namespace_is_the_lifecycle_processs() -> None:
    roles = {
        item["metadata"]["name"]: item
        for item in build.of_kind(build.objects("lifecycle.enabled=true"), "Role")
    }
    *_, renewed = roles["dovetail-lifecycle"]["rules"]
    assert renewed["resourceNames"] == ["dovetail-lifecycle"]
    assert renewed["verbs"] == ["get", "patch"]
    events = roles["dovetail-lifecycle-events"]
    assert events["metadata"]["namespace"] == recorded_events.NAMESPACE
    assert events["rules"][0]["resources"] == ["events"]
