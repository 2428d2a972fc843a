"""What the program is made of: pinned by hash, listed in a bill of materials, held against advisories."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tools import advisories, sbom

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
PINNED = sbom.Package("PyYAML", "6.0.2", ("0" * 64,))


def events(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"type": "ECOSYSTEM", "events": [{kind: at} for kind, at in pairs]}]


def advisory(name: str = "pyyaml", **part: Any) -> dict[str, Any]:
    """A made-up advisory."""
    about = {"package": {"ecosystem": part.pop("ecosystem", "PyPI"), "name": name}}
    more = {key: part.pop(key) for key in ("withdrawn", "summary", "aliases") if key in part}
    return {"id": "MADE-UP-1", "affected": [about | part]} | more


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_locked_package_has_a_version_and_hashes(lock: Path) -> None:
    result = sbom.packages(lock.read_text(encoding="utf-8"))
    assert len(result) > 5
    assert all(item.hashes for item in result)
    assert not re.search(r"https?://", lock.read_text(encoding="utf-8")), (
        "where packages come from is the user's choice"
    )


def test_a_package_without_a_hash_or_a_version_is_noticed() -> None:
    good = f"a==1.0 \\\n    --hash=sha256:{'0' * 64}\n    # via b\n"
    assert [package.name for package in sbom.packages(good)] == ["a"]
    with pytest.raises(sbom.LockError, match=r"b 2\.0 has no hash"):
        sbom.packages(good + "b==2.0\n")
    with pytest.raises(sbom.LockError, match="pins no version"):
        sbom.packages(good + f"b>=2.0 \\\n    --hash=sha256:{'0' * 64}\n")


def test_installations_from_the_locks_demand_the_hashes() -> None:
    lines = [
        line
        for line in (ROOT / "Makefile").read_text().splitlines()
        if "pip install" in line and ".lock" in line
    ]
    assert lines
    assert all("--require-hashes" in line for line in lines)


def test_every_go_tool_pins_its_modules_by_sum() -> None:
    result = sorted(ROOT.glob("tools/**/go.mod"))
    assert len(result) >= 4
    for module in result:
        if "require" not in module.read_text(encoding="utf-8"):
            continue  # nothing but Go's own library
        sums = module.with_name("go.sum").read_text(encoding="utf-8").splitlines()
        assert sums, module
        assert all(re.fullmatch(r"\S+ \S+ h1:[A-Za-z0-9+/]{43}=", line) for line in sums), module


def test_the_bill_of_materials_names_every_package_of_the_runtime_lock() -> None:
    done = subprocess.run(
        [sys.executable, "tools/sbom.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    made = json.loads(done.stdout)
    assert (made["bomFormat"], made["specVersion"], made["version"]) == ("CycloneDX", "1.5", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", made["serialNumber"])
    locked = sbom.packages((ROOT / "requirements" / "postgres.lock").read_text(encoding="utf-8"))
    assert [(item["name"], item["version"]) for item in made["components"]] == [
        (item.name, item.version) for item in locked
    ]
    refs = [item["bom-ref"] for item in made["components"]]
    assert len(set(refs)) == len(refs)
    assert made["dependencies"][0] == {
        "ref": made["metadata"]["component"]["bom-ref"],
        "dependsOn": refs,
    }
    for item in made["components"]:
        assert item["purl"].startswith("pkg:pypi/")
        assert all(re.fullmatch(r"[0-9a-f]{64}", entry["content"]) for entry in item["hashes"])
    installed = [item for item in made["components"] if "description" in item]
    assert len(installed) > len(locked) // 2, "the environment of the tests is made of this lock"
    assert all("licenses" in item for item in installed)


def test_the_same_lock_gives_the_same_bill(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        assert sbom.main(["--output", str(tmp_path / name)]) == 0
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


RANGES = [
    (events(("introduced", "0")), True),
    (events(("introduced", "0"), ("fixed", "6.0.2")), False),
    (events(("introduced", "0"), ("fixed", "6.0.3")), True),
    (events(("introduced", "0"), ("last_affected", "6.0.2")), True),
    (events(("introduced", "0"), ("last_affected", "6.0.1")), False),
    (events(("introduced", "6.0.2")), True),
    (events(("introduced", "6.0.2.post1")), False),
    (events(("introduced", "6.0.10")), False),  # numbers, not letters
    (
        events(("introduced", "0"), ("fixed", "6.0.2rc1")),
        False,
    ),  # a candidate comes before its release
    (events(("introduced", "0"), ("fixed", "6.0.2.post1")), True),
    (events(("introduced", "6.1"), ("fixed", "6.2"), ("introduced", "0"), ("fixed", "5.4")), False),
    (events(("introduced", "0"), ("fixed", "5.4"), ("introduced", "6.0"), ("fixed", "6.1")), True),
    (events(("introduced", "0"), ("limit", "6.0.2")), False),
    (events(("introduced", "0"), ("limit", "*")), True),
    ([{"type": "GIT", "events": [{"introduced": "0"}]}], False),
    ([], False),
]


@pytest.mark.parametrize(("ranges", "is_hit"), RANGES, ids=[str(at) for at in range(len(RANGES))])
def test_ranges_are_read_by_the_rules_of_python_versions(ranges: list[Any], is_hit: bool) -> None:
    assert bool(advisories.affected([PINNED], [advisory(ranges=ranges)])) == is_hit


def test_listed_versions_count_whatever_their_spelling() -> None:
    assert advisories.affected([PINNED], [advisory(versions=["6.0.2.0"])])
    assert not advisories.affected([PINNED], [advisory(versions=["6.0.1", "dev-of-2006"])])


@pytest.mark.parametrize(
    "given",
    [
        advisory(ecosystem="npm", versions=["6.0.2"]),
        advisory("pyyaml-ft", versions=["6.0.2"]),
        advisory(versions=["6.0.2"], withdrawn="2026-01-01T00:00:00Z"),
        {"id": "EMPTY"},
    ],
)
def test_what_concerns_others_or_was_withdrawn_is_no_hit(given: dict[str, Any]) -> None:
    assert advisories.affected([PINNED], [given]) == []


def test_a_hit_says_what_and_where_it_is_fixed_and_names_are_compared_as_indexes_do() -> None:
    ranges = events(("introduced", "0"), ("fixed", "6.0.10"), ("introduced", "7"), ("fixed", "7.1"))
    tree = advisory("Py.YAML", ranges=ranges, summary="bad\nthings", aliases=["CVE-0000-1"])
    package = PINNED._replace(name="py_yaml")
    (hit,) = advisories.affected([package, package._replace(hashes=("1" * 64,))], [tree, tree])
    assert str(hit) == "py_yaml 6.0.2: MADE-UP-1, CVE-0000-1: bad things (fixed in 6.0.10, 7.1)"


def test_the_exit_code_says_whether_there_are_hits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "a.lock"
    lock.write_text(f"pyyaml==6.0.2 \\\n    --hash=sha256:{'0' * 64}\n")
    folder = tmp_path / "advisories"
    folder.mkdir()
    (folder / "clean.json").write_text(json.dumps([advisory(versions=["1.0"]), {"id": "OTHER"}]))
    assert advisories.main([str(folder), "--lock", str(lock)]) == 0
    assert "1 packages, 2 advisories, 0 hits" in capsys.readouterr().err
    with zipfile.ZipFile(folder / "all.zip", "w") as archive:
        archive.writestr("PYSEC-1.json", json.dumps(advisory(versions=["6.0.2"])))
    assert advisories.main([str(folder), "--lock", str(lock)]) == 1
    assert "pyyaml 6.0.2: MADE-UP-1" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "{}", "[1]", "nonsense", "[" * 100_000])
def test_data_that_is_none_is_an_error_and_not_a_clean_bill(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    assert advisories.main([str(tmp_path / "a.json")]) == 2
    empty = tmp_path / "empty"
    empty.mkdir()
    assert advisories.main([str(empty)]) == 2
    assert advisories.main([str(tmp_path / "absent.json")]) == 2


def test_an_unreadable_range_is_an_error() -> None:
    for bad in (events(("introduced", "not a version")), events(("before", "1.0"))):
        with pytest.raises(advisories.AdvisoryError, match="MADE-UP-1"):
            advisories.affected([PINNED], [advisory(ranges=bad)])


def test_run_as_a_program_it_reads_the_locks_of_the_checkout(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(
        json.dumps(advisory("msgspec", ranges=events(("introduced", "0"))))
    )
    done = subprocess.run(
        [sys.executable, "tools/advisories.py", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.startswith("msgspec ")) == (1, True), done.stderr
