"""Names, files and arguments of others cannot steer the terminal of a user who reads a command's output."""

from __future__ import annotations

import ast
import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import dovetail.cli
from dovetail.cli import get, output, slow_notice
from dovetail.kubetypes import registry
from dovetail.model import plaintext
from dovetail.snapshot import saved_objects, snapshot_files, snapshot_format
from tests.cli import running

# Steers a terminal (C0, ESC, C1), wipes a sign (DEL), turns the direction, or ends a line in some readers' eyes.
EVIL = "\x1b]0;pwned\x07\x1b[31m\x9b2J\x7f\u202e\u2066\u2028\u2029\x85\r\x08\ufeffz"
ARGUMENT = EVIL.replace("\r", "")
SGR = re.compile(r"\x1b\[[0-9;]*m")


def raw_signs(text: str) -> list[str]:
    """What of a text would steer a terminal, apart from line breaks, tabs and our own colours."""
    return sorted(
        {ascii(sign) for sign in SGR.sub("", text) if not sign.isprintable() and sign not in "\n\t"}
    )


def harmless(done: running.Run) -> None:
    """Neither stream holds anything but text."""
    assert raw_signs(done.out) == [], done.out[:500]
    assert raw_signs(done.err) == [], done.err[:500]
    assert "\x1b" not in done.out + done.err  # no terminal, so no colours either


# Arguments and names of files


