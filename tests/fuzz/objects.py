"""Objects that mean harm: none crashes the apply path or the watch decoder, hides another, or is applied in part.

Mutated real objects go two ways, in turns: as a manifest into the cluster in memory (and, now and then, into the state
file and through a turn of deciding), or as lists and lines of a watch, cut anywhere, into a picture. Anything raised
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
import tempfile
import time
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from dovetail import errors
from dovetail.kube.auth import client_config
from dovetail.kube.http import transport
from dovetail.kube.watching import watch
from dovetail.kubetypes import codec, registry
from dovetail.live.informer import consistency, informer
from dovetail.manifest import manifests
from dovetail.sim.fleet import fleet_objects, fleet_spec
from dovetail.sim.local import control, local_cluster, state_dir
from dovetail.world.world import World
from tests.fuzz.findings import AGREE, ROOT, Finding, Tally
from tests.generators import claims, constraints, constraints_nodes, extremes, mutations, slices
from tests.security import hostile

Tree = dict[str, Any]

NOW: Final = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
STAMP: Final = "2030-01-01T00:00:00Z"
BATCH: Final = 200
MOST_RECORDS: Final = 40  # then the cluster begins anew, so that checking it stays cheap
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
    """A cluster that manifests are applied to, as `dovetail apply` does it."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._base = _base()
        self._cluster = self._base

    def apply(self, batch: Sequence[Mutant], seen: Seen) -> str:
        """Why this must not be, or nothing."""
        seen.counts["apply: objects"] += len(batch)
        before = digest(self._cluster)
        try:
            text = self._text(batch)
            outcome = applied(self._cluster, text)
        except errors.DovetailError:
            outcome = None
        except Exception:
            return traceback.format_exc()
        if digest(self._cluster) != before:
            return "apply changed the cluster it was given"
        if not isinstance(outcome, local_cluster.Applied):
            seen.counts["apply: batches refused, nothing changed"] += 1
            return self._filed(text, seen, is_refused=True) if self._rng.random() < 0.01 else ""
        seen.counts["apply: batches applied"] += 1
        return self._kept(outcome, seen) or (
            self._filed(text, seen, is_refused=False) if self._rng.random() < 0.02 else ""
        )

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

    def _kept(self, outcome: local_cluster.Applied, seen: Seen) -> str:
        """What was applied is there, whole, and can be read again; sometimes others decide about it."""
        if any(change.key not in outcome.cluster.records for change in outcome.changes):
            return "apply reported an object it did not store"
        try:
            for change in outcome.changes:
                local_cluster.decoded(outcome.cluster.records[change.key])
            if self._rng.random() < 0.3:
                seen.counts["apply: turns of deciding"] += 1
                control.turn(outcome.cluster, now=NOW)
        except Exception:
            return traceback.format_exc()
        if self._rng.random() < 0.4:
            self._cluster = (
                outcome.cluster if len(outcome.cluster.records) < MOST_RECORDS else self._base
            )
        return ""

    def _filed(self, text: bytes, seen: Seen, *, is_refused: bool) -> str:
        """The same through the state file: refused, it keeps every byte."""
        with tempfile.TemporaryDirectory() as folder:
            opened = state_dir.Local(Path(folder), clock=lambda: NOW)
            opened.store.change(lambda _: (self._cluster, None))
            before = _files(Path(folder))
            given = [local_cluster.Given(item.stored.tree) for item in manifests.load(text).objects]
            is_bad = bool(manifests.load(text).problems)
            try:
                outcome = (
                    None if is_bad else opened.apply(given, namespace="default", dry_run=False)
                )
                again = opened.store.load()
            except Exception:
                return traceback.format_exc()
            if not isinstance(outcome, local_cluster.Applied):
                seen.counts["apply: state files refused, byte-identical"] += 1
                return (
                    ""
                    if _files(Path(folder)) == before
                    else "a refused batch changed the state file"
                )
            seen.counts["apply: state files written"] += 1
            if is_refused:
                return "the state file took what the cluster refused"
            return (
                ""
                if again is not None and digest(again) == digest(outcome.cluster)
                else "stored differs from applied"
            )


def applied(
    cluster: local_cluster.Cluster, text: bytes
) -> local_cluster.Applied | local_cluster.Refused | None:
    """As the command does it: nothing where the text has a problem."""
    read = manifests.load(text)
    if read.problems or not read.objects:
        return None
    given = [local_cluster.Given(item.stored.tree, "fuzz") for item in read.objects]
    return local_cluster.apply(cluster, given, now=STAMP, check_selector=state_dir.check_selector)


def digest(cluster: local_cluster.Cluster) -> bytes:
    """Every byte a cluster keeps."""
    parts = [cluster.name.encode(), str(cluster.revision).encode()]
    for key, record in sorted(cluster.records.items()):
        parts += [repr(key).encode(), bytes(record.document), bytes(record.applied)]
    return b"\0".join(parts)


def _base() -> local_cluster.Cluster:
    pool = fleet_spec.Pool(name="n", count=1, gpu="H100-SXM5-80GB", gpus_per_node=1)
    trees = fleet_objects.objects_of(fleet_spec.Fleet(name="fuzz", pools=(pool,)))
    trees += [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in constraints_nodes.NAMESPACES
    ]
    given = [local_cluster.Given(tree) for tree in trees]
    made = local_cluster.apply(
        local_cluster.Cluster("fuzz"),
        given,
        now=STAMP,
        check_selector=state_dir.check_selector,
        as_manifest=False,
    )
    assert isinstance(made, local_cluster.Applied)
    return made.cluster


def _files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file()}


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
    """A server that says what it is told to, in pieces."""

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
