"""What is handed over at each door of the command line: real files, mutated, and the commands that read them.

Given a `random.Random`; the same seed gives the same bytes and the same commands. Never judges how a command ends.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import io
import json
import random
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import click.testing
import msgspec
import yaml

from dovetail.cli import get
from dovetail.cli import main as command_line
from dovetail.files import state_directory
from dovetail.model import configuration
from dovetail.sim.fleet import fleet_spec
from tests.cli import embedded
from tests.fuzz import objects as fuzzed_objects
from tests.fuzz.findings import ROOT
from tests.generators import clusters, devices, expressions, mutations, worlds
from tests.scenarios import build
from tests.security import hostile

Tree = dict[str, Any]
SMALL_FLEET: Final = {
    "name": "x",
    "pools": [{"name": "a", "count": 1, "gpu": "A100-SXM4-80GB", "gpusPerNode": 1}],
}
# Texts that are wrong as a whole, whatever they stand for.
WHOLES: Final = (
    b"", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf{}", b"null", b"[]", b"{}", b"7", b'"a"',
    b"---", b"--- \n---\n", b"%",
    b"!!python/object/apply:os.system [true]", b"&a [*a]", b"a: &a [*a]", b"? {}",
    b"- - - -", b"{" * 3000, b"[" * 3000,
    b'{"a":' * 3000, b"- " * 3000, b"a: " * 3000, b"x: [" * 500, b"\x1f\x8b",
    b"\x1f\x8b\x08" + b"\x00" * 60, b"\n" * 5000,
    b"<<: 1", b"<<: [[]]", b"a: !!binary x", b"a: !!float x", b"a: .nan", b"a: -.inf",
    b"a: 1e400", b"a: " + b"9" * 5000,
    b'{"a":' + b"9" * 5000 + b"}", b"\xed\xa0\x80", b'{"\\ud800":"\\udfff"}',
    b"\xe2\x80\xa8", b"\x1b]0;x\x07", b"a\rb",
)  # fmt: skip
STATE_FILES: Final = (state_directory.SETUP, state_directory.JOURNAL)
_SOME_ROW: Final = (
    "INSERT OR IGNORE INTO objects (api_group, plural, namespace, name, revision, document) "
    "VALUES ('', 'configmaps', 'default', 'a', 1, x'7b7d')"
)
FAST_FOLDER: Final = "/dev/shm" if Path("/dev/shm").is_dir() else None
STEERING: Final = "\x1b]0;x\x07\x1b[31m\x9b2J\x7f\u202e\u2028\r"


# Bytes 18 and 19 of a SQLite file say how it is journalled; a database in memory can only be without a log beside it.
_MODES: Final = slice(18, 20)
_WITH_LOG: Final = b"\x02\x02"
_WITHOUT_LOG: Final = b"\x01\x01"


class Sources(NamedTuple):
    """The files of a small cluster and of a snapshot of it, when nothing was wrong."""

    state: dict[str, bytes]
    snapshot: dict[str, bytes]


class Place(NamedTuple):
    """Where a door's file lies, beside a state directory and a snapshot; `cluster` runs in the directory."""

    folder: Path
    file: Path
    state: Path
    saved: Path
    cluster: embedded.Embedded | None = None


class Door(NamedTuple):
    """A kind of file: how to make a broken one, and who reads it."""

    content: Callable[[random.Random], bytes]
    commands: Callable[[Place, random.Random], list[tuple[str, ...]]]
    lay: Callable[[Place, bytes, random.Random], None]
    prepared: Callable[[Path], contextlib.AbstractContextManager[Place]]


def warm(door: str) -> None:
    """What is made once and kept: sources, and a small cluster, which has ended when this returns."""
    DOORS[door].content(random.Random(0))
    _small_cluster()


# Broken files


