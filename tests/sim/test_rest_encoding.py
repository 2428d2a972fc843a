"""Documents on the wire: protobuf bodies, printed values, certificates, and the columns of our own kinds."""

from __future__ import annotations

import base64
import datetime
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest

from dovetail.install import chart
from dovetail.kubetypes import json_paths
from dovetail.manifest import yaml_text
from dovetail.ports import failures
from dovetail.sim.rest import loopback_certificate
from dovetail.sim.rest.encoding import content_types, protobuf_bodies
from dovetail.sim.rest.encoding.content_types import Form
from dovetail.sim.rest.patching import field_owners, patches
from dovetail.sim.rest.printing import printed_values
from dovetail.sim.server import builtin_kinds, served_kinds

Tree = dict[str, Any]
NOW = datetime.datetime(2026, 11, 17, 12, 0, tzinfo=datetime.UTC)


# Protobuf


def number(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def text(field: int, value: str | bytes) -> bytes:
    content = value if isinstance(value, bytes) else value.encode()
    return number(field << 3 | 2) + number(len(content)) + content


def integer(field: int, value: int) -> bytes:
    return number(field << 3) + number(value)


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\x00" + text(1, text(1, api_version) + text(2, kind)) + text(2, raw)


def test_a_deployment_is_read_with_its_zero_replicas_and_without_empty_fields() -> None:
    labels = text(11, text(1, "app") + text(2, "web"))
    metadata = text(1, text(1, "web") + text(3, "") + labels + text(8, b""))
    port = text(6, text(1, "") + integer(2, 0) + integer(3, 80))
    container = text(2, text(1, "c") + text(2, "nginx") + port + text(8, b""))
    volume = text(1, text(1, "v") + text(2, text(2, b"")))  # an emptyDir without any field
    template = text(3, text(2, volume + container))
    surge = text(2, integer(1, 1) + integer(2, 0) + text(3, "25%"))
    strategy = text(4, text(1, "") + text(2, surge))
    spec = text(2, integer(1, 0) + template + strategy + integer(5, 0))
    tree = protobuf_bodies.decoded(envelope("apps/v1", "Deployment", metadata + spec))
    assert tree == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "replicas": 0,
            "template": {
                "spec": {
                    "volumes": [{"name": "v", "emptyDir": {}}],
                    "containers": [
                        {"name": "c", "image": "nginx", "ports": [{"containerPort": 80}]}
                    ],
                }
            },
            "strategy": {"rollingUpdate": {"maxSurge": "25%"}},
        },
    }


def test_quantities_bytes_and_options_are_read() -> None:
    hard = text(1, text(1, "pods") + text(2, text(1, "3")))
    quota = protobuf_bodies.decoded(envelope("v1", "ResourceQuota", text(2, hard)))
    assert quota["spec"] == {"hard": {"pods": "3"}}
    data = text(2, text(1, "a") + text(2, b"\x00b"))
    secret = protobuf_bodies.decoded(envelope("v1", "Secret", data))
    assert base64.b64decode(secret["data"]["a"]) == b"\x00b"
    options = integer(1, 0) + text(2, text(1, "some-uid"))
    deletion = protobuf_bodies.decoded(envelope("policy/v1", "DeleteOptions", options))
    assert deletion["gracePeriodSeconds"] == 0
    assert deletion["preconditions"] == {"uid": "some-uid"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"k8s\x00\xff",
        envelope("v1", "Namespace", b"\x0a\xff"),
        envelope("v1", "Unheard", b""),
        envelope("v1", "Namespace", text(1, b"\x0a\x02\xff\xfe")),
    ],
)
def test_what_cannot_be_read_is_refused(body: bytes) -> None:
    with pytest.raises(failures.Refused):
        protobuf_bodies.decoded(body)


# Content types


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", Form.OBJECT),
        ("*/*", Form.OBJECT),
        ("application/vnd.kubernetes.protobuf,application/json", Form.OBJECT),
        ("application/vnd.kubernetes.protobuf", Form.PROTOBUF),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Form.TABLE),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Form.OBJECT),
        ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", Form.METADATA),
    ],
)
def test_the_first_served_form_is_chosen(accept: str, form: Form) -> None:
    assert content_types.form_of(accept) is form


def test_a_form_that_is_not_served_is_not_acceptable() -> None:
    with pytest.raises(failures.Refused, match="only the following media types are accepted"):
        content_types.form_of("text/html")


