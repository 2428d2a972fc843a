"""Objects that mean harm: none crashes the apply path or the watch decoder, hides another, or is applied in part.

Mutated real objects go two ways, in turns: as a manifest into the API server in memory (and, now and then, through its
controllers and a decision), or as lists and lines of a watch, cut anywhere, into a picture. Anything raised
that is not an error of ours is a finding, and so is a refused batch that changed a byte, or a sound object that a
broken one hid. Alone: `python -m tests.fuzz.objects --count 1000000 --record`.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import datetime
import random
import sys
import time
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from dovetail import errors
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.kube.watching import watch
from dovetail.kubetypes import codec, object_set, registry
from dovetail.live.informer import consistency, informer
from dovetail.manifest import manifests
from dovetail.model import policy
from dovetail.ports import api as apis
from dovetail.schedule import decide
from dovetail.sim.fleet import fleet_objects, fleet_spec
from dovetail.sim.server import api_server, object_store
from dovetail.world.owners import facts_of_objects
from dovetail.world.world import World
from tests.fuzz.findings import AGREE, ROOT, Finding, Tally
from tests.generators import claims, constraints, constraints_nodes, extremes, mutations, slices
from tests.security import hostile

Tree = dict[str, Any]

NOW: Final = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
BATCH: Final = 200
MOST_RECORDS: Final = 60  # then the server is recreated, so that checking it stays cheap
RESULTS: Final = ROOT / "bench" / "results" / "fuzz-objects.json"
_BY_NAME: Final = {kind.name: kind for kind in registry.WATCHED}


class Mutant(NamedTuple):
    """One object to send, and whether its metadata is what an API server would have written."""

    kind: str
    document: bytes
    is_sound: bool


class Seen:
    """What a run has met: outcomes by name, and the slowest object."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.slowest_seconds = 0.0
        self.slowest_seed = 0

    def timed(self, seconds: float, seed: int) -> None:
        """How long one batch or stream took; only reported, never judged."""
        if seconds > self.slowest_seconds:
            self.slowest_seconds, self.slowest_seed = seconds, seed


# What is sent


def sources() -> list[Tree]:
    """Real objects of every kind: generated ones, those of a fleet, and the examples that users copy."""
    rng = random.Random(1)
    makers: tuple[Callable[[random.Random], Tree], ...] = (
        claims.claim,
        claims.template,
        claims.device_class,
        slices.resource_slice,
        slices.taint_rule,
    )
    result = [make(rng) for make in makers for _ in range(12)]
    result += [claims.stored(claims.allocated(claims.claim(rng), rng)) for _ in range(12)]
    story = constraints.story(rng, lambda given: list(given), pod_count=40)
    result += [*story.objects, *(step.pod for step in story.steps if step.pod is not None)]
    for file in sorted((ROOT / "examples" / "live").glob("*.yaml")):
        result += [tree for tree in yaml.safe_load_all(file.read_text()) if tree]
    pool = fleet_spec.Pool(name="n", count=1, gpu="A100-SXM4-80GB", gpus_per_node=1, mig=True)
    result += fleet_objects.objects_of(fleet_spec.Fleet(name="fuzz", pools=(pool,)))
    return result


_SOURCES: list[tuple[str, bytes]] = []


def cases(rng: random.Random, count: int) -> list[Mutant]:
    """Mutated objects, gently, badly, or down to their letters."""
    if not _SOURCES:
        _SOURCES.extend((tree["kind"], codec.encode_tree(tree)) for tree in sources())
    return [_mutant(rng, number) for number in range(count)]


def _mutant(rng: random.Random, number: int) -> Mutant:
    kind, document = rng.choice(_SOURCES)
    tree = hostile.copied(document)
    roll = rng.random()
    if roll < 0.35:
        tree = mutations.mutated(tree, rng)
    elif roll < 0.8:
        tree = hostile.bent(tree, rng)
    edge = rng.random()
    if edge < 0.15:
        tree = extremes.with_extreme_amounts(tree, rng)
    elif edge < 0.155:
        tree = extremes.filled(tree, rng)
    is_sound = rng.random() < 0.5 and isinstance(tree.get("metadata"), dict)
    if is_sound:
        tree["metadata"] |= {
            "name": f"m{number}",
            "uid": f"uid-m{number}",
            "resourceVersion": str(1000 + number),
        }
        tree["metadata"].pop("generateName", None)
    document = codec.encode_tree(tree)
    if 0.155 <= edge < 0.175:
        document = extremes.with_escapes(document, rng)
    if roll < 0.7:
        return Mutant(kind, document, is_sound)
    return Mutant(kind, hostile.garbled(document, rng), False)