def _bent(sources: list[Tree], rng: random.Random) -> Tree:
    """One of them, changed in a few places; some steer a terminal."""
    tree: Tree = msgspec.json.decode(msgspec.json.encode(rng.choice(sources)))
    roll = rng.random()
    if roll < 0.2:
        tree = mutations.mutated(tree, rng)
    elif roll < 0.5:
        tree = hostile.bent(tree, rng)
    elif roll < 0.95:
        for _ in range(rng.choice((1, 1, 2, 3))):
            _swap(tree, rng)
    if rng.random() < 0.1:
        _sprinkle(tree, rng)
    return tree


def _swap(tree: Tree, rng: random.Random) -> None:
    """One scalar becomes another of its type: what passes the schema and comes far."""
    places: list[tuple[Any, Any]] = []
    waiting: list[Any] = [tree]
    while waiting:
        holder = waiting.pop()
        for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(value, dict | list):
                waiting.append(value)
            elif not (holder is tree and key in ("apiVersion", "kind")):
                places.append((holder, key))
    if not places:
        return
    holder, key = rng.choice(places)
    match holder[key]:
        case bool():
            holder[key] = not holder[key]
        case int():
            holder[key] = rng.choice(
                [number for number in hostile.NUMBERS if isinstance(number, int)]
            )
        case float():
            holder[key] = rng.choice(hostile.NUMBERS)
        case str():
            other, place = rng.choice(places)
            holder[key] = str(other[place]) if rng.random() < 0.4 else rng.choice(hostile.TEXTS)


def _sprinkle(tree: Any, rng: random.Random) -> None:
    """Signs that steer, at the end of some texts."""
    for key, value in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
        if isinstance(value, str) and rng.random() < 0.3:
            tree[key] = value + STEERING
        elif isinstance(value, dict | list):
            _sprinkle(value, rng)


def _encoded(tree: Any, rng: random.Random) -> bytes:
    """As JSON or YAML, with or without escapes."""
    with contextlib.suppress(yaml.YAMLError, ValueError):
        if rng.random() < 0.3:
            flow = rng.choice((True, False, None))
            return yaml.dump(
                tree, Dumper=yaml.CSafeDumper, default_flow_style=flow, allow_unicode=True
            ).encode()
    escapes = rng.random() < 0.5
    return json.dumps(tree, ensure_ascii=escapes).encode("utf-8", "surrogatepass")


def _whole(sources: list[Tree], rng: random.Random) -> bytes:
    """A text of one or a few documents."""
    if rng.random() < 0.02:
        return rng.choice(WHOLES)
    documents = [
        _encoded(_bent(sources, rng), rng)
        for _ in range(1 if rng.random() < 0.8 else rng.choice((2, 3)))
    ]
    text = b"\n---\n".join(documents)
    if rng.random() < 0.35:
        text = hostile.garbled(text, rng)
    return text


def _lines(sources: list[Tree], rng: random.Random) -> bytes:
    """Lines of JSON, sometimes compressed, and then sometimes damaged."""
    if rng.random() < 0.02:
        return rng.choice(WHOLES)
    lines = [
        json.dumps(_bent(sources, rng), ensure_ascii=rng.random() < 0.5)
        for _ in range(rng.choice((1, 1, 1, 2)))
    ]
    text = "\n".join(lines).encode("utf-8", "surrogatepass")
    if rng.random() < 0.35:
        text = hostile.garbled(text, rng)
    if rng.random() < 0.15:
        text = gzip.compress(text, mtime=0)
        for _ in range(rng.choice((0, 1, 1, 3))):
            text = hostile.garbled(text, rng)
    return text


