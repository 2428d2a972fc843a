"""`dovetail explain`: fields by the cluster's schemas or our own, and every reason the engine gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.cli.work.explaining import reason_texts, schema_fields
from dovetail.model import condition_reasons, plan
from dovetail.model.reasons import ReasonCode
from tests.cli import running


def test_every_word_the_scheduler_uses_has_a_meaning_and_a_remedy() -> None:
    conditions = {
        value
        for name, value in vars(condition_reasons).items()
        if name.isupper() and isinstance(value, str)
    }
    words = {*map(str, ReasonCode), *map(str, plan.Rule), *conditions}
    assert words <= reason_texts.ALL.keys()
    for entry in reason_texts.ALL.values():
        assert entry.means.endswith(".")
        assert entry.helps


def test_remedies_name_commands_that_exist() -> None:
    from dovetail.cli import main

    for entry in reason_texts.ALL.values():
        for text in (entry.means, *entry.helps):
            for part in text.split("dovetail ")[1:]:
                word = part.split()[0].strip("`,.")
                assert word in main.COMMANDS, text


@pytest.mark.parametrize("word", ["DevicesInUse", "devicesinuse", "Reclaimed", "QuotaExceeded"])
def test_a_reason_is_explained_without_a_cluster(empty: Path, word: str) -> None:
    done = running.inside(empty, "explain", word)
    assert done.code == 0
    assert done.lines[0].lower() == f"reason:     {word.lower()}"
    assert "HELPS:" in done.lines


def test_our_kinds_and_those_of_dra_are_known_without_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    absent = tmp_path / "none"
    queue = running.inside(absent, "explain", "queue.spec.resources")
    assert queue.code == 0, queue.err
    assert "FIELD: resources <map[string]Object>" in queue.lines
    claim = running.inside(absent, "explain", "resourceclaim.spec.devices.requests.exactly")
    assert "  deviceClassName  <string>" in claim.lines
    recursive = running.inside(absent, "explain", "topology", "--recursive")
    assert any(line.strip().startswith("nodeLabel  <string>") for line in recursive.lines)


def test_a_field_that_is_not_there_is_refused_with_those_that_are(small: Path) -> None:
    done = running.inside(small, "explain", "queue.spec.quota")
    assert (done.code, done.out) == (1, "")
    assert 'Queue.spec has no field "quota"; its fields: aliases, ' in done.err
    near = running.inside(small, "explain", "DeviceInUse")
    assert "did you mean DevicesInUse?" in near.err
    assert running.inside(small, "explain", "job..spec").code == 2
    assert running.inside(small, "explain", "widgets").code == 1


def test_any_kind_of_the_cluster_is_explained(small: Path) -> None:
    done = running.inside(small, "explain", "jobs.spec")
    assert done.lines[:2] == ["GROUP:      batch", "KIND:       Job"]
    other = running.inside(small, "explain", "resourceclaims", "--api-version", "nope/v1")
    assert other.code == 1


def test_schemas_that_contain_themselves_come_to_an_end() -> None:
    reference = {"$ref": "#/components/schemas/Node"}
    node = {"type": "object", "properties": {"children": {"type": "array", "items": reference}}}
    schemas = schema_fields.Schemas({"components": {"schemas": {"Node": node}}})
    identity = schema_fields.Identity("", "v1", "Node")
    lines = schema_fields.lines_of(schemas, identity, node, [], is_recursive=True)
    assert 5 < len(lines) < 50
    assert schemas.type_of(node["properties"]["children"]) == "[]Object"  # type: ignore[index]
    loop = schema_fields.Schemas(
        {"components": {"schemas": {"A": {"$ref": "#/components/schemas/A"}}}}
    )
    assert loop.resolved({"$ref": "#/components/schemas/A"}) is not None
