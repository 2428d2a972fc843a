"""Broken and hostile files in every command: a message and an exit code, never a traceback."""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dovetail.cli import main
from dovetail.files import bounded_files
from dovetail.manifest import yaml_text
from dovetail.model.queue import queue_tree
from dovetail.tables import text
from tests.cli import running

LINE_DOORS = (("decide", "--scenarios"), ("allocate", "--worlds"), ("cel", "eval", "--cases"))
LINE_DOOR_NAMES = ("decide", "allocate", "cel")
SCENARIO: dict[str, Any] = {
    "id": "s",
    "run": {"mode": "cycles"},
    "nodes": [{"name": "n", "gpu": {"count": 1}}],
}


def refused(done: running.Run, *words: str) -> None:
    """Ended with exit code 1, nothing on stdout, and a message that says this."""
    assert (done.code, done.out) == (1, ""), done
    assert done.err.startswith("error: "), done.err
    for word in words:
        assert word in done.err, done.err


def written(folder: Path, content: bytes | str, name: str = "given") -> str:
    """A file with this in it."""
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(file)


def queue(name: str, **spec: Any) -> dict[str, Any]:
    """A Queue as a manifest has it."""
    return {
        "apiVersion": "dovetail.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


def chain(length: int) -> str:
    """Queues, each the parent of the next."""
    links = [queue("q0"), *(queue(f"q{n}", parent=f"q{n - 1}") for n in range(1, length))]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": links})


# Trees


@pytest.mark.parametrize("opening", ["[", '{"a":', "[{a: "], ids=ascii)
@pytest.mark.parametrize(
    "command",
    [
        ("up", "--fresh", "--fleet"),
        ("apply", "-f"),
        ("migrate", "kueue", "-f"),
        ("migrate", "kai", "-f"),
        ("scheduler", "--config"),
        ("when", "--config"),
        ("when", "--kubeconfig"),
        ("cel", "eval", "true", "-f"),
        ("install", "--dry-run", "-f"),
    ],
    ids=" ".join,
)
def test_a_hundred_thousand_brackets_are_too_deep(
    tmp_path: Path, command: tuple[str, ...], opening: str
) -> None:
    for head in ("", "name: x\npools: "):
        file = written(tmp_path, head + opening * 100_000)
        refused(
            running.inside(tmp_path / "state", *command, file),
            f"{file}",
            "nested more than 200 levels deep",
        )


@pytest.mark.parametrize("depth", [190, 250, 900, 990, 5_000])
def test_deep_json_is_read_or_refused_but_never_half_way(tmp_path: Path, depth: int) -> None:
    """Whatever passes the reader is shallow enough for everything behind it, output included."""
    nest = '{"a":' * depth + "1" + "}" * depth
    kubeconfig = written(tmp_path, f'{{"clusters":[],"x":{nest}}}', "kubeconfig")
    refused(
        running.inside(tmp_path / "state", "get", "queues", "--kubeconfig", kubeconfig), kubeconfig
    )
    cohort = f'{{"apiVersion":"kueue.x-k8s.io/v1beta1","kind":"Cohort","metadata":{{"name":"c"}},"spec":{nest}}}'
    done = running.inside(tmp_path / "state", "migrate", "kueue", "-f", written(tmp_path, cohort))
    assert done.code == (0 if depth == 190 else 1), done.err
    generic = (
        f'{{"apiVersion":"example.com/v1","kind":"Deep","metadata":{{"name":"d"}},"spec":{nest}}}'
    )
    for form in ("yaml", "json"):
        done = running.inside(
            tmp_path / "state",
            "apply",
            "--dry-run=client",
            "-f",
            written(tmp_path, generic),
            "-o",
            form,
        )
        assert done.code == (0 if depth == 190 else 1), done.err


def test_levels_that_aliases_add_count_too() -> None:
    chained = "\n".join(["- &a0 [x]", *(f"- &a{n} [*a{n - 1}]" for n in range(1, 1_000))])
    with pytest.raises(yaml_text.TextError, match="nested more than 200 levels deep"):
        list(yaml_text.documents(chained))
    fits = "\n".join(["- &a0 [x]", *(f"- &a{n} [*a{n - 1}]" for n in range(1, 190))])
    assert len(next(yaml_text.documents(fits)).tree) == 190


def test_of_merged_mappings_the_first_and_the_own_keys_count() -> None:
    given = "a: &a {u: 1, v: 1}\nb: &b {v: 2, w: 2}\nc: {<<: [*a, *b], w: 3}\n"
    assert next(yaml_text.documents(given)).tree["c"] == {"u": 1, "v": 1, "w": 3}


class Counted(str):
    """A key that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_key_given_twice_is_found_in_one_pass() -> None:
    pairs = [(Counted(f"k{number}"), number) for number in (*range(5_000), 4_999)]
    Counted.compared = 0
    with pytest.raises(ValueError, match='the key "k4999" is given twice'):
        yaml_text._without_duplicates(pairs)
    assert Counted.compared < 20_000


@pytest.mark.parametrize(
    "number", ["9" * 5_000, "1e400", "-1e999", "-" + "9" * 401], ids=lambda item: item[:8]
)
def test_a_number_out_of_range_is_named(tmp_path: Path, number: str) -> None:
    manifest = f'{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a"}},"data":{number}}}'
    done = running.inside(tmp_path / "state", "apply", "-f", written(tmp_path, manifest))
    refused(done, "line 1", "digits" if "e" not in number else "larger than any number")


def test_a_weight_larger_than_any_float_is_the_largest_weight(tmp_path: Path) -> None:
    tree = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": "a"},
        "spec": {
            "fairSharing": {"weight": "1e400"},
            "resourceGroups": [
                {
                    "coveredResources": ["nvidia.com/gpu"],
                    "flavors": [
                        {"name": "f", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 4}]}
                    ],
                }
            ],
        },
    }
    done = running.inside(
        tmp_path / "state", "migrate", "kueue", "-f", written(tmp_path, json.dumps(tree))
    )
    assert done.code == 0, done.err
    (made,) = [item for item in yaml.safe_load_all(done.out) if item["kind"] == "Queue"]
    assert [share["weight"] for share in made["spec"]["resources"].values()] == [1_000_000]


@pytest.mark.parametrize("source", ["/dev/zero", "stdin"])
def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path, source: str) -> None:
    file = "-" if source == "stdin" else source
    with open("/dev/zero", "rb") as endless:
        done = subprocess.run(
            [*running.PROGRAM, "apply", "-f", file],
            stdin=endless,
            capture_output=True,
            check=False,
            env={**os.environ, "DOVETAIL_STATE": str(tmp_path)},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)),
        )
    assert done.returncode == 1
    assert b"larger than 64 MiB; split it" in done.stderr


# Queues


def test_a_chain_of_parents_is_cut_where_it_gets_too_long(tmp_path: Path, state: Path) -> None:
    done = running.inside(state, "apply", "-f", written(tmp_path, chain(1_200)))
    assert done.code == 0
    assert f"queue q{queue_tree.MAX_LEVELS}: is more than 64 levels below the top" in done.err
    assert running.inside(state, "get", "queues").code == 0
    assert running.inside(state, "get", "queues", "-o", "wide").code == 0
    assert running.inside(state, "when").code == 0


def test_a_chain_of_parents_in_a_scenario_is_cut_too(tmp_path: Path) -> None:
    links = [{"name": "q0"}, *({"name": f"q{n}", "parent": f"q{n - 1}"} for n in range(1, 1_200))]
    jobs = [
        {
            "name": "j",
            "queue": "q1199",
            "pods": [{"name": "p", "state": "pending", "request": {"gpu": 1}}],
        }
    ]
    file = written(tmp_path, json.dumps({**SCENARIO, "queues": links, "jobs": jobs}))
    done = running.inside(tmp_path / "state", "decide", "--scenarios", file)
    assert done.code == 0, done.err


def test_a_runtime_longer_than_time_is_refused_with_its_field(tmp_path: Path, state: Path) -> None:
    file = written(tmp_path, json.dumps(queue("a", maxRuntimeSeconds=2**62)))
    done = running.inside(state, "apply", "-f", file)
    refused(done, "Queue a", "maxRuntimeSeconds")


# Lines


def damaged() -> bytes:
    """A gzip file with two bytes changed in the middle of its data."""
    content = bytearray(gzip.compress(b'{"a":1}\n' * 1000, mtime=0))
    content[30] ^= 255
    content[31] ^= 85
    return bytes(content)


@pytest.mark.parametrize("command", LINE_DOORS, ids=LINE_DOOR_NAMES)
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (damaged(), "damaged gzip data"),
        (gzip.compress(b"{}\n" * 1000, mtime=0)[:15], "damaged gzip data"),
        (b"\x1f\x8b", "damaged gzip data"),
        (b"\x1f\x8b" + b"\x00" * 40, "damaged gzip data"),
        (b'{"id": "\xff"}\n', "line 1: not JSON"),
        (b'{"id": "\xed\xa0\x80"}\n', "line 1: "),
        (b"[" * 100_000, "line 1: "),
        (b"{" * 100_000, "line 1: "),
        (b'{"id":' * 100_000, "line 1: "),
        (b'{"id":' + b"9" * 5_000 + b"}\n", "line 1: "),
        (b"\n\n7\n", "line 3: "),
    ],
    ids=[
        "damaged",
        "cut",
        "head",
        "zeros",
        "bytes",
        "half",
        "lists",
        "braces",
        "mappings",
        "digits",
        "number",
    ],
)
def test_a_broken_line_or_file_is_named(
    tmp_path: Path, command: tuple[str, ...], content: bytes, words: str
) -> None:
    file = written(tmp_path, content)
    done = running.inside(tmp_path / "state", *command, file)
    assert done.code == 1
    assert done.err.startswith(f"error: {file}: "), done.err
    assert words in done.err


@pytest.mark.parametrize("command", LINE_DOORS, ids=LINE_DOOR_NAMES)
@pytest.mark.parametrize("filling", [b"[", b"\n"], ids=["one line", "empty lines"])
def test_a_small_file_that_grows_without_bound_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], filling: bytes
) -> None:
    monkeypatch.setattr(bounded_files, "MAX_LINE_BYTES", 1 << 20)
    monkeypatch.setattr(bounded_files, "MAX_EMPTY_LINES", 10_000)
    file = written(tmp_path, gzip.compress(filling * (4 << 20), mtime=0))
    done = running.inside(tmp_path / "state", *command, file)
    refused(
        done,
        file,
        "longer than 1 MiB" if filling == b"[" else "more than 10000 empty lines in a row",
    )


def test_a_line_of_gigabytes_takes_no_gigabytes(tmp_path: Path) -> None:
    """As a process with bounded memory: two gigabytes of one line in a file of two megabytes."""
    file = tmp_path / "bomb.gz"
    piece = gzip.compress(b"[" * (1 << 26), mtime=0)
    file.write_bytes(piece * 32)  # members of gzip one after the other are one text
    done = subprocess.run(
        [*running.PROGRAM, "cel", "eval", "--cases", str(file)],
        capture_output=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)),
    )
    assert done.returncode == 1
    assert b"line 1: longer than 64 MiB; expected one JSON object a line" in done.stderr


@pytest.mark.parametrize(
    "case",
    [
        {"expression": "true", "device": {"driver": 7}},
        {"expression": "true", "device": {"driver": ["a"], "attributes": {"a/b": {"int": 1}}}},
        {
            "expression": "device.driver == 'a'",
            "device": {"driver": {}, "capacity": {"m": {"value": "1"}}},
        },
    ],
)
def test_a_driver_that_is_no_text_is_an_error_of_its_case(
    tmp_path: Path, case: dict[str, Any]
) -> None:
    done = running.inside(
        tmp_path / "state", "cel", "eval", "--cases", written(tmp_path, json.dumps(case))
    )
    assert done.code == 0, done.err
    assert json.loads(done.out)["outcome"] == "error"


@pytest.mark.parametrize(
    ("run", "field"),
    [({"cycles_until": 2 * 10**12}, "cycles_until"), ({"cycles_stable": 2**31}, "cycles_stable")],
)
def test_too_many_cycles_are_refused(tmp_path: Path, run: dict[str, int], field: str) -> None:
    scenario = SCENARIO | {"run": {"mode": "cycles", **run}}
    done = running.inside(
        tmp_path / "state", "decide", "--scenarios", written(tmp_path, json.dumps(scenario))
    )
    refused(done, "line 1", field, "1000")


def test_gpus_are_counted_over_all_nodes(tmp_path: Path) -> None:
    scenario = SCENARIO | {"nodes": [{"name": f"n{n}", "gpu": {"count": 6_000}} for n in range(2)]}
    done = running.inside(
        tmp_path / "state", "decide", "--scenarios", written(tmp_path, json.dumps(scenario))
    )
    refused(done, "line 1", "nodes: 12000 GPUs together; at most 10000")


def test_two_groups_of_one_name_are_refused(tmp_path: Path) -> None:
    groups = [{"name": "default"}, {"name": "default", "min": 2}]
    jobs = [
        {"name": "a", "groups": groups, "pods": [{"name": "a-0", "state": "running", "node": "n"}]}
    ]
    done = running.inside(
        tmp_path / "state",
        "decide",
        "--scenarios",
        written(tmp_path, json.dumps(SCENARIO | {"jobs": jobs})),
    )
    refused(done, "line 1", "jobs[0].groups: two are named 'default'")


# Snapshots


def test_names_with_more_digits_than_a_number_may_have_are_sorted() -> None:
    names = ["gpu-10", "gpu-" + "9" * 5_000, "gpu-2", "gpu-007", "gpu-٣"]
    assert sorted(names, key=text.natural)[:3] == ["gpu-2", "gpu-007", "gpu-10"]


@pytest.fixture
def saved(state: Path, tmp_path: Path) -> Path:
    """A snapshot of the sample fleet."""
    assert running.inside(state, "snapshot", "save", str(tmp_path / "saved")).code == 0
    return tmp_path / "saved"


def changed(saved: Path, name: str, old: bytes, new: bytes) -> None:
    """Changes a file of a snapshot, and the manifest so that it fits again."""
    import hashlib

    file = saved / name
    content = file.read_bytes()
    assert old in content
    content = content.replace(old, new)
    file.write_bytes(content)
    manifest = json.loads((saved / "manifest.json").read_bytes())
    for entry in manifest["files"]:
        if entry["name"] == name:
            entry |= {"sha256": hashlib.sha256(content).hexdigest(), "sizeBytes": len(content)}
    (saved / "manifest.json").write_bytes(msgspec.json.encode(manifest))


READERS = [
    ("get", "gpus", "--snapshot"),
    ("get", "pods", "-A", "--snapshot"),
    ("when", "--snapshot"),
    ("doctor", "--snapshot"),
    ("snapshot", "show"),
    ("snapshot", "load", "--fresh"),
]


@pytest.mark.parametrize(
    "command", [reader for reader in READERS if "pods" not in reader], ids=" ".join
)  # pods are shown without reading slices
def test_an_object_of_another_version_is_no_part_of_a_snapshot(
    saved: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    changed(saved, "resourceslices.json", b'"resource.k8s.io/v1"', b'"resource.k8s.io/v9"')
    done = running.inside(tmp_path / "other", *command, str(saved))
    if command == ("snapshot", "show"):  # looks at sums only
        assert done.code == 0
    else:
        refused(done, "resourceslices.json", "items[0]", "expected a ResourceSlice")


@pytest.mark.parametrize("command", READERS, ids=" ".join)
@pytest.mark.parametrize(
    "moment", ["yesterday", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"]
)
def test_a_snapshot_of_no_time_is_refused(
    saved: Path, tmp_path: Path, command: tuple[str, ...], moment: str
) -> None:
    manifest = json.loads((saved / "manifest.json").read_bytes()) | {"takenAt": moment}
    (saved / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    refused(running.inside(tmp_path / "other", *command, str(saved)), "manifest.json", "takenAt")


@pytest.mark.parametrize(
    "command", [reader for reader in READERS if "gpus" not in reader], ids=" ".join
)  # GPUs of slices are shown without reading pods
def test_a_pipe_in_a_snapshot_is_not_waited_for(
    saved: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (saved / "pods.json").unlink()
    os.mkfifo(saved / "pods.json")
    refused(running.inside(tmp_path / "other", *command, str(saved)), "pods.json: is not a file")


# What no command foresaw


def test_what_no_command_foresaw_is_one_line_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("a\x1b[31m\nb" + "x" * 1_000)

    monkeypatch.setattr("dovetail.cli.cluster.cluster_option.chosen", broken)
    monkeypatch.delenv(main.DEBUG, raising=False)
    arguments = ["get", "pods", "--state", str(tmp_path)]
    assert main.main(arguments) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"error: {main.DEFECT}: KeyError: ")
    assert err.endswith("DOVETAIL_DEBUG=1 shows the traceback\n")
    assert err.count("\n") == 1
    assert err[:-1].isprintable()
    assert len(err) < 600
    monkeypatch.setenv(main.DEBUG, "1")
    with pytest.raises(KeyError):
        main.main(arguments)
    with pytest.raises(KeyError):  # tests and fuzzers run commands so: nothing is hidden from them
        running.inside(tmp_path, *arguments)


def test_a_device_in_use_with_a_capacity_that_cannot_be_shared_is_explained(tmp_path: Path) -> None:
    """The search leaves out devices in use; the explanation looks at them all the same."""
    memory = {"value": "8", "requestPolicy": {"default": "-1"}}
    device = {"name": "d", "allowMultipleAllocations": True, "capacity": {"memory": memory}}
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    request = {
        "name": "r",
        "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1},
    }
    world = {
        "id": 1,
        "nodes": [{"metadata": {"name": "n"}}],
        "deviceClasses": [{"metadata": {"name": "any"}}],
        "resourceSlices": [
            {
                "metadata": {"name": "s"},
                "spec": {"driver": "x", "nodeName": "n", "pool": pool, "devices": [device]},
            }
        ],
        "inUse": {"devices": ["x/p/d"]},
        "claims": [{"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}],
    }
    done = running.inside(
        tmp_path, "allocate", "--worlds", written(tmp_path, json.dumps(world)), "-o", "jsonl"
    )
    assert done.code == 0, done.err
    assert "-1 is negative" in json.loads(done.out)["reasons"][0]


def test_a_thousand_constraints_are_settled_one_after_the_other(tmp_path: Path) -> None:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"d{n}", "attributes": {"x/rack": {"int": n // 2}}} for n in range(4)]
    exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 2}
    together = [{"requests": ["r"], "matchAttribute": "x/rack"}] * 1_200
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}], "constraints": together}}
    world = {
        "id": 1,
        "nodes": [{"metadata": {"name": "n"}}],
        "deviceClasses": [{"metadata": {"name": "any"}}],
        "resourceSlices": [
            {
                "metadata": {"name": "s"},
                "spec": {"driver": "x", "nodeName": "n", "pool": pool, "devices": devices},
            }
        ],
        "claims": [{"metadata": {"name": "c"}, "spec": spec}],
    }
    done = running.inside(tmp_path, "allocate", "--worlds", written(tmp_path, json.dumps(world)))
    assert done.code == 0, done.err
    assert done.column("DEVICES OR REASON") == ["r=p/d0 r=p/d1"]


@pytest.mark.parametrize("field", ["certificate-authority", "client-certificate", "tokenFile"])
@pytest.mark.parametrize("what", ["/dev/zero", "pipe", "large", "\0"])
def test_a_kubeconfig_leads_to_no_file_without_end(tmp_path: Path, field: str, what: str) -> None:
    if what == "pipe":
        os.mkfifo(tmp_path / what)
    elif what == "large":
        (tmp_path / what).write_bytes(b"x" * (2 << 20))
    cluster, user = (
        {"server": "https://127.0.0.1:1"},
        {"client-key": what} if field == "client-certificate" else {},
    )
    (cluster if field == "certificate-authority" else user)[field] = what
    tree = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = written(tmp_path, json.dumps(tree), "kubeconfig")
    refused(
        running.inside(tmp_path / "state", "get", "queues", "--kubeconfig", file), "cannot be read"
    )


def test_a_pipe_in_place_of_the_state_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "state" / "setup.json")
    os.mkfifo(tmp_path / "state" / "lock")
    refused(running.inside(tmp_path / "state", "get", "gpus"), "no cluster in")


@pytest.mark.parametrize(
    "content",
    [b"[", b"\xff", b"{}", b"[" * 100_000, b'[{"name":1}]'],
    ids=lambda item: ascii(item[:5]),
)
def test_a_damaged_record_of_processes_is_reported(tmp_path: Path, content: bytes) -> None:
    place = tmp_path / "dev"
    place.mkdir(mode=0o700)
    (place / "dev.json").write_bytes(b'{"starter":{"name":"a","pid":1,"born":1,"log":"x"}}')
    (place / "processes.json").write_bytes(content)
    refused(
        running.inside(tmp_path, "dev", "status", "--dir", str(place)),
        "processes.json: cannot be read",
    )
    (place / "dev.json").write_bytes(content)
    refused(
        running.inside(tmp_path, "dev", "status", "--dir", str(place)), "dev.json cannot be read"
    )


@pytest.mark.parametrize("place", ["allocatable", "label"])
@pytest.mark.parametrize(
    "command",
    [("get", "gpus"), ("get", "gpus", "--summary"), ("get", "devices"), ("top",), ("capacity",)],
)
def test_a_node_that_counts_more_gpus_than_can_be_is_named_and_not_shown(
    tmp_path: Path, command: tuple[str, ...], place: str
) -> None:
    counted = "999999999999" if place == "allocatable" else "8"
    labels = {"nvidia.com/gpu.count": "999999999"} if place == "label" else {}
    amounts = {"cpu": "8", "pods": "110", "nvidia.com/gpu": counted, "nvidia.com/gpu.shared": "4"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "a", "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
    file = written(tmp_path, json.dumps(node), "n.json")
    done = running.inside(tmp_path, *command, "--snapshot", file)
    assert done.code == 0, done
    assert done.err.count("not shown: GPUs of node a: it counts 999999999") == 1