def _dumps(rng: random.Random) -> bytes:
    """Objects in any form a person may send them: lists, lines, documents, compressed, in an archive."""
    if rng.random() < 0.02:
        return rng.choice(WHOLES)
    sources = _dumped_objects()
    trees = [_bent(sources, rng) for _ in range(rng.choice((1, 2, 3, 6)))]
    trees += rng.sample(sources, k=rng.choice((0, 1, 4)))
    kind = rng.choice(("List", "List", "PodList", "ResourceSliceList", "SecretList"))
    listed = {"apiVersion": "v1", "kind": kind, "items": trees, "metadata": {}}
    match rng.choice(("list", "documents", "lines", "array")):
        case "list":
            text = _encoded(listed, rng)
        case "documents":
            text = b"\n---\n".join(_encoded(tree, rng) for tree in trees)
        case "lines":
            lines = [json.dumps(tree, ensure_ascii=True).encode() for tree in trees]
            text = b"\n".join(lines)
        case _:
            text = _encoded(trees, rng)
    if rng.random() < 0.35:
        text = hostile.garbled(text, rng)
    if rng.random() < 0.1:
        text = _archived(text)
    if rng.random() < 0.15:
        text = gzip.compress(text, mtime=0)
        for _ in range(rng.choice((0, 1, 1, 3))):
            text = hostile.garbled(text, rng)
    return text


def _archived(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("dump/objects.yaml")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


# Real files


@functools.cache
def _dumped_objects() -> list[Tree]:
    """The objects of a small cluster, manifests, and objects of older versions."""
    saved = [msgspec.json.decode(text) for text in _small_cluster().snapshot.values()]
    trees = [tree for listed in saved for tree in listed.get("items", ())]
    trees = [tree for tree in trees if len(msgspec.json.encode(tree)) < 20_000]
    older = [
        tree | {"apiVersion": f"resource.k8s.io/{version}"}
        for tree in trees
        for version in ("v1alpha3", "v1beta1", "v1beta2")
        if tree["apiVersion"] == "resource.k8s.io/v1"
    ]
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "a-0"},
        "message": "x",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    return [*trees, *older, event, *_manifests()]


@functools.cache
def _configurations() -> list[Tree]:
    default: Tree = msgspec.to_builtins(configuration.SchedulerConfiguration())
    head = {"apiVersion": configuration.API_VERSION, "kind": configuration.KIND}
    return [default | head, head, head | {"schedulerNames": ["a", "b"]}]


@functools.cache
def _manifests() -> list[Tree]:
    trees = [tree for tree in fuzzed_objects.sources() if len(msgspec.json.encode(tree)) < 20_000]
    ours = "dovetail.dev/v1alpha1"
    share = {"quota": 2, "limit": "4", "weight": 3}
    for number in range(5):
        parent = {"parent": f"q{number - 1}"} if number else {}
        spec = parent | {
            "priority": number,
            "resources": {"gpu": share, "cpu": share},
            "maxRuntimeSeconds": 3600,
        }
        spec |= {
            "namespaceSelector": {"matchLabels": {"team": "a"}},
            "aliases": [f"alias-{number}"],
        }
        trees.append(
            {"apiVersion": ours, "kind": "Queue", "metadata": {"name": f"q{number}"}, "spec": spec}
        )
        levels = [{"nodeLabel": "zone"}, {"nodeLabel": "kubernetes.io/hostname"}]
        spec = {"levels": levels}
        trees.append(
            {
                "apiVersion": ours,
                "kind": "Topology",
                "metadata": {"name": f"t{number}"},
                "spec": spec,
            }
        )
        labels = {
            "dovetail.dev/queue": "q3",
            "dovetail.dev/gang": "g",
            "dovetail.dev/gang-min": "2",
        }
        notes = {"dovetail.dev/max-runtime": "1h", "dovetail.dev/expected-runtime": "10m"}
        metadata = {"name": f"p{number}", "labels": labels, "annotations": notes}
        containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
        trees.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": metadata,
                "spec": {"containers": containers},
            }
        )
    return trees


@functools.cache
def _fleets() -> list[Tree]:
    full = {
        "name": "b",
        "count": 2,
        "gpu": "H100-SXM5-80GB",
        "gpusPerNode": 2,
        "mig": True,
        "rack": "r",
    }
    full |= {
        "nodesPerRack": 1,
        "clique": "auto",
        "machine": "DGX-H100",
        "labels": {"a": "b"},
        "cpu": "64",
    }
    full |= {"memory": "512Gi"}
    versions = {"driverVersion": "580.126.20", "cudaVersion": "13.0"}
    return [
        SMALL_FLEET,
        {"name": "y", "pools": [full]},
        {**SMALL_FLEET, **versions, "pools": [full, full | {"name": "c"}]},
    ]