@pytest.mark.parametrize(
    "arguments",
    [
        (ARGUMENT,),
        (f"--{ARGUMENT}",),
        ("get", ARGUMENT),
        ("get", "pods", ARGUMENT),
        ("get", "pods", f"--{ARGUMENT}"),
        ("get", "pods", "-o", ARGUMENT),
        ("get", "pods", "-n", ARGUMENT),
        ("get", "pods", "-l", ARGUMENT),
        ("get", "gpus", "--node", ARGUMENT),
        ("get", "queues", "--context", ARGUMENT),
        ("when", ARGUMENT),
        ("when", "-n", ARGUMENT),
        ("when", "--config", ARGUMENT),
        ("when", "--kubeconfig", ARGUMENT),
        ("apply", "-f", ARGUMENT),
        ("apply", "-f", ".", "-n", ARGUMENT),
        ("up", "--fleet", ARGUMENT),
        ("up", "--empty", "--state", f"/proc/{ARGUMENT}"),
        ("migrate", "kueue", "-f", ARGUMENT),
        ("migrate", "kai", "-f", ARGUMENT),
        ("migrate", ARGUMENT),
        ("cel", "check", ARGUMENT),
        ("cel", "check", f"device.driver == '{ARGUMENT}'"),
        ("cel", "check", f"device.driver == '{ARGUMENT}'", "-o", "json"),
        ("cel", "eval", f"device.attributes['{ARGUMENT}'].x == '{ARGUMENT}'"),
        ("cel", "eval", f"device.attributes['{ARGUMENT}'].x == '{ARGUMENT}'", "-o", "json"),
        ("cel", "eval", "true", "--device", ARGUMENT),
        ("cel", "eval", "true", "-f", ARGUMENT),
        ("cel", "eval", "--cases", ARGUMENT),
        ("allocate", "--worlds", ARGUMENT),
        ("decide", "--scenarios", ARGUMENT),
        ("snapshot", "show", ARGUMENT),
        ("snapshot", "load", ARGUMENT),
        ("snapshot", "save", f"/proc/{ARGUMENT}/x"),
        ("snapshot", "save", "x", "--context", ARGUMENT),
        ("get", "pods", "--snapshot", ARGUMENT),
        ("scheduler", "--config", ARGUMENT),
        ("scheduler", "--context", ARGUMENT),
        ("doctor", "--snapshot", ARGUMENT),
        ("doctor", "--config", ARGUMENT),
        ("doctor", "--context", ARGUMENT),
        ("doctor", "--service-account", ARGUMENT, "--kubeconfig", "/nowhere"),
        ("install", "--dry-run", "-f", ARGUMENT),
        ("install", "--dry-run", "--set", ARGUMENT),
        ("install", "--dry-run", "--set", f"image.repository={ARGUMENT}"),
        (
            "install",
            "--dry-run",
            "--set",
            "image.repository=a",
            "--set",
            f"podAnnotations.a={json.dumps(ARGUMENT)}",
        ),
        ("install", "--dry-run", "--set", "image.repository=a", "--name", ARGUMENT),
        ("install", "--dry-run", "--set", "image.repository=a", "--namespace", ARGUMENT),
        ("upgrade", "--context", ARGUMENT),
        ("uninstall", "--context", ARGUMENT),
        ("dev", "status", "--dir", ARGUMENT),
        ("dev", "up", "--fleet", ARGUMENT, "--dir", ARGUMENT),
        ("dev", "up", "--kube-version", ARGUMENT),
        ("dev", ARGUMENT),
    ],
    ids=lambda item: " ".join(item).encode("unicode_escape").decode()[:40],
)
def test_an_argument_is_quoted_without_its_power(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    (tmp_path / "kubeconfig").write_text("{}", encoding="utf-8")
    done = running.inside(state, *arguments)
    harmless(done)
    assert done.code in (0, 1, 2)
    assert done.err or done.out


# What files hold


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Things to apply that are wrong, with what is wrong in their own words."""
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    yield "label", pod | {"metadata": {"name": "a", "labels": {"a": EVIL}}}
    yield "label name", pod | {"metadata": {"name": "a", "labels": {EVIL: "a"}}}
    yield "name", pod | {"metadata": {"name": EVIL}}
    yield "namespace", pod | {"metadata": {"name": "a", "namespace": EVIL}}
    yield (
        "annotation",
        pod | {"metadata": {"name": "a", "annotations": {"dovetail.dev/max-runtime": EVIL}}},
    )
    yield "kind", pod | {"kind": EVIL}
    yield "version", pod | {"apiVersion": EVIL}
    yield "field", pod | {EVIL: 1}
    yield "spec", pod | {"spec": EVIL}
    yield "selector", pod | {"spec": pod["spec"] | {"nodeSelector": {"a": EVIL}}}
    yield (
        "queue",
        {
            "apiVersion": "dovetail.dev/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": "q"},
            "spec": {"parent": EVIL, "resources": {EVIL: {"quota": 1}}},
        },
    )
    yield "list", {"apiVersion": "v1", "kind": f"{EVIL}List", "items": [EVIL]}


@pytest.mark.parametrize(
    "command",
    [
        ("apply", "-f"),
        ("migrate", "kueue", "-f"),
        ("migrate", "kai", "-f"),
        ("cel", "eval", "true", "-f"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    "tree", [tree for _, tree in documents()], ids=[name for name, _ in documents()]
)
def test_a_manifest_is_quoted_without_its_power(
    state: Path, tmp_path: Path, command: tuple[str, ...], tree: dict[str, Any]
) -> None:
    for content in (
        json.dumps(tree),
        json.dumps(tree, ensure_ascii=False),
        yaml.safe_dump(tree, allow_unicode=True),
    ):
        file = tmp_path / "given.yaml"
        file.write_text(content, encoding="utf-8")
        harmless(running.inside(state, *command, str(file)))
    harmless(running.inside(state, "get", "pods", "-A", "-o", "wide"))
    harmless(running.inside(state, "when"))


def test_raw_signs_in_text_that_is_no_yaml_are_not_repeated(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "given.yaml"
    for content in (EVIL, f"a: {EVIL}", f"&{EVIL} a: *{EVIL}", f"!{EVIL} a", f"a: b: {EVIL}"):
        file.write_text(content, encoding="utf-8")
        for command in (
            ("apply", "-f"),
            ("up", "--fleet"),
            ("scheduler", "--config"),
            ("when", "--kubeconfig"),
        ):
            done = running.inside(state, *command, str(file))
            harmless(done)
            assert done.code == 1


@pytest.mark.parametrize(
    "fleet",
    [
        {"name": EVIL, "pools": []},
        {"name": "x", EVIL: 1, "pools": []},
        {"name": "x", "driverVersion": EVIL, "pools": []},
        {
            "name": "x",
            "pools": [
                {
                    "name": EVIL,
                    "count": 1,
                    "gpu": EVIL,
                    "rack": EVIL,
                    "clique": EVIL,
                    "memory": EVIL,
                }
            ],
        },
        {"name": "x", "pools": [{"name": "a", "count": 1, "gpu": "L4", "labels": {EVIL: EVIL}}]},
        {"name": "x", "pools": [{"name": "a", "count": 1, "gpu": "L4", "machine": EVIL}]},
    ],
)
def test_a_fleet_is_quoted_without_its_power(
    state: Path, tmp_path: Path, fleet: dict[str, Any]
) -> None:
    """A cluster of another name runs already, so that even a sound fleet starts nothing."""
    file = tmp_path / "fleet.json"
    file.write_text(json.dumps(fleet), encoding="utf-8")
    done = running.inside(state, "up", "--fleet", str(file))
    harmless(done)
    assert done.code == 1


@pytest.mark.parametrize(
    "change",
    [
        {"schedulerNames": [EVIL]},
        {"schedulerNames": EVIL},
        {EVIL: 1},
        {"leaderElection": {"namespace": EVIL}},
        {"logging": {"level": EVIL}},
        {"apiVersion": EVIL},
    ],
)
def test_a_configuration_is_quoted_without_its_power(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    tree = {"apiVersion": "dovetail.dev/v1alpha1", "kind": "SchedulerConfiguration"} | change
    file, kubeconfig = tmp_path / "config.json", tmp_path / "kubeconfig"
    file.write_text(json.dumps(tree), encoding="utf-8")
    kubeconfig.write_text("{}", encoding="utf-8")
    done = running.inside(
        tmp_path, "scheduler", "--config", str(file), "--kubeconfig", str(kubeconfig)
    )
    harmless(done)
    assert done.code == 1


def kubeconfig_of(user: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    """A kubeconfig of one user of a server that is not there."""
    return {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1", **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def test_a_kubeconfig_and_what_its_plugin_says_are_quoted_without_their_power(
    tmp_path: Path,
) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_bytes(b"#!/bin/sh\nprintf '%s' '" + EVIL.encode() + b"' >&2\nexit 3\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    version = "client.authentication.k8s.io/v1"
    execs: list[dict[str, Any]] = [
        {"command": str(plugin), "apiVersion": version, "interactiveMode": "Never"},
        {"command": EVIL, "apiVersion": version, "interactiveMode": "Never", "installHint": EVIL},
        {"command": str(plugin), "apiVersion": EVIL, "interactiveMode": EVIL},
    ]
    given = [
        *(kubeconfig_of({"exec": item}) for item in execs),
        kubeconfig_of({"tokenFile": EVIL}),
        kubeconfig_of({"client-certificate": EVIL, "client-key": EVIL}),
        kubeconfig_of({}, server=f"http://{EVIL}/"),
        kubeconfig_of({}, **{"certificate-authority": EVIL, "server": "https://127.0.0.1:1"}),
        kubeconfig_of({}, **{"proxy-url": EVIL}),
        kubeconfig_of({}) | {"current-context": EVIL},
        kubeconfig_of({}) | {"users": EVIL},
        kubeconfig_of({}) | {"clusters": [{"name": EVIL}, {"name": EVIL}]},
    ]
    file = tmp_path / "kubeconfig"
    for tree in given:
        file.write_text(json.dumps(tree), encoding="utf-8")
        for command in (("get", "queues"), ("when",), ("doctor",)):
            done = running.inside(tmp_path / "state", *command, "--kubeconfig", str(file))
            harmless(done)
            assert done.code == 1, (tree, done)


# What is stored


def poisoned(state: Path, folder: Path) -> Path:
    """A saved cluster whose every name, label and annotation steers."""
    saved = folder / "sound"
    assert running.inside(state, "apply", *running.single()).code == 0
    assert running.inside(state, "snapshot", "save", str(saved)).code == 0
    manifest = snapshot_files.manifest_of(saved)
    documents: dict[registry.Kind, list[bytes]] = {kind: [] for kind in snapshot_format.KINDS}
    for item in snapshot_files.items(saved, manifest):
        tree = json.loads(bytes(item.document))
        _poison(tree)
        documents[item.kind].append(json.dumps(tree).encode())
    facts = snapshot_format.Facts(
        taken_at=manifest.taken_at, cluster=EVIL, resource_versions={}, server_version=EVIL
    )
    snapshot_files.write(folder / "poisoned", documents, facts)
    return folder / "poisoned"


def _poison(document: dict[str, Any]) -> None:
    document["metadata"]["name"] += EVIL
    if "nodeName" in (document.get("spec") or {}):
        document["spec"]["nodeName"] += EVIL
    for field in ("labels", "annotations"):
        result = document["metadata"].setdefault(field, {})
        result |= {name: f"{value}{EVIL}" for name, value in result.items()} | {EVIL: EVIL}
    for condition in (document.get("status") or {}).get("conditions") or ():
        condition |= {"message": EVIL, "reason": EVIL}


@pytest.mark.parametrize("form", output.FORMATS)
def test_what_is_stored_is_shown_without_its_power(state: Path, tmp_path: Path, form: str) -> None:
    place = str(poisoned(state, tmp_path))
    for resource, table in get.TABLES.items():
        wide = ("-A",) if table.is_namespaced else ()
        done = running.inside(state, "get", resource, "-o", form, *wide, "--snapshot", place)
        harmless(done)
        assert done.code == 0, done.err
        if form in ("json", "yaml"):
            read = json.loads(done.out) if form == "json" else running.yaml_tree(done.out)
            metadata = [
                item["metadata"] for item in read["items"] if "metadata" in item
            ]  # pools have none
            assert all(item["name"].endswith(EVIL) for item in metadata)
            assert all(item["labels"][EVIL] == EVIL for item in metadata)
    harmless(running.inside(state, "when", "--snapshot", place))
    harmless(running.inside(state, "when", "-o", "json", "--snapshot", place))
    saved = str(tmp_path / f"saved{ARGUMENT}")
    harmless(running.inside(state, "snapshot", "save", saved))
    harmless(running.inside(state, "snapshot", "show", place))
    harmless(running.inside(state, "doctor", "--snapshot", place))
    harmless(running.inside(state, "doctor", "--snapshot", place, "-o", "json"))


def test_lines_of_json_keep_their_meaning(tmp_path: Path) -> None:
    """Worlds, scenarios and cases come back under the names they were given."""
    lines = {
        ("allocate", "--worlds"): {
            "id": EVIL,
            "nodes": [{"metadata": {"name": EVIL}}],
            "claims": [],
        },
        ("decide", "--scenarios"): {
            "id": EVIL,
            "run": {"mode": "single"},
            "nodes": [{"name": "n"}],
        },
        ("cel", "eval", "--cases"): {"id": EVIL, "expression": "true", "device": {"driver": EVIL}},
    }
    file = tmp_path / "lines"
    for command, line in lines.items():
        for escapes in (True, False):
            file.write_text(json.dumps(line, ensure_ascii=escapes), encoding="utf-8")
            done = running.inside(tmp_path / "state", *command, str(file), "-o", "jsonl")
            harmless(done)
            assert json.loads(done.out)["id"] == EVIL
            harmless(running.inside(tmp_path / "state", *command, str(file)))


# A terminal


def test_on_a_terminal_only_our_own_colours_steer(state: Path, tmp_path: Path) -> None:
    place = str(poisoned(state, tmp_path))
    for arguments in (("get", "gpus"), ("get", "pods", "-A"), ("get", ARGUMENT)):
        with running.terminal(
            state, *arguments, "--snapshot", place, columns=300, TERM="xterm-256color"
        ) as screen:
            screen.ending()
        blanked = re.escape(slow_notice.READING) + r"\r +\r"  # of a machine that takes a moment
        shown = re.sub(rf"\r{blanked}", "", screen.text)
        assert raw_signs(shown.replace("\r\n", "\n")) == []
        assert ("\x1b[32m□" in screen.text) is (arguments == ("get", "gpus"))


def test_the_live_picture_shows_names_without_their_power(state: Path, tmp_path: Path) -> None:
    import io

    import rich.console

    from dovetail.cli.views import live_picture

    objects = saved_objects.read(poisoned(state, tmp_path)).objects
    drawn = io.StringIO()
    console = rich.console.Console(
        file=drawn, width=4_000, force_terminal=True, color_system="standard"
    )
    console.print(live_picture.drawing(objects, note=EVIL))
    assert raw_signs(drawn.getvalue()) == []
    assert "pwned" in drawn.getvalue()


# The boundary itself


def test_only_one_module_of_the_command_line_writes() -> None:
    """A command that wrote by itself could forget to escape."""
    folder = Path(dovetail.cli.__file__).parent
    writing: set[str] = set()
    for file in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="print")):
                    writing.add(file.name)
                case ast.Attribute(
                    value=ast.Name(id="click"), attr="echo" | "secho" | "echo_via_pager"
                ):
                    writing.add(file.name)
                case ast.Attribute(
                    value=ast.Attribute(value=ast.Name(id="sys")), attr="write" | "buffer"
                ):
                    writing.add(file.name)
    assert writing == set()


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", r"\xe9\u4e00"), ("utf-8", "é\u4e00")])
def test_signs_an_encoding_lacks_are_written_as_escapes(
    tmp_path: Path, encoding: str, shown: str
) -> None:
    file = tmp_path / "scenarios"
    file.write_text(json.dumps({"id": "é\u4e00", "run": {"mode": "single"}}), encoding="utf-8")
    done = running.outside(
        tmp_path, "decide", "--scenarios", str(file), PYTHONIOENCODING=encoding, PYTHONUTF8="0"
    )
    assert (done.code, done.err) == (0, "")
    assert done.lines[1].endswith(shown)


def test_escaped_json_means_the_same() -> None:
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x11000), 0x1F600, 0xE0001, 0x10FFFF]))
    text = json.dumps(every, ensure_ascii=False)
    shown = plaintext.escaped_json(text)
    assert json.loads(shown) == every
    assert shown.isprintable()
