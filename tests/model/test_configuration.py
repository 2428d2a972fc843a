"""The scheduler's configuration file: what is accepted, what is refused and in which words, what the reference says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import pytest
import yaml

from dovetail import errors
from dovetail.files import configuration_file
from dovetail.model import configuration, configuration_problems, policy
from dovetail.model.configuration import Field, SchedulerConfiguration

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "configuration" / "scheduler.yaml"
REFERENCE = ROOT / "docs" / "reference" / "configuration.md"
HEAD = "apiVersion: dovetail.dev/v1alpha1\nkind: SchedulerConfiguration\n"


def refusal(text: str, *, head: str = HEAD) -> list[str]:
    """The lines said about a file, without its name."""
    with pytest.raises(errors.InputError) as caught:
        configuration_file.read(head + text, file="s.yaml")
    lines = str(caught.value).splitlines()
    assert all(line.startswith("s.yaml: ") for line in lines)
    return [line.removeprefix("s.yaml: ") for line in lines]


def test_a_file_with_nothing_but_its_kind_is_the_defaults() -> None:
    assert configuration_file.read(HEAD, file="s.yaml") == SchedulerConfiguration()
    assert (
        configuration_file.read(HEAD + "leaderElection:\nserving: {port: null}\n", file="s.yaml")
        == SchedulerConfiguration()
    )


def test_the_defaults_are_sound() -> None:
    assert list(configuration_problems.problems(SchedulerConfiguration())) == []


def test_the_example_is_read() -> None:
    settings = configuration_file.load(EXAMPLE)
    assert settings.ownership.node_labels == {"dovetail.dev/pool": "gpu"}
    assert settings.events.rate_per_second == 20
    assert settings.logging.format == "json"
    assert settings.decide.search_steps == SchedulerConfiguration().decide.search_steps


def test_json_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(msgspec.json.encode(SchedulerConfiguration(scheduler_names=("a", "b"))))
    assert configuration_file.load(path).scheduler_names == ("a", "b")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "scheduelrNames: [a]",
            'scheduelrNames: unknown field "scheduelrNames"; did you mean "schedulerNames"?',
        ),
        (
            "leaderElection: {enabeld: true}",
            'leaderElection.enabeld: unknown field "enabeld"; did you mean "enabled"?',
        ),
        ("leaseDurationSeconds: 9", "did you mean leaderElection.leaseDurationSeconds?"),
        ("serving: {weights: {}}", 'serving.weights: unknown field "weights"'),
        (
            "decide: {weights: {stranded: 1}}",
            'decide.weights.stranded: unknown field "stranded"; did you mean',
        ),
        (
            "metrics: {nodeAgents: {service: agents}}",
            'metrics.nodeAgents.service: expected NAMESPACE/NAME of a Service, got "agents"',
        ),
        (
            "metrics: {nodeAgents: {service: a/b}, prometheus: {url: 'http://p:9090'}}",
            "metrics.nodeAgents.service: metrics.prometheus.url is set as well; choose one",
        ),
        ("serving: 3", "serving: expected a mapping, got 3"),
        ("serving: {port: 70000}", "serving.port: expected a whole number <= 65535, got 70000"),
        ("serving: {port: '1'}", 'serving.port: expected a whole number, got "1"'),
        (
            "serving: {address: localhost}",
            "serving.address: expected an IP address such as 127.0.0.1",
        ),
        ("schedulerNames: dovetail", 'schedulerNames: expected a list, got "dovetail"'),
        ("schedulerNames: [a, 3]", "schedulerNames[1]: expected text, got 3"),
        ("schedulerNames: []", "schedulerNames: is empty, so Dovetail would schedule no pod"),
        ("schedulerNames: [a, a]", 'schedulerNames[1]: "a" is listed twice'),
        ("schedulerNames: [A_B]", "schedulerNames[0]: must be a DNS subdomain"),
        ("audit: {enabled: 1}", "audit.enabled: expected true or false, got 1"),
        ("audit: {intervalSeconds: 0}", "audit.intervalSeconds: expected a number > 0.0, got 0"),
        (
            "quarantine: {slackSeconds: -1}",
            "quarantine.slackSeconds: expected a number >= 0.0, got -1",
        ),
        ("events: {ratePerSecond: lots}", 'events.ratePerSecond: expected a number, got "lots"'),
        ("ownership: {nodeLabels: {a: 1}}", "ownership.nodeLabels[a]: expected text, got 1"),
        ("ownership: {nodeLabels: {a: 'b c'}}", "ownership.nodeLabels[a]: must be a label value"),
        ("ownership: {nodeLabels: {'a b': c}}", "ownership.nodeLabels[a b]: must be a label key"),
        (
            "ownership: {nodeTaint: 'a=b:NoSchedule'}",
            "ownership.nodeTaint: expected the key of a taint",
        ),
        (
            "ownership: {deviceTaintRules: [A B]}",
            "ownership.deviceTaintRules[0]: must be a DNS subdomain",
        ),
        ("leaderElection: {namespace: ''}", "leaderElection.namespace: must be a DNS label"),
        ("leaderElection: {name: ''}", "leaderElection.name: must be a DNS subdomain"),
        (
            "leaderElection: {renewDeadlineSeconds: 15}",
            "must be less than leaseDurationSeconds (15)",
        ),
        (
            "leaderElection: {retryPeriodSeconds: 9}",
            "leaderElection.retryPeriodSeconds: is 9, with 1.2 times that",
        ),
        ("logging: {format: xml}", 'logging.format: expected one of text, json, got "xml"'),
        (
            "tracing: {endpoint: 'localhost:4318'}",
            "tracing.endpoint: expected http:// or https:// and a host, got",
        ),
        ("tracing: {sampleRatio: 2}", "tracing.sampleRatio: expected a number <= 1.0, got 2"),
        (
            "logging: {level: loud}",
            'logging.level: expected one of debug, info, warning, error, got "loud"',
        ),
    ],
)
def test_a_problem_is_reported_with_its_path_and_the_next_step(text: str, said: str) -> None:
    lines = refusal(text)
    assert len(lines) == 1
    assert said in lines[0]


def test_all_problems_are_reported_at_once() -> None:
    assert [line.partition(":")[0] for line in refusal("a: 1\nb: 2\nserving: {port: -1}")] == [
        "a",
        "b",
        "serving.port",
    ]
    names = refusal("logging: {level: x, format: z}\nschedulerNames: []")
    assert [line.partition(":")[0] for line in names] == [
        "schedulerNames",
        "logging.format",
        "logging.level",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected one document, got 0"),
        ("a: 1\n---\nb: 1\n", "expected one document, got 2"),
        ("- a\n", "expected a mapping, got a list"),
        ("a: [", "line 2: not YAML"),
        ("a: 1\na: 2\n", "line 2"),
        (
            "schedulerNames: [a]\n",
            'apiVersion: is required; write "apiVersion: dovetail.dev/v1alpha1"',
        ),
        ("apiVersion: v1\nkind: Pod\n", 'apiVersion: expected "dovetail.dev/v1alpha1", got "v1"'),
    ],
)
def test_a_file_that_is_something_else_is_refused(text: str, said: str) -> None:
    assert said in refusal(text, head="")[0]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.InputError, match=r"nowhere\.yaml: cannot be read: No such file"):
        configuration_file.load(tmp_path / "nowhere.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"kind: \xe4")
    with pytest.raises(errors.InputError, match=r"latin\.yaml: not UTF-8"):
        configuration_file.load(tmp_path / "latin.yaml")


def test_what_the_file_says_about_queues_is_part_of_the_policy_with_the_same_defaults() -> None:
    in_file = msgspec.structs.asdict(configuration.Queues())
    in_policy = msgspec.structs.asdict(policy.Batch())
    assert in_file == {name: in_policy[name] for name in in_file}


def test_the_policy_has_names_weights_and_ownership() -> None:
    chosen = configuration.Decide(weights=policy.Weights(stranding=7))
    ours = configuration.Ownership(
        node_labels={"a": "b"}, node_taint="t", device_taint_rules=("r",)
    )
    made = configuration.policy_of(
        SchedulerConfiguration(decide=chosen, ownership=ours, scheduler_names=("a",))
    )
    assert made == policy.Policy(
        weights=policy.Weights(stranding=7),
        ownership=policy.Ownership(node_labels={"a": "b"}, node_taint="t", device_rules=("r",)),
        scheduler_names=("a",),
    )


def test_the_schema_allows_what_the_structs_allow() -> None:
    schema = configuration_file.schema()
    assert schema["$id"].startswith("urn:dovetail:")
    assert schema["required"] == ["apiVersion", "kind"]
    places = {"": schema, **schema["$defs"]}
    assert all(place["additionalProperties"] is False for place in places.values())
    for field in configuration.fields():
        tree = _described(schema, field.path)
        assert tree["description"] == field.meaning, field.path
        assert tree["default"] == msgspec.to_builtins(field.default), field.path
    assert _described(schema, "serving.port")["maximum"] == 65535
    assert _described(schema, "logging.format")["enum"] == ["text", "json"]


def _described(schema: dict[str, Any], path: str) -> dict[str, Any]:
    result = schema
    for name in path.split("."):
        if "$ref" in result:
            result = schema["$defs"][result["$ref"].rpartition("/")[2]]
        result = result["properties"][name]
    return result


def test_the_reference_lists_every_field_with_type_default_and_meaning() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    expected = [reference_row(field) for field in configuration.fields()]
    missing = [row for row in expected if row not in text.splitlines()]
    assert not missing, "\n".join(missing)
    messages = re.findall(r"^\| `([a-zA-Z0-9.]+)` \|", text, re.MULTILINE)
    assert messages == [field.path for field in configuration.fields()]


def test_the_yaml_of_the_reference_is_the_defaults() -> None:
    written = re.search(
        r"^```yaml\n(.*?)^```", REFERENCE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert written
    assert configuration_file.read(written[1], file="reference") == SchedulerConfiguration()
    assert yaml.safe_load(written[1]) == msgspec.json.decode(
        msgspec.json.encode(SchedulerConfiguration())
    )


def reference_row(field: Field) -> str:
    """A line of the table in the reference."""
    return f"| `{field.path}` | {type_words(field.type)} | {default_words(field.default)} | {field.meaning} |"


def default_words(value: Any) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value in ((), {}, ""):
        return "none"
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value)
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def type_words(given: Any) -> str:
    kind, *notes = get_args(given)
    if get_origin(kind) is tuple:
        return "list of text"
    if get_origin(kind) is dict:
        return "map"
    if kind is bool:
        return "bool"
    if kind is str:
        return "text"
    limits = {
        name: getattr(note, name)
        for note in notes
        for name in ("gt", "ge", "le")
        if getattr(note, name) is not None
    }
    low = f"above {limits['gt']:,}" if "gt" in limits else f"{limits['ge']:,}"
    word = "whole number" if kind is int else "number"
    return f"{word}, {low} to {limits['le']:,}"