@functools.cache
def _kubeconfigs() -> list[Tree]:
    plugin = {"command": "no-such-plugin", "args": ["a"], "env": [{"name": "A", "value": "b"}]}
    plugin |= {
        "apiVersion": "client.authentication.k8s.io/v1",
        "interactiveMode": "Never",
        "installHint": "get it",
    }
    users: list[Tree] = [
        {"token": "t"},
        {"exec": plugin},
        {
            "client-certificate-data": "LS0t",
            "client-key-data": "LS0t",
            "as": "b",
            "as-groups": ["g"],
        },
        {"username": "u", "password": "p", "as-user-extra": {"a": ["b"]}},
        {"tokenFile": "/nowhere", "client-certificate": "/nowhere", "client-key": "/nowhere"},
    ]
    server = {
        "server": "https://127.0.0.1:1/p",
        "certificate-authority-data": "LS0t",
        "tls-server-name": "x",
    }
    clusters_: list[Tree] = [
        {"server": "http://127.0.0.1:1"},
        server,
        {"server": "https://[::1]:1", "proxy-url": "http://x:1"},
    ]
    return [
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
            "current-context": "x",
        }
        for user in users
        for cluster in clusters_
    ]


@functools.cache
def _rivals(name: str) -> list[Tree]:
    text = (ROOT / "tests" / "model" / "rivals" / f"{name}.yaml").read_text(encoding="utf-8")
    result = [tree for tree in yaml.safe_load_all(text) if tree]
    return [{"apiVersion": "v1", "kind": "List", "items": result}, *result]


@functools.cache
def _scenarios() -> list[Tree]:
    pods = [
        build.waiting(gpu=1),
        build.running(gpu=1),
        build.waiting(gpu_fraction=0.5),
        build.waiting(cpu=2),
    ]
    tree = {"parent": "top", "limit": {"gpu": 4}, "over_quota_weight": {"gpu": 2}}
    queues = [build.queue("top"), build.queue("q0", **tree), build.queue("q1", **tree, priority=3)]
    claims = [
        {"name": "c", "device_class": "d", "count": 1, "allocated": [{"pool": "p", "device": "a"}]}
    ]
    slices = [{"name": "s", "node": "n0", "pool": "p", "devices": ["a", "b"]}]
    wish = {"topology": "t", "required": "zone", "preferred": "zone"}
    more: Tree = {
        "queues": queues,
        "topologies": [{"name": "t", "levels": ["zone", "host"]}],
        "device_classes": [{"name": "d", "gpu": True}],
        "device_slices": slices,
        "claims": claims,
        "nodes": [
            build.node("n0", labels={"zone": "a"}),
            build.node("n1", gpus=4, mig="mixed", labels={"zone": "b"}),
        ],
        "settings": {"usage_weight_k": 1, "stale_grace_s": 5, "consolidation_max_victims": 3},
    }
    groups = [{"name": "default", "min": 2, "topology": wish}]
    jobs = [
        build.job("a", *pods, groups=groups, topology=wish, started_s_ago=10, may_evict_after_s=2),
        build.job("b", *pods[1:], queue="q1", priority=100),
        build.job("c", pods[0] | {"claims": ["c"]}),
    ]
    cycles = {"cycles_until": 1, "cycles_stable": 1}
    result = [
        build.document(*jobs[:count], mode="cycles", run=cycles, **more) for count in (1, 2, 3)
    ]
    return [*result, *(build.document(job, **more) for job in jobs)]


@functools.cache
def _worlds() -> list[Tree]:
    rng = random.Random(5)
    result = [
        clusters.world(rng, number) if number % 2 else {"id": number, **worlds.world(rng)}
        for number in range(60)
    ]
    return [world for world in result if len(msgspec.json.encode(world)) < 12_000]


