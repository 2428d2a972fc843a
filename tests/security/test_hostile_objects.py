"""Huge and broken objects: none stops the loop, none hides another, each is reported."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.kube.watching import decode, watch, watch_history
from dovetail.kubetypes import codec, registry
from dovetail.kubetypes.core import pods
from dovetail.kubetypes.resource import claims
from dovetail.live.bind import claim_patches, write_retry
from dovetail.live.informer import consistency, informer
from dovetail.ports import failures
from dovetail.world import events
from dovetail.world.world import World
from tests.fuzz import findings
from tests.fuzz import objects as fuzz
from tests.live.live_scheduler import Stage, play
from tests.schedule import build
from tests.security import hostile

Tree = dict[str, Any]
DEPTH = 5_000  # in the 10 KiB that an API server lets a claim's parameters have


def line(kind: str, document: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + document + b"}"


def sound(name: str, version: int) -> bytes:
    return codec.encode_tree(
        {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}}
    )


def deep_claim(name: str, version: int, levels: int = DEPTH) -> bytes:
    """A claim as any tenant may create it, with parameters nested so deep."""
    tree = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
        },
        "spec": {
            "devices": {
                "config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"a": 0}}}]
            }
        },
    }
    return codec.encode_tree(tree).replace(b'"a":0', b'"a":' + hostile.deep(levels))


@pytest.fixture
def any_depth() -> Iterator[None]:
    """As in a process that watches a server."""
    before = sys.getrecursionlimit()
    decode.read_all_depths()
    yield
    sys.setrecursionlimit(before)


class Wire(transport.Transport):
    """One list, then these lines, then the list again, then the end."""

    def __init__(self, page: bytes, lines: Sequence[bytes]) -> None:
        super().__init__(client_config.Connection(server="http://127.0.0.1:1"))
        self._pages = [page, page]
        self._lines: list[bytes] | None = list(lines)

    async def request(self, method: str, path: str, **_: Any) -> transport.Answer:
        if not self._pages:
            raise fuzz.Over
        return transport.Answer(200, {}, self._pages.pop())

    async def lines(self, path: str, params: Any = None, **_: Any) -> Any:
        if self._lines is None:
            raise fuzz.Over
        given, self._lines = self._lines, None
        for item in given:
            yield item


class Sink:
    """Remembers the names that are there, and the problems reported in between."""

    def __init__(self) -> None:
        self.objects: set[str] = set()
        self.broke: list[str] = []
        self.unread: list[str] = []

    def replaced(self, result: list[Any], resource_version: str) -> None:
        self.objects = {item.metadata.name for item in result}

    def changed(self, result: Any) -> None:
        self.objects.add(result.metadata.name)

    def deleted(self, result: Any) -> None:
        self.objects.discard(result.metadata.name)

    def broken(self, reason: str) -> None:
        self.broke.append(reason)

    def unreadable(self, name: str, problem: str) -> None:
        self.unread.append(f"{name}: {problem}")


def watched(page: bytes, *lines: bytes, kind: registry.Kind = registry.NODE) -> Sink:
    """A sink after a list and a watch."""
    sink = Sink()

    async def main() -> None:
        try:
            await watch.follow(
                Wire(page, lines), kind, sink, clock=fuzz.Still(), randomness=random.Random(1)
            )
        except fuzz.Over:
            return

    asyncio.run(main())
    return sink


def page(*items: bytes) -> bytes:
    return b'{"metadata":{"resourceVersion":"9"},"items":[' + b",".join(items) + b"]}"


BROKEN = {
    "wrong types": b'{"metadata":{"name":"bad","resourceVersion":"11"},"spec":[]}',
    "a number as name": b'{"metadata":{"name":1,"resourceVersion":"11"}}',
    "metadata missing": b"{}",
    "not an object": b"[]",
    "half a character": b'{"metadata":{"name":"bad","labels":{"a":"\\ud800"},"resourceVersion":"11"}}',
    "a number beyond any": b'{"metadata":{"name":"bad","generation":1e400,"resourceVersion":"11"}}',
    "a quantity beyond any": b'{"metadata":{"name":"x","resourceVersion":"11"},"status":{"allocatable":{"c":"1e9e9"}}}',
    "an endless version": b'{"metadata":{"name":"bad","resourceVersion":"' + b"9" * 6000 + b'"}}',
    "a name that leaves": b'{"metadata":{"name":"../../etc/passwd","resourceVersion":"11"}}',
    "control characters": b'{"metadata":{"name":"a\\u0000\\u001b[2J\\n","resourceVersion":"11"}}',
    "deep": b'{"metadata":{"name":"bad","resourceVersion":"11"},"x":' + hostile.deep(500) + b"}",
}


@pytest.mark.parametrize("document", BROKEN.values(), ids=BROKEN)
def test_a_broken_object_hides_no_other_in_a_list_or_a_watch(document: bytes) -> None:
    sink = watched(
        page(sound("a", 5), document, sound("b", 6)),
        line("ADDED", document),
        line("ADDED", sound("c", 12)),
    )
    assert {"a", "b", "c"} <= sink.objects
    assert sink.broke == []


@pytest.mark.parametrize(
    "text", [b"", b"nonsense", b'{"type":"ADDED"', b'{"object":{}}', b"\xff\xfe", b"NaN"], ids=repr
)
def test_a_line_that_is_not_an_event_makes_it_list_again(text: bytes) -> None:
    sink = watched(page(sound("a", 5)), text, line("ADDED", sound("lost", 12)))
    assert "not an event" in sink.broke[0]
    assert sink.objects == {"a"}


def test_parameters_as_deep_as_a_server_takes_hide_nothing(any_depth: None) -> None:
    deep = deep_claim("deep", 6)
    sink = watched(
        page(sound("a", 5), deep, sound("b", 7)),
        line("MODIFIED", deep_claim("deep", 11)),
        line("ADDED", sound("c", 12)),
        kind=registry.CLAIM,
    )
    assert sink.objects == {"a", "deep", "b", "c"}
    assert sink.unread == sink.broke == []


def test_the_deepest_document_go_reads_is_read_and_written(any_depth: None) -> None:
    result, problem = decode.decode_or_problem(
        registry.CLAIM, deep_claim("deep", 6, decode.DEEPEST - 10)
    )
    assert isinstance(result, claims.ResourceClaim), problem
    assert codec.encode_tree(codec.tree_of(result)).count(b"[") > decode.DEEPEST - 20


def test_deeper_than_that_is_a_failure_with_a_name_and_not_a_crash() -> None:
    with pytest.raises(failures.Unavailable, match="list claims: the answer is not a list"):
        decode.page(page(hostile.deep(100_000)), doing="list claims")
    sink = watched(page(), line("ADDED", hostile.deep(100_000)))
    assert "not an event" in sink.broke[0]


def test_an_open_transport_can_decode_the_deepest_object() -> None:
    before = sys.getrecursionlimit()

    async def main() -> None:
        async with Wire(b"", ()):
            assert sys.getrecursionlimit() > decode.DEEPEST

    try:
        asyncio.run(main())
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.parametrize("seed", range(20))
def test_halves_of_characters_are_mended_as_go_mends_them_and_nothing_else_is_touched(
    seed: int,
) -> None:
    rng = random.Random(seed)
    parts = (
        r"\ud800",
        r"\udfff",
        r"\uD83D",
        r"\uDE00",
        "\\\\",
        r"\n",
        r"\"",
        r"\u00e9",
        "u",
        "d800",
        "x",
        "\U0001f600",
    )
    text = '"' + "".join(rng.choice(parts) for _ in range(60)) + '"'
    whole = decode.replace_lone_surrogates(text.encode())
    assert msgspec.json.decode(whole) == json.loads(whole)
    assert json.loads(whole) == "".join(
        load if not "\ud800" <= load <= "\udfff" else "\ufffd" for load in json.loads(text)
    )
    plain = json.dumps(json.loads(whole)).encode()
    assert decode.replace_lone_surrogates(plain) == plain


@pytest.mark.parametrize("escape", [r"\n", r"\ud83d\ude00", r"\ud800", "\\\\", r"\u0041"])
def test_mending_calls_nothing_for_each_escape(escape: str) -> None:
    few, many = (_calls_to_mend(f'"\\ud800{escape * count}"'.encode()) for count in (10, 10_000))
    assert few == many


def _calls_to_mend(document: bytes) -> int:
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    decode.replace_lone_surrogates(
        document
    )  # what is remembered of the expression is remembered by now
    sys.setprofile(count)
    try:
        decode.replace_lone_surrogates(document)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("version", ["9" * 5000, "-1", "1e5", "٣", " 7", "0x10", ""])
def test_a_version_that_is_no_number_is_not_compared(version: str) -> None:
    assert watch_history.number_of(version) is None
    assert informer.number_of(version) == 0
    assert watch_history.number_of(str(2**64 - 1)) == 2**64 - 1


def test_a_line_of_ten_megabytes_passes_and_the_next_one_too() -> None:
    big = codec.encode_tree(
        {
            "metadata": {
                "name": "big",
                "uid": "u",
                "resourceVersion": "11",
                "annotations": {"a": "x" * 10_000_000},
            }
        }
    )
    assert watched(page(), line("ADDED", big), line("ADDED", sound("c", 12))).objects == {
        "big",
        "c",
    }


def test_a_line_without_end_is_not_collected_endlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_LINE_BYTES", 1000)
    taken = 0

    async def endless() -> Any:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 100

    async def main() -> None:
        async for _ in transport.split_lines(endless()):
            pass

    with pytest.raises(Exception, match="longer than 1000 bytes"):
        asyncio.run(main())
    assert taken == 11


def test_a_pod_of_the_size_of_what_etcd_takes_is_placed_like_any_other() -> None:
    huge = "x" * 1_400_000
    labels = {f"label-{number}": "v" * 60 for number in range(1000)}
    env = [{"name": f"E{number}", "value": "y" * 100} for number in range(500)]
    big = build.pod(
        "big",
        metadata={"annotations": {"a": huge}, "labels": labels},
        containers=[{"name": "m", "resources": {"requests": {"cpu": "1"}}, "env": env}],
    )
    world = build.world(big, build.pod("small"), nodes=1)
    assert build.nodes_of(build.decided(world)) == {"big": "n0", "small": "n0"}


def test_a_claim_of_all_requests_and_thousands_of_selectors_ends_and_others_start() -> None:
    selectors = [
        {"cel": {"expression": f"device.attributes['x'].a{number} == 'v{number}'"}}
        for number in range(100)
    ]
    exactly = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": selectors,
    }
    requests = [{"name": f"r{number}", "exactly": exactly} for number in range(32)]
    world = build.world(
        build.claim("big", requests=requests), build.pod("greedy", uses=("big",)),
        build.claim("c"), build.pod("modest", uses=("c",)), nodes=2,
    )  # fmt: skip
    done = build.decided(world)
    assert build.nodes_of(done).keys() == {"modest"}
    assert len(build.summary_of(done, "greedy")) < 20_000


def test_a_pod_with_thousands_of_tolerations_and_terms_ends_and_others_start() -> None:
    expressions = [
        {"key": f"k{n}", "operator": "NotIn", "values": [f"v{n}"] * 10} for n in range(2000)
    ]
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    tolerations = [{"key": f"k{n}", "operator": "Exists"} for n in range(5000)]
    world = build.world(
        build.pod("wordy", affinity=affinity, tolerations=tolerations), build.pod("b"), nodes=3
    )
    assert build.nodes_of(build.decided(world)).keys() == {"wordy", "b"}


def test_a_device_that_no_search_could_finish_leaves_time_for_others() -> None:
    """The budget counts steps: a claim made to keep the search busy ends, and later pods are decided."""

    async def story() -> None:
        stage = Stage(nodes=2, gpus=8)
        spread = [
            {
                "distinctAttribute": "gpu.nvidia.com/productName",
                "requests": [f"r{n}" for n in range(8)],
            }
        ]
        requests = [
            {"name": f"r{n}", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 1}}
            for n in range(8)
        ]
        tree = {"devices": {"requests": requests, "constraints": spread}}
        metadata = {"name": "knot", "namespace": "default"}
        stage.api.put(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": metadata,
                "spec": tree,
            }
        )
        stage.pod("knotted", named=("knot",))
        stage.template("one")
        stage.pod("plain", templates=("one",))
        async with stage.scheduling():
            await stage.pass_time(3)
        assert (stage.node_of("knotted"), bool(stage.node_of("plain"))) == ("", True)

    play(story)


@pytest.mark.parametrize(
    "parameters", [b'{"b":1.0, "a":"<\\u00e9>"}', b'{"a":"\xff"}', b'{"a":1e999}'], ids=repr
)
def test_parameters_of_drivers_are_passed_on_letter_by_letter(parameters: bytes) -> None:
    outcome, _ = decode.decode_or_problem(
        registry.CLAIM, deep_claim("c", 6, 1).replace(b'{"a":[]}', parameters)
    )
    assert outcome is not None
    user = claims.ResourceClaimConsumerReference(resource="pods", name="p", uid="u")
    config = tuple(
        claims.DeviceAllocationConfiguration(source="FromClaim", opaque=item.opaque)
        for item in outcome.spec.devices.config
    )
    result = claims.AllocationResult(devices=claims.DeviceAllocationResult(config=config))
    step = claim_patches.reserve("uid-c", result, user, expected=None)
    first = step(outcome)
    assert isinstance(first, write_retry.Patch)
    assert not first.adds, "a strategic patch would have the server rewrite the parameters"
    protected = first.after
    assert protected is not None
    second = step(protected)
    assert isinstance(second, write_retry.Patch)
    assert parameters in second.patch
    world = World()
    world.apply(events.Changed(outcome))
    assert consistency.differences(world, [outcome]) == ()


@pytest.mark.slow
def test_a_hundred_thousand_pods_are_read_in_portions_that_let_others_run() -> None:
    data = codec.encode_tree(
        {"metadata": {"name": "NAME", "namespace": "default"}, "spec": {"containers": []}}
    )
    items = [msgspec.Raw(data.replace(b"NAME", b"p%d" % number)) for number in range(100_000)]
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def main() -> list[pods.Pod]:
        running = asyncio.create_task(others())
        try:
            return await decode.structs(
                registry.POD, items, unreadable=lambda name, why: pytest.fail(why)
            )
        finally:
            running.cancel()

    result = asyncio.run(main())
    assert len(result) == 100_000
    assert turns >= sum(map(len, map(bytes, items))) // decode.SLICE_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("seed", [900_001, 900_002])
def test_mutated_objects_crash_nothing_hide_nothing_and_are_never_applied_in_part(
    seed: int,
) -> None:
    tally, seen = findings.Tally("objects", folder=None), fuzz.Seen()
    for number in range(10):
        fuzz.run(
            None,
            fuzz.cases(random.Random(seed + number), 200),
            tally=tally,
            seed=seed + number,
            seen=seen,
        )
    assert not tally.disagreements, tally.findings[0].ours
    for counted in (
        "apply: batches applied",
        "apply: batches refused, nothing changed",
        "watch: streams",
    ):
        assert seen.counts[counted] > 20, seen.counts


def test_the_fuzz_notices_a_crash_and_a_partial_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    tally = findings.Tally("objects", folder=None)
    monkeypatch.setattr(fuzz, "_sent", lambda api, tree, *, is_rehearsal: 1 // 0)
    fuzz.run(None, fuzz.cases(random.Random(1), 40), tally=tally, seed=1)
    assert tally.counts["crashed"] > 0
    assert "ZeroDivisionError" in tally.findings[0].ours

    def partial(api: Any, tree: Any, *, is_rehearsal: bool) -> None:
        """Changes the server before it refuses."""
        number = api.shelf.revision
        name = f"left-behind-{number}"
        api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        raise failures.Refused("refused in part", status=422)

    tally = findings.Tally("objects", folder=None)
    monkeypatch.setattr(fuzz, "_sent", partial)
    fuzz.run(None, fuzz.cases(random.Random(1), 40), tally=tally, seed=1)
    assert "a refused batch changed the server" in tally.findings[0].ours


def test_the_fuzz_notices_a_hidden_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz.RecordingFeed, "changed", lambda self, found: None)
    tally = findings.Tally("objects", folder=None)
    fuzz.run(None, fuzz.cases(random.Random(1), 200), tally=tally, seed=1)
    assert any("hidden: sound-" in finding.ours for finding in tally.findings)
