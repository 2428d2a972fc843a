"""Writes what the program is made of: the packages of a lock file as a CycloneDX 1.5 document.

Given a lock with hashes; names, versions and hashes come from there, licences and summaries from what is installed, as
far as it is. Twice in one environment gives the same document. Never asks the network.

    python tools/sbom.py [--lock requirements/postgres.lock] [--output sbom.json]
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

ROOT: Final = Path(__file__).resolve().parent.parent
LOCK: Final = ROOT / "requirements" / "postgres.lock"
FORMAT: Final = "CycloneDX"
FORMAT_VERSION: Final = "1.5"
SCHEMA: Final = "http://cyclonedx.org/schema/bom-1.5.schema.json"
# Names that CycloneDX takes as SPDX ids; anything else goes under a licence's free name.
SPDX: Final = frozenset(
    (
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "ISC",
        "MIT",
        "MPL-2.0",
        "PSF-2.0",
        "Python-2.0",
        "Unlicense",
    )
)
_HEAD: Final = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)\s*(?:;\s*(?P<marker>[^\\]+?))?\s*\\?$"
)
_HASH: Final = re.compile(r"--hash=sha256:(?P<digest>[0-9a-f]{64})")

Tree = dict[str, Any]


class Package(NamedTuple):
    """One package of a lock."""

    name: str
    version: str
    hashes: tuple[str, ...]
    marker: str = ""

    @property
    def purl(self) -> str:
        """What tools know it by."""
        return f"pkg:pypi/{normalised(self.name)}@{self.version}"


class LockError(Exception):
    """A line that pins nothing, or a package without hashes."""


def main(arguments: list[str] | None = None) -> int:
    """0 when written, 1 for a lock that cannot be trusted."""
    parser = argparse.ArgumentParser(prog="sbom", description=__doc__)
    parser.add_argument("--lock", type=Path, default=LOCK)
    parser.add_argument("--output", type=Path, help="standard output where none is named")
    wanted = parser.parse_args(arguments)
    try:
        found = packages(wanted.lock.read_text(encoding="utf-8"))
    except (LockError, OSError) as error:
        print(f"sbom: {wanted.lock}: {error}", file=sys.stderr)
        return 1
    text = msgspec.json.format(msgspec.json.encode(document(found)), indent=2).decode() + "\n"
    if wanted.output is None:
        sys.stdout.write(text)
    else:
        wanted.output.write_text(text, encoding="utf-8")
        print(f"{len(found)} packages in {wanted.output}", file=sys.stderr)
    return 0


def packages(text: str) -> list[Package]:
    """Every package of a lock, by name. Raises LockError for one that is not pinned to a version and to hashes."""
    found: list[Package] = []
    for number, entry in enumerate(_entries(text), start=1):
        head = _HEAD.match(entry.splitlines()[0])
        if head is None:
            raise LockError(f"entry {number} pins no version: {entry.splitlines()[0]}")
        hashes = tuple(sorted(one["digest"] for one in _HASH.finditer(entry)))
        if not hashes:
            raise LockError(f"{head['name']} {head['version']} has no hash")
        found.append(Package(head["name"], head["version"], hashes, head["marker"] or ""))
    return sorted(found, key=lambda one: normalised(one.name))


def document(found: list[Package]) -> Tree:
    """The bill of materials."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    about = f"pkg:pypi/{project['name']}@{project['version']}"
    parts = [one.purl for one in found]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, "\n".join([about, *parts]))
    return {
        "$schema": SCHEMA,
        "bomFormat": FORMAT,
        "specVersion": FORMAT_VERSION,
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": about,
                "name": project["name"],
                "version": project["version"],
                "purl": about,
                "licenses": _licences(project["license"]),
            }
        },
        "components": [_component(one) for one in found],
        "dependencies": [{"ref": about, "dependsOn": parts}, *({"ref": one} for one in parts)],
    }


def normalised(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _entries(text: str) -> list[str]:
    """The lock without its comments, one text per package."""
    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    entries: list[str] = []
    for line in lines:
        if line[0].isspace() and entries:
            entries[-1] += "\n" + line
        else:
            entries.append(line)
    return entries


def _component(one: Package) -> Tree:
    made: Tree = {
        "type": "library",
        "bom-ref": one.purl,
        "name": one.name,
        "version": one.version,
        "purl": one.purl,
        # One component stands for every file an index may send: each file's hash is one the installer accepts.
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in one.hashes],
    }
    if one.marker:
        made["properties"] = [{"name": "python:marker", "value": one.marker}]
    try:
        installed = importlib.metadata.metadata(one.name).json
    except importlib.metadata.PackageNotFoundError:
        return made
    if summary := installed.get("summary"):
        made["description"] = summary
    if licences := _licences(_licence_of(installed)):
        made["licenses"] = licences
    return made


def _licence_of(installed: Tree) -> str:
    """What the package says: an expression, else its classifiers, else the first line of its own words."""
    if said := installed.get("license_expression"):
        return str(said)
    classified = [
        one.rpartition("::")[2].strip()
        for one in installed.get("classifier", ())
        if one.startswith("License ::") and "::" in one.removeprefix("License ::")
    ]
    if classified:
        return " AND ".join(classified)
    words = str(installed.get("license") or "").strip()
    return words.splitlines()[0][:200] if words else ""


def _licences(said: str) -> list[Tree]:
    if not said:
        return []
    if said in SPDX:
        return [{"license": {"id": said}}]
    parts = re.split(r"\s+(?:AND|OR)\s+", said)
    if len(parts) > 1 and all(part.strip("()") in SPDX for part in parts):
        return [{"expression": said}]
    return [{"license": {"name": said}}]


if __name__ == "__main__":
    sys.exit(main())