# What happens to it


def run(
    oracle: object, batch: list[Mutant], *, tally: Tally, seed: int, seen: Seen | None = None
) -> None:
    """Sends all of them, each one way or the other. Upstream is not asked."""
    seen = seen or Seen()
    rng = random.Random(seed)
    applying = Applying(rng)
    at = 0
    with asyncio.Runner() as runner:
        while at < len(batch):
            is_apply = (
                rng.random() < 0.6
            )  # streams are longer than batches: this makes about halves
            taken = batch[
                at : at + (rng.choice((1, 1, 2, 3, 5)) if is_apply else rng.choice((2, 5, 10)))
            ]
            at += len(taken)
            began = time.perf_counter()
            problem = applying.apply(taken, seen) if is_apply else watched(taken, rng, seen, runner)
            seen.timed(time.perf_counter() - began, seed)
            _count(taken, problem, way="apply" if is_apply else "watch", tally=tally, seed=seed)


def _count(taken: Sequence[Mutant], problem: str, *, way: str, tally: Tally, seed: int) -> None:
    tally.counts["crashed" if problem else AGREE] += len(taken)
    if problem and tally.wants("crashed", problem.splitlines()[-1]):
        shown = {"way": way, "documents": [repr(item.document[:4000]) for item in taken]}
        tally.add(
            Finding(
                what="objects", kind="crashed", seed=seed, case=shown, ours=problem, theirs=None
            )
        )


