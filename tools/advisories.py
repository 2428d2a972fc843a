"""Holds the packages of lock files against known vulnerabilities, without a network.

Given advisories in the OSV format, as JSON files, JSON arrays or folders and zip archives of either; a package is
affected where its locked version is listed or lies in a range, by the version rules of Python packages. Withdrawn
advisories count for nothing. Prints one line per hit. Never downloads, never changes a lock.

    python tools/advisories.py ADVISORIES... [--lock requirements/run.lock ...]
"""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from packaging import version as versions

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(
    0, str(ROOT)
)  # run as a program, this folder's neighbours are not importable otherwise

from tools import sbom  # noqa: E402

LOCKS: Final = (ROOT / "requirements" / "run.lock", ROOT / "requirements" / "dev.lock")
ECOSYSTEM: Final = "PyPI"
FOUND, UNUSABLE = 1, 2

Tree = dict[str, Any]


class Hit(NamedTuple):
    """A locked package that an advisory speaks of."""

    package: str
    version: str
    id: str
    aliases: tuple[str, ...]
    fixed: tuple[str, ...]
    summary: str

    def __str__(self) -> str:
        names = ", ".join((self.id, *self.aliases))
        fix = f"fixed in {', '.join(self.fixed)}" if self.fixed else "no fixed version known"
        return f"{self.package} {self.version}: {names}: {self.summary or 'no summary'} ({fix})"


class AdvisoryError(Exception):
    """A file that holds no advisories, or one that cannot be judged."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when no locked package is affected, 1 when one is, 2 when the data cannot be used."""
    parser = argparse.ArgumentParser(prog="advisories", description=__doc__)
    parser.add_argument(
        "advisories", nargs="+", type=Path, help="OSV JSON files, folders or zip archives"
    )
    parser.add_argument("--lock", type=Path, action="append", help="default: both locks")
    wanted = parser.parse_args(arguments)
    try:
        known = [one for place in wanted.advisories for one in read(place)]
        locked = [
            one
            for lock in wanted.lock or LOCKS
            for one in sbom.packages(lock.read_text(encoding="utf-8"))
        ]
        hits = affected(locked, known)
    except (AdvisoryError, sbom.LockError, OSError) as error:
        print(f"advisories: {error}", file=sys.stderr)
        return UNUSABLE
    for hit in hits:
        print(hit)
    print(
        f"{len(set(locked))} packages, {len(known)} advisories, {len(hits)} hits", file=sys.stderr
    )
    return FOUND if hits else 0


def read(place: Path) -> Iterator[Tree]:
    """Every advisory of a file, a folder or an archive. Raises AdvisoryError where there is none to be had."""
    if place.is_dir():
        files = sorted((*place.rglob("*.json"), *place.rglob("*.zip")))
        if not files:
            raise AdvisoryError(f"{place}: no .json and no .zip files in this folder")
        for file in files:
            yield from read(file)
    elif place.suffix == ".zip":
        with zipfile.ZipFile(place) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".json"):
                    yield from _parsed(archive.read(name), f"{place}: {name}")
    else:
        yield from _parsed(place.read_bytes(), str(place))


def affected(locked: Iterable[sbom.Package], known: Iterable[Tree]) -> list[Hit]:
    """What the advisories say against the packages, each pair once, by package and advisory."""
    by_name: dict[str, set[sbom.Package]] = {}
    for package in locked:
        by_name.setdefault(sbom.normalised(package.name), set()).add(
            package._replace(hashes=(), marker="")
        )
    hits: set[Hit] = set()
    for advisory in known:
        if advisory.get("withdrawn"):
            continue
        for part in advisory.get("affected") or ():
            about = part.get("package") or {}
            if about.get("ecosystem") != ECOSYSTEM:
                continue
            for package in by_name.get(sbom.normalised(str(about.get("name", ""))), ()):
                if is_affected(package.version, part, id_=str(advisory.get("id"))):
                    hits.add(_hit(package, advisory, part))
    return sorted(hits)


def is_affected(version: str, part: Tree, *, id_: str = "") -> bool:
    """Whether a version is listed, or lies in a range, of one `affected` entry."""
    pinned = _version(version, id_)
    if any(_is_same(pinned, listed) for listed in part.get("versions") or ()):
        return True
    return any(
        _lies_in(pinned, one.get("events") or (), id_)
        for one in part.get("ranges") or ()
        if one.get("type")
        == "ECOSYSTEM"  # commits and other orders say nothing about a release's version
    )


def _lies_in(pinned: versions.Version, events: Sequence[Tree], id_: str) -> bool:
    """The events, in order of version, switch between affected and not; `last_affected` still is."""
    inside = False
    for at, kind in sorted(_moments(events, id_), key=lambda one: (one[0], _ORDER[one[1]])):
        if kind == "last_affected":
            if pinned > at:
                inside = False
        elif pinned >= at:
            inside = kind == "introduced"
    return inside


_ORDER: Final = {"introduced": 0, "last_affected": 1, "fixed": 2, "limit": 2}


def _moments(events: Sequence[Tree], id_: str) -> Iterator[tuple[versions.Version, str]]:
    for event in events:
        for kind, text in event.items():
            if kind not in _ORDER:
                raise AdvisoryError(f'{id_}: unknown event "{kind}" in a range')
            if kind == "limit" and text == "*":
                continue
            # 0 stands before every version, also before 0.dev0.
            yield (versions.Version("0.dev0") if text == "0" else _version(str(text), id_)), kind


def _version(text: str, id_: str) -> versions.Version:
    try:
        return versions.Version(text)
    except versions.InvalidVersion:
        raise AdvisoryError(f'{id_}: "{text}" is not a version of a Python package') from None


def _is_same(pinned: versions.Version, listed: object) -> bool:
    try:
        return versions.Version(str(listed)) == pinned
    except (
        versions.InvalidVersion
    ):  # very old releases have names of their own; none of them can be locked
        return False


def _hit(package: sbom.Package, advisory: Tree, part: Tree) -> Hit:
    fixed = {
        str(event["fixed"])
        for one in part.get("ranges") or ()
        if one.get("type") == "ECOSYSTEM"
        for event in one.get("events") or ()
        if "fixed" in event
    }
    return Hit(
        package=package.name,
        version=package.version,
        id=str(advisory.get("id", "?")),
        aliases=tuple(sorted(str(one) for one in advisory.get("aliases") or ())),
        fixed=tuple(sorted(fixed, key=versions.Version)),
        summary=" ".join(str(advisory.get("summary") or "").split())[:200],
    )


def _parsed(text: bytes, place: str) -> Iterator[Tree]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AdvisoryError(f"{place}: not JSON: {error}") from None
    for one in found if isinstance(found, list) else [found]:
        if not isinstance(one, dict) or "id" not in one:
            raise AdvisoryError(f"{place}: not an advisory in the OSV format: it has no id")
        yield one


if __name__ == "__main__":
    sys.exit(main())