@functools.cache
def _cases() -> list[Tree]:
    rng = random.Random(7)
    texts = [str(expressions.expression(rng)) for _ in range(80)]
    return [
        {"id": number, "expression": text, "device": devices.device(rng)}
        for number, text in enumerate(texts)
    ]


@functools.cache
def _values() -> list[Tree]:
    tree: Tree = yaml.safe_load(
        (ROOT / "deploy" / "chart" / "values.yaml").read_text(encoding="utf-8")
    )
    return [tree | {"image": {"repository": "a"}}, {"image": {"repository": "a"}, "replicas": 2}]


# Places


def _invoked(state: Path, *arguments: str) -> None:
    runner = click.testing.CliRunner(env={"DOVETAIL_STATE": str(state)})
    done = runner.invoke(command_line.cli, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output


def _small_fleet() -> fleet_spec.Fleet:
    return fleet_spec.read(json.dumps(SMALL_FLEET), file="small fleet")


@functools.cache
def _small_cluster() -> Sources:
    """The state of a small cluster with something of most kinds, and a snapshot of it."""
    with tempfile.TemporaryDirectory(prefix="dovetail-doors-", dir=FAST_FOLDER) as folder:
        state, saved = Path(folder, "state"), Path(folder, "saved")
        ours = [tree for tree in _manifests() if tree["kind"] in ("Queue", "Topology")]
        pods = [tree for tree in _manifests() if tree["metadata"].get("name") in ("p0", "p1")]
        listed = Path(folder, "list.json")
        listed.write_bytes(
            msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": [*ours, *pods]})
        )
        with embedded.running(state, _small_fleet()):
            _invoked(state, "apply", "-f", str(listed))
            _invoked(state, "apply", "-f", str(ROOT / "examples" / "one-gpu.yaml"))
            _invoked(state, "snapshot", "save", str(saved))
        return Sources(
            {name: (state / name).read_bytes() for name in STATE_FILES},
            {item.name: item.read_bytes() for item in saved.iterdir()},
        )


@contextlib.contextmanager
def _prepared(folder: Path) -> Iterator[Place]:
    """A snapshot, and an empty state directory."""
    place = Place(folder, folder / "given", folder / "state", folder / "saved")
    for directory in (place.state, place.saved):
        directory.mkdir(mode=0o700)
    _restore_snapshot(place)
    yield place


@contextlib.contextmanager
def _prepared_cluster(folder: Path) -> Iterator[Place]:
    """The same beside a cluster that runs in a thread of this process until the end."""
    with _prepared(folder) as place, embedded.running(place.state, _small_fleet()) as cluster:
        yield place._replace(cluster=cluster)


def _restore_snapshot(place: Place) -> None:
    for name, content in _small_cluster().snapshot.items():
        (place.saved / name).write_bytes(content)


def _lay_file(place: Place, content: bytes, rng: random.Random) -> None:
    place.file.write_bytes(content)


def _lay_beside_cluster(place: Place, content: bytes, rng: random.Random) -> None:
    assert place.cluster is not None
    place.cluster.reset()
    place.file.write_bytes(content)


def _lay_state(place: Place, content: bytes, rng: random.Random) -> None:
    """One file of a state directory instead of its own."""
    shutil.rmtree(place.state)
    place.state.mkdir(mode=0o700)
    name, _, rest = content.partition(b"\n")
    laid = name.decode(errors="replace")
    if laid not in STATE_FILES:
        laid = state_directory.JOURNAL
    for file, sound in _small_cluster().state.items():
        (place.state / file).write_bytes(rest if file == laid else sound)


def _lay_snapshot(place: Place, content: bytes, rng: random.Random) -> None:
    """One file of a snapshot instead of its own; mostly the manifest is made to fit."""
    shutil.rmtree(place.saved)
    place.saved.mkdir(mode=0o700)
    _restore_snapshot(place)
    name, _, rest = content.partition(b"\n")
    file = name.decode(errors="replace")
    sound = _small_cluster().snapshot
    if file not in sound:
        file = "manifest.json"
    (place.saved / file).write_bytes(rest)
    if file == "manifest.json" or rng.random() < 0.05:
        return
    manifest = msgspec.json.decode(sound["manifest.json"])
    count = rest.count(b'"apiVersion"')
    with contextlib.suppress(
        msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError, KeyError
    ):
        count = len(msgspec.json.decode(rest)["items"])
    for entry in manifest["files"]:
        if entry["name"] == file:
            entry |= {
                "sha256": hashlib.sha256(rest).hexdigest(),
                "sizeBytes": len(rest),
                "count": count,
            }
    (place.saved / "manifest.json").write_bytes(msgspec.json.encode(manifest))


def _snapshot_content(rng: random.Random) -> bytes:
    """The name of a file of a snapshot, and what it is to hold."""
    sums = _small_cluster().snapshot
    name = rng.choice(sorted(sums))
    tree = msgspec.json.decode(sums[name])
    roll = rng.random()
    if roll < 0.8:
        items = tree.get("items")
        for _ in range(rng.choice((1, 1, 2, 4))):
            tree = (
                hostile.bent(rng.choice(items), rng) and tree if items else hostile.bent(tree, rng)
            )
        if rng.random() < 0.1:
            _sprinkle(tree, rng)
    text = json.dumps(tree, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if roll > 0.6:
        text = hostile.garbled(text, rng)
    return name.encode() + b"\n" + text


def _state_content(rng: random.Random) -> bytes:
    """The name of a file of a state directory, and what it is to hold."""
    if rng.random() < 0.15:
        setup = msgspec.json.decode(_small_cluster().state[state_directory.SETUP])
        text = _encoded(_bent([setup], rng), rng)
        if rng.random() < 0.35:
            text = hostile.garbled(text, rng)
        return state_directory.SETUP.encode() + b"\n" + text
    return state_directory.JOURNAL.encode() + b"\n" + _journal(rng)


def _journal(rng: random.Random) -> bytes:
    """A journal with broken documents, values of other types, another format, or broken bytes."""
    if rng.random() < 0.03:
        return rng.choice(WHOLES)
    sound = _small_cluster().state[state_directory.JOURNAL]
    assert sound[_MODES] == _WITH_LOG
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        database.deserialize(sound[: _MODES.start] + _WITHOUT_LOG + sound[_MODES.stop :])
        for _ in range(rng.choice((0, 1, 1, 1, 2, 4))):
            _damage_row(database, rng)
        if rng.random() < 0.1:
            version = rng.choice((-1, 0, 1, 2, 2**31 - 1))
            database.execute(f"PRAGMA user_version = {version}")
        content = database.serialize()
    content = content[: _MODES.start] + _WITH_LOG + content[_MODES.stop :]
    return _damaged_bytes(content, rng) if rng.random() < 0.3 else content


def _damage_row(database: sqlite3.Connection, rng: random.Random) -> None:
    numbers = [number for (number,) in database.execute("SELECT rowid FROM objects ORDER BY rowid")]
    if not numbers:
        return
    number = rng.choice(numbers)
    roll = rng.random()
    if roll < 0.6:
        query = "SELECT document FROM objects WHERE rowid = ?"
        [document] = database.execute(query, (number,)).fetchone()
        _set(database, "document", _damaged_document(document, rng), number)
    elif roll < 0.7:
        column = rng.choice(("api_group", "plural", "namespace", "name", "revision", "document"))
        value = rng.choice((7, 0.5, b"\xff", "", "x", "\x1b[31m", "X" * 5000))
        _set(database, column, value, number)
    elif roll < 0.8:
        database.execute("UPDATE meta SET value = ?", (rng.choice((-1, 0, 0.5, "x", 2**62)),))
    elif roll < 0.9:
        database.execute("DELETE FROM objects WHERE rowid = ?", (number,))
    else:
        table = rng.choice(("objects", "meta"))
        statement = rng.choice(("DELETE FROM {}", "ALTER TABLE {} ADD COLUMN more TEXT"))
        with contextlib.suppress(sqlite3.OperationalError):  # the column was added before
            database.execute(statement.format(table))
        if table == "objects":
            database.execute(_SOME_ROW)


def _set(database: sqlite3.Connection, column: str, value: Any, number: int) -> None:
    with contextlib.suppress(sqlite3.IntegrityError):  # another row has this name
        database.execute(f"UPDATE objects SET {column} = ? WHERE rowid = ?", (value, number))


def _damaged_document(document: Any, rng: random.Random) -> bytes:
    if not isinstance(document, bytes):
        return b"{}"
    tree: Any = None
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        tree = msgspec.json.decode(document)
    if tree and isinstance(tree, dict) and rng.random() < 0.7:
        tree = _bent([tree], rng)
        return json.dumps(tree, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    return hostile.garbled(document, rng)


def _damaged_bytes(content: bytes, rng: random.Random) -> bytes:
    """Bytes overwritten, cut off, or a page moved, mostly in the pages that SQLite reads first."""
    damaged = bytearray(content)
    for _ in range(rng.choice((1, 1, 3, 20))):
        end = len(damaged) if rng.random() < 0.7 else min(200, len(damaged))
        start = rng.randrange(max(1, end))
        match rng.randrange(4):
            case 0:
                damaged[start : start + 1] = rng.randbytes(1)
            case 1:
                damaged[start : start + 64] = rng.randbytes(64)
            case 2:
                page = start // 4096 * 4096
                other = rng.randrange(max(1, len(damaged))) // 4096 * 4096
                damaged[page : page + 4096] = damaged[other : other + 4096]
            case _:
                del damaged[len(damaged) - rng.randrange(1, 5000) :]
    return bytes(damaged)


# Commands


def _read_cluster(rng: random.Random) -> tuple[str, ...]:
    if rng.random() < 0.2:
        return ("when", *rng.choice(((), ("-o", "json"))))
    resource = rng.choice(sorted(get.TABLES))
    everywhere = ("-A",) if get.TABLES[resource].is_namespaced else ()
    return (
        "get",
        resource,
        *everywhere,
        "-o",
        rng.choice(("table", "wide", "json", "yaml", "name")),
    )


def _apply(place: Place, rng: random.Random) -> list[tuple[str, ...]]:
    form = ("-o", rng.choice(("table", "json", "yaml", "name")))
    roll = rng.random()
    if roll < 0.4:
        return [("apply", "--dry-run=client", "-f", str(place.file), *form)]
    if roll < 0.65:
        return [("apply", "--dry-run", "-f", str(place.file), *form)]
    return [("apply", "-f", str(place.file), *form), _read_cluster(rng)]


def _configure(place: Place, rng: random.Random) -> list[tuple[str, ...]]:
    file = str(place.file)
    nowhere = str(place.folder / "nowhere")
    commands = [
        ("when", "--config", file),
        ("doctor", "--config", file, "--snapshot", str(place.saved)),
        ("scheduler", "--config", file, "--kubeconfig", nowhere),
    ]
    return [rng.choice(commands)]


def _read_snapshot(place: Place, rng: random.Random) -> list[tuple[str, ...]]:
    saved = str(place.saved)
    commands = [
        (*_read_cluster(rng), "--snapshot", saved),
        (*_read_cluster(rng), "--snapshot", saved),
        ("when", "--snapshot", saved),
        ("doctor", "--snapshot", saved, *rng.choice(((), ("-o", "json"), ("--strict",)))),
        ("snapshot", "show", saved, *rng.choice(((), ("-o", "json")))),
        ("load-snapshot", saved),
        ("cel", "eval", "device.driver == 'gpu.nvidia.com'", "--snapshot", saved),
    ]
    return [rng.choice(commands)]


def _read_dump(place: Place, rng: random.Random) -> list[tuple[str, ...]]:
    file = str(place.file)
    words = ("events", "deployments", "namespaces", "nodes", "workloads", "nonsense")
    commands = [
        (*_read_cluster(rng), "--snapshot", file),
        (*_read_cluster(rng), "--snapshot", file),
        ("get", rng.choice(words), "-A", "--snapshot", file),
        ("describe", rng.choice(("pods", "nodes", "claims", "events")), "--snapshot", file),
        ("when", "--snapshot", file),
        (
            "doctor",
            "--snapshot",
            file,
        ),  # as JSON, findings are data: an unhealthy cluster adds no words
        ("snapshot", "show", file, *rng.choice(((), ("-o", "json")))),
        ("cel", "eval", "device.driver == 'gpu.nvidia.com'", "--snapshot", file),
    ]
    return [rng.choice(commands)]


def _read_state(place: Place, rng: random.Random) -> list[tuple[str, ...]]:
    """Mostly a start of the process, and a look at what it would serve; sometimes commands while none runs."""
    if rng.random() < 0.1:
        return [rng.choice((_read_cluster(rng), ("down",)))]
    copy = str(place.folder / "copy")
    shutil.rmtree(copy, ignore_errors=True)
    return [("open-state", copy), (*_read_cluster(rng), "--snapshot", copy)]


def _one(*words: str) -> Callable[[Place, random.Random], list[tuple[str, ...]]]:
    """A command that takes the file last."""
    return lambda place, rng: [(*words, str(place.file))]


def _with_form(*words: str) -> Callable[[Place, random.Random], list[tuple[str, ...]]]:
    return lambda place, rng: [(*words, str(place.file), "-o", rng.choice(("table", "jsonl")))]


def _migrate(scheduler: str) -> Callable[[Place, random.Random], list[tuple[str, ...]]]:
    return lambda place, rng: [
        ("migrate", scheduler, "-f", str(place.file), "-o", rng.choice(("yaml", "json")))
    ]


def _install(place: Place, rng: random.Random) -> list[tuple[str, ...]]:
    form = ("-o", rng.choice(("yaml", "json")))
    return [("install", "--dry-run", *form, "-f", str(place.file))]


def _text(sources: Callable[[], list[Tree]]) -> Callable[[random.Random], bytes]:
    return lambda rng: _whole(sources(), rng)


def _line(sources: Callable[[], list[Tree]]) -> Callable[[random.Random], bytes]:
    return lambda rng: _lines(sources(), rng)


DOORS: Final[dict[str, Door]] = {
    "configuration": Door(_text(_configurations), _configure, _lay_file, _prepared),
    "apply": Door(_text(_manifests), _apply, _lay_beside_cluster, _prepared_cluster),
    "fleet": Door(_text(_fleets), _one("build-fleet"), _lay_file, _prepared),
    "kubeconfig": Door(_text(_kubeconfigs), _one("load-kubeconfig"), _lay_file, _prepared),
    "kueue": Door(_text(lambda: _rivals("kueue")), _migrate("kueue"), _lay_file, _prepared),
    "kai": Door(_text(lambda: _rivals("kai")), _migrate("kai"), _lay_file, _prepared),
    "scenarios": Door(_line(_scenarios), _with_form("decide", "--scenarios"), _lay_file, _prepared),
    "worlds": Door(_line(_worlds), _with_form("allocate", "--worlds"), _lay_file, _prepared),
    "cases": Door(_line(_cases), _one("cel", "eval", "--cases"), _lay_file, _prepared),
    "values": Door(_text(_values), _install, _lay_file, _prepared),
    "dumps": Door(_dumps, _read_dump, _lay_file, _prepared),
    "snapshots": Door(_snapshot_content, _read_snapshot, _lay_snapshot, _prepared),
    "state": Door(_state_content, _read_state, _lay_state, _prepared),
}