# Printed values


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (12_000, "3h20m"),
        (28_800, "8h"),
        (172_799, "47h"),
        (180_000, "2d2h"),
        (691_200, "8d"),
        (63_072_000, "2y"),
        (70_000_000, "2y80d"),
        (-5, "<invalid>"),
    ],
)
def test_a_duration_is_shown_as_kubectl_shows_it(seconds: int, shown: str) -> None:
    assert printed_values.human_duration(seconds) == shown


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".a.b", [1]),
        (".list[0].x", ["p"]),
        (".list[-1:].x", ["q"]),
        (".list[*].x", ["p", "q"]),
        ('.list[?(@.t=="two")].x', ["q"]),
        (".missing.b", []),
        (".a[", []),
        (".dotted\\.name", ["d"]),
    ],
)
def test_a_json_path_selects(path: str, expected: list[Any]) -> None:
    items = [{"t": "one", "x": "p"}, {"t": "two", "x": "q"}]
    tree = {"a": {"b": 1}, "list": items, "dotted.name": "d"}
    selected = json_paths.values(path, tree)
    assert selected == expected


# Patches


def test_a_patch_may_replace_or_delete_a_struct() -> None:
    tree = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    kept = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert patches.strategic(tree, kept) == {"spec": {"strategy": {"type": "Recreate"}}}
    replaced = {"spec": {"strategy": {"$patch": "replace", "type": "Recreate"}}}
    assert patches.strategic(tree, replaced) == {"spec": {"strategy": {"type": "Recreate"}}}
    assert patches.strategic(tree, {"spec": {"strategy": None}}) == {"spec": {}}


def test_an_item_without_its_merge_key_is_refused() -> None:
    tree = {"containers": [{"name": "a"}]}
    with pytest.raises(failures.Refused, match="does not contain declared merge key: name"):
        patches.strategic(tree, {"containers": [{"image": "x"}]})


def test_a_dropped_item_leaves_what_others_set_in_it() -> None:
    one, two = (field_owners.Manager(name, field_owners.APPLY, "v1") for name in ("one", "two"))

    def wanted(**fields: str) -> Tree:
        return {"spec": {"containers": [{"name": "a", **fields}]}}

    live = field_owners.applied(None, wanted(image="x"), one, force=False, now="t")
    live = field_owners.applied(live, wanted(command="y"), two, force=False, now="t")
    live = field_owners.applied(live, {"spec": {}}, one, force=False, now="t")
    assert live["spec"]["containers"] == [{"name": "a", "command": "y"}]


def test_a_dropped_item_leaves_the_items_of_others() -> None:
    manager = field_owners.Manager("one", field_owners.APPLY, "v1")

    def wanted(*names: str) -> Tree:
        return {"spec": {"containers": [{"name": name, "image": name} for name in names]}}

    live = field_owners.applied(None, wanted("a", "b"), manager, force=False, now="t")
    other = field_owners.Manager("two", field_owners.APPLY, "v1")
    live = field_owners.applied(live, wanted("c"), other, force=False, now="t")
    live = field_owners.applied(live, wanted("b"), manager, force=False, now="t")
    assert [item["name"] for item in live["spec"]["containers"]] == ["b", "c"]


# The certificate


def test_a_certificate_is_kept_until_it_ends_soon(tmp_path: Path) -> None:
    files = loopback_certificate.kept_in(tmp_path, NOW)
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600
    first = files.certificate.read_bytes()
    later = NOW + datetime.timedelta(days=3_000)
    assert loopback_certificate.kept_in(tmp_path, later).certificate.read_bytes() == first
    latest = NOW + datetime.timedelta(days=3_640)
    assert loopback_certificate.kept_in(tmp_path, latest).certificate.read_bytes() != first
    files.key.write_text("broken")
    loopback_certificate.kept_in(tmp_path, latest).context()


def test_the_strictest_client_trusts_the_certificate(tmp_path: Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    files = loopback_certificate.kept_in(tmp_path, now)
    trust = ssl.create_default_context(cafile=str(files.certificate))
    trust.verify_flags |= ssl.VERIFY_X509_STRICT
    sent_in, sent_out = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trust.wrap_bio(sent_in, sent_out, server_hostname="127.0.0.1")
    server = files.context().wrap_bio(sent_out, sent_in, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    [alternatives] = [client.getpeercert()]
    assert alternatives is not None
    assert ("IP Address", "127.0.0.1") in alternatives["subjectAltName"]


# Our own kinds


def test_our_kinds_show_the_columns_of_their_definitions() -> None:
    definitions = {}
    for path in sorted(chart.home().glob("templates/*.yaml")):
        content = path.read_text()
        if "additionalPrinterColumns" in content:
            plain = "\n".join(line for line in content.splitlines() if "{{" not in line)
            [document] = [document.tree for document in yaml_text.documents(plain)]
            resource = served_kinds.resource_of(document)
            assert resource is not None
            definitions[resource.kind.name] = resource
    assert set(definitions) == {"Queue", "Topology", "Intent", "StackUpgrade"}
    for row in builtin_kinds.TABLE:
        if row.kind.name in definitions and row.kind.api_version.startswith("dovetail.dev/"):
            stated = definitions[row.kind.name]
            shown = [column[:4] for column in row.columns]
            assert shown == [column[:4] for column in stated.columns]
            assert (row.has_status, row.categories) == (stated.has_status, stated.categories)
            assert row.short_names == stated.short_names