class Applying:
    """An API server that manifests are applied to, as `dovetail apply` does it: a dry run of all, then the writes."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._api = _server()

    def apply(self, batch: Sequence[Mutant], seen: Seen) -> str:
        """Why this must not be, or nothing."""
        seen.counts["apply: objects"] += len(batch)
        if len(digest(self._api)) > MOST_RECORDS:
            self._api = _server()
        before = digest(self._api)
        try:
            trees = _trees(self._text(batch))
            for tree in trees:
                _sent(self._api, tree, is_rehearsal=True)
        except errors.DovetailError:
            seen.counts["apply: batches refused, nothing changed"] += 1
            return "" if digest(self._api) == before else "a refused batch changed the server"
        except Exception:
            return traceback.format_exc()
        if digest(self._api) != before:
            return "a dry run changed the server"
        return self._written(trees, seen)

    def _text(self, batch: Sequence[Mutant]) -> bytes:
        """One manifest: JSON documents after each other, or in a stream of YAML, or in a list."""
        documents = [mutant.document for mutant in batch]
        if (
            self._rng.random() < 0.3
        ):  # one that would be taken alone: what is refused beside it refuses it too
            documents.insert(0, self._rng.choice(_SOURCES)[1])
        roll = self._rng.random()
        if roll < 0.1:
            return b'{"apiVersion":"v1","kind":"List","items":[' + b",".join(documents) + b"]}"
        if roll < 0.4:
            return b"\n---\n".join([b"", *documents])
        return b"\n".join(documents)

    def _written(self, trees: Sequence[Tree], seen: Seen) -> str:
        """What was taken is there and can be read again; controllers look at it, and sometimes a decision is made."""
        seen.counts["apply: batches applied"] += 1
        try:
            for tree in trees:
                with contextlib.suppress(errors.DovetailError):  # the same object twice
                    codec.decode(_sent(self._api, tree, is_rehearsal=False).document)
            self._api.settle()
            if self._rng.random() < 0.3:
                seen.counts["apply: decisions"] += 1
                world = facts_of_objects.world_of(_objects(self._api))
                decide.decide(world, policy.DEFAULT, NOW)
        except Exception:
            return traceback.format_exc()
        return ""


def _trees(text: bytes) -> list[Tree]:
    """The objects of a manifest. Raises InputError where it has a problem."""
    read = manifests.load(text)
    if read.problems or not read.objects:
        raise errors.InputError("\n".join(map(str, read.problems)))
    return [one.stored.tree for one in read.objects]


def _sent(api: api_server.SimApi, tree: Tree, *, is_rehearsal: bool) -> object_store.Record:
    """The object as the server stores it, or would."""
    kind = api.kind_of(tree)
    metadata: Tree = tree.get("metadata") or {}
    namespace = str(metadata.get("namespace") or "default") if kind.is_namespaced else ""
    # A file that was saved from a cluster has these too, and apply leaves them to the server.
    kept = {
        name: value for name, value in metadata.items() if name not in ("uid", "resourceVersion")
    }
    target = apis.Target(kind, namespace)
    return api.create_object(target, tree | {"metadata": kept}, is_rehearsal=is_rehearsal)


def _objects(api: api_server.SimApi) -> object_set.ObjectSet:
    kinds = {kind.struct for kind in registry.WORLD}
    stored = [
        codec.Stored(record.struct, record.document)
        for _, table in api.shelf.tables()
        for record in table.all()
        if type(record.struct) in kinds
    ]
    return object_set.of("fuzz", stored)


def digest(api: api_server.SimApi) -> dict[object, bytes]:
    """Every byte a server keeps."""
    return {
        (table.kind.name, record.key): record.document
        for _, table in api.shelf.tables()
        for record in table.all()
    }


def _server() -> api_server.SimApi:
    pool = fleet_spec.Pool(name="n", count=1, gpu="H100-SXM5-80GB", gpus_per_node=1)
    api = api_server.SimApi(namespaces=constraints_nodes.NAMESPACES)
    for tree in fleet_objects.objects_of(fleet_spec.Fleet(name="fuzz", pools=(pool,))):
        if tree["kind"] != "Namespace":
            api.put(tree)
    return api


# The watch


class Over(BaseException):
    """The stream has been played; no caller catches this."""


class Still:
    """A clock without time: pauses are over at once."""

    def now(self) -> datetime.datetime:
        return NOW

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class Wire(transport.Transport):
    """A server that sends the given stream, in pieces."""

    def __init__(
        self, stream: list[bytes], sound: list[Tree], rng: random.Random, *, bad_page: bytes
    ) -> None:
        super().__init__(client_config.Connection(server="http://127.0.0.1:1"))
        self._stream = stream
        self._sound = sound
        self._rng = rng
        self._bad_page = bad_page
        self.played = 0  # lines handed out so far

    async def request(self, method: str, path: str, **_: Any) -> transport.Answer:
        """The list: what is sound up to here, once in a while beside what is not."""
        if self._bad_page:
            body, self._bad_page = self._bad_page, b""
            return transport.Answer(200, {}, body)
        items = [item for item in self._sound if item["at"] <= self.played]
        version = str(10_000 + self.played)
        page = {
            "metadata": {"resourceVersion": version},
            "items": [item["object"] for item in items],
        }
        return transport.Answer(200, {}, codec.encode_tree(page))

    async def lines(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        idle_timeout: float = 0,
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[bytes, None]:
        """What was not played yet, cut into pieces and put together again by our own code."""
        if self.played >= len(self._stream):
            raise Over
        opened()
        rest = b"\n".join(self._stream[self.played :]) + b"\n"
        async for line in transport.split_lines(_served(hostile.pieces(rest, self._rng))):
            self.played += 1
            yield line


async def _served(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


class RecordingFeed(informer.Feed):
    """Passes on to a picture, and remembers what there is by the names it heard."""

    def __init__(self, picture_: informer.Informer, kind: registry.Kind) -> None:
        super().__init__(picture_, kind, trouble=self._trouble)
        self.there: dict[str, Any] = {}
        self.unreadable_count = 0

    def _trouble(self, kind: str, reason: str) -> None:
        self.unreadable_count += 1

    def replaced(self, objects: list[Any], resource_version: str) -> None:
        self.there = {item.metadata.name: item for item in objects}
        super().replaced(objects, resource_version)

    def changed(self, result: Any) -> None:
        self.there[result.metadata.name] = result
        super().changed(result)

    def deleted(self, result: Any) -> None:
        self.there.pop(result.metadata.name, None)
        super().deleted(result)


def watched(batch: Sequence[Mutant], rng: random.Random, seen: Seen, runner: asyncio.Runner) -> str:
    """Why this must not be, or nothing. All objects of a stream are read as one kind, whatever they are."""
    seen.counts["watch: objects"] += len(batch)
    kind = _BY_NAME.get(batch[0].kind, registry.POD)
    stream: list[bytes] = []
    sound: list[Tree] = []
    for mutant in batch:
        stream.append(_line(mutant, rng))
        if rng.random() < 0.5:
            tree = _sound_object(kind, len(sound), 20_000 + len(stream))
            stream.append(codec.encode_tree({"type": "ADDED", "object": tree}))
            sound.append({"at": len(stream), "object": tree})
    bad_page = _page(batch) if rng.random() < 0.3 else b""
    following = _follow(
        kind, stream, sound, rng, bad_page=bad_page, seen=seen, check=_is_checkable(batch)
    )
    try:
        return runner.run(following)
    except Exception:
        return traceback.format_exc()


async def _follow(
    kind: registry.Kind,
    stream: list[bytes],
    sound: list[Tree],
    rng: random.Random,
    *,
    bad_page: bytes,
    seen: Seen,
    check: bool,
) -> str:
    clock = Still()
    made = informer.Informer(World(), clock, (kind,))
    messages = RecordingFeed(made, kind)
    wire = Wire(stream, sound, rng, bad_page=bad_page)
    pump = asyncio.create_task(made.pump())
    with contextlib.suppress(Over):
        await watch.follow(wire, kind, messages, clock=clock, randomness=random.Random(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if pump.done():
        await pump
    pump.cancel()
    seen.counts["watch: streams"] += 1
    seen.counts["watch: lines"] += len(stream)
    seen.counts["watch: told unreadable or broken"] += messages.unreadable_count
    if hidden := [
        tree["object"]["metadata"]["name"]
        for tree in sound
        if tree["object"]["metadata"]["name"] not in messages.there
    ]:
        return f"hidden: {hidden[0]}"
    if check:
        seen.counts["watch: worlds compared with a rebuilt one"] += 1
        if differences := consistency.differences(made.world, list(messages.there.values())):
            return f"the world differs: {differences[0]}"
    return ""


def _line(mutant: Mutant, rng: random.Random) -> bytes:
    """An event as a line; a line break inside would only make two lines of it."""
    name = rng.choice(
        (
            b"ADDED",
            b"ADDED",
            b"ADDED",
            b"MODIFIED",
            b"MODIFIED",
            b"DELETED",
            b"BOOKMARK",
            b"ERROR",
            b"?",
        )
    )
    line = b'{"type":"' + name + b'","object":' + mutant.document.replace(b"\n", b" ") + b"}"
    return hostile.garbled(line, rng).replace(b"\n", b" ") if rng.random() < 0.1 else line


def _page(batch: Sequence[Mutant]) -> bytes:
    return (
        b'{"metadata":{"resourceVersion":"5"},"items":['
        + b",".join(mutant.document for mutant in batch)
        + b"]}"
    )


def _sound_object(kind: registry.Kind, number: int, version: int) -> Tree:
    metadata = {
        "name": f"sound-{number}",
        "uid": f"uid-sound-{number}",
        "resourceVersion": str(version),
    }
    if kind.is_namespaced:
        metadata["namespace"] = "default"
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}


def _is_checkable(batch: Sequence[Mutant]) -> bool:
    """Whether uids and names are as unique as on a server: only then a world can be rebuilt from a list."""
    return all(mutant.is_sound for mutant in batch)


# A recorded run


def main(arguments: list[str] | None = None) -> int:
    """0 when nothing was found, 1 when something was."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.objects", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first round's seed")
    parser.add_argument("--count", type=int, default=20_000, help="objects to send")
    parser.add_argument("--record", action="store_true", help=f"write {RESULTS.relative_to(ROOT)}")
    expected = parser.parse_args(arguments)
    tally, seen, began = Tally("objects"), Seen(), time.perf_counter()
    seed = expected.seed
    with contextlib.suppress(KeyboardInterrupt):
        while sum(tally.counts.values()) < expected.count:
            run(None, cases(random.Random(seed), BATCH), tally=tally, seed=seed, seen=seen)
            seed += 1
            if not seed % 100:
                done = sum(tally.counts.values())
                rate = done / (time.perf_counter() - began)
                print(
                    f"{done} objects, {rate:.0f}/s, {tally.disagreements} in trouble",
                    file=sys.stderr,
                    flush=True,
                )
    seconds = time.perf_counter() - began
    print(
        msgspec.json.format(
            msgspec.json.encode(_summary(tally, seen, (expected.seed, seed), seconds)), indent=2
        ).decode()
    )
    if expected.record:
        RESULTS.write_bytes(
            msgspec.json.format(
                msgspec.json.encode(_summary(tally, seen, (expected.seed, seed), seconds)), indent=2
            )
            + b"\n"
        )
    return 1 if tally.disagreements else 0


def _summary(tally: Tally, seen: Seen, seeds: tuple[int, int], seconds: float) -> Tree:
    objects_sent = sum(tally.counts.values())
    return {
        "objects": objects_sent,
        "seeds": {"first": seeds[0], "last": seeds[1] - 1, "objects_per_seed": BATCH},
        "crashes": tally.disagreements,
        "findings": [finding.ours.splitlines()[-1] for finding in tally.findings],
        "counts": dict(sorted(seen.counts.items())),
        "objects_per_second": round(objects_sent / seconds),
        "slowest_batch_or_stream": {
            "seconds": round(seen.slowest_seconds, 3),
            "seed": seen.slowest_seed,
        },
    }


if __name__ == "__main__":
    sys.exit(main())
