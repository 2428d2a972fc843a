"""What a fuzz run has seen: counts by kind, and the minimal disagreements as JSON lines in a git-ignored folder."""

from __future__ import annotations

import collections
import re
from pathlib import Path
from typing import Any, Final

import msgspec

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "fuzz-findings"
AGREE: Final = "agree"
VARIES: Final = "nondeterministic upstream"
REFUSED: Final = "refused by the oracle"
PANICKED: Final = "upstream panicked"
EXPLAINED: Final = "an exception with a name"
_NO_DISAGREEMENT: Final = (AGREE, VARIES, REFUSED, PANICKED, EXPLAINED)
_PER_KIND: Final = 200  # minimal cases kept of one kind in one run
_PER_SYMPTOM: Final = 3  # and of those with the same words in their reasons


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One disagreement, as small as it could be made."""

    what: str
    kind: str
    seed: int
    case: dict[str, Any]
    ours: Any
    theirs: Any
    original: Any = None


class Tally:
    """Counts of one subject; writes each new finding down as it comes."""

    def __init__(self, what: str, *, folder: Path | None = FOLDER) -> None:
        self.what = what
        self.counts: collections.Counter[str] = collections.Counter()
        self.findings: list[Finding] = []
        self._path = folder / f"{what}.jsonl" if folder else None
        self._seen: set[bytes] = set()
        self._symptoms: collections.Counter[str] = collections.Counter()

    @property
    def path(self) -> Path | None:
        """Where findings go."""
        return self._path

    def wants(self, kind: str, *reasons: str) -> bool:
        """Whether another minimal case of this kind, with these reasons, is worth the time."""
        symptom = "|".join(
            (
                kind,
                *(re.sub(r"'.*?'|\".*?\"|`.*?`|[0-9]+|: \S*$", "", reason) for reason in reasons),
            )
        )
        self._symptoms[symptom] += 1
        limit = _PER_SYMPTOM if any(reasons) else _PER_KIND
        return (
            self._symptoms[symptom] <= limit
            and sum(finding.kind == kind for finding in self.findings) < _PER_KIND
        )

    def add(self, finding: Finding) -> None:
        """Keeps a finding unless the same small case was seen in this run."""
        key = msgspec.json.encode([finding.kind, finding.case])
        if key in self._seen:
            return
        self._seen.add(key)
        self.findings.append(finding)
        if self._path:
            self._path.parent.mkdir(exist_ok=True)
            with self._path.open("ab") as out:
                out.write(msgspec.json.encode(finding) + b"\n")

    @property
    def disagreements(self) -> int:
        """Cases in which ours is not upstream's."""
        return sum(count for kind, count in self.counts.items() if kind not in _NO_DISAGREEMENT)


def unanswered(failure: str) -> str:
    """What to count a question as that upstream did not answer."""
    return PANICKED if failure.startswith("panic") else REFUSED


def upstream_version() -> str:
    """The Kubernetes the oracle is made of."""
    pins = (ROOT / "tools" / "oracle" / "go.mod").read_text().splitlines()
    return next(line.split()[1] for line in pins if line.strip().startswith("k8s.io/kubernetes "))
