"""The tables of `dovetail stack check`: pools, images, the chain, ends of life, nodes, and the verdict in a sentence.

Given the answer. The same sections serve the terminal and the page. Never judges, never prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from dovetail.answer.stack.chain_findings import State
from dovetail.answer.stack.compatibility_rows import Row
from dovetail.answer.stack.end_of_life import Ending, Support
from dovetail.answer.stack.image_verdict import Verdict
from dovetail.answer.stack.stack_check import ChainResult, ImageResult, Outcome, StackCheck
from dovetail.tables import text

WORDS: Final = {
    Outcome.GO: "go: nothing that the rows know of is in the way",
    Outcome.UNKNOWN: "cannot tell: some of it is not known",
    Outcome.NO: "no: something would not work",
}


class Section(NamedTuple):
    """A heading and a table. The column `state` says which cells a page may colour; -1: none."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    state: int = -1


class _Citations:
    """The rows that the tables cite, numbered in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[Row, int] = {}

    def number(self, row: Row | None) -> str:
        """How a table cites a row."""
        if row is None:
            return "-"
        return str(self._numbers.setdefault(row, len(self._numbers) + 1))

    def section(self) -> Section:
        """The rows themselves."""
        rows = [
            [str(number), str(row), row.source, row.date, row.confidence, row.note]
            for row, number in self._numbers.items()
        ]
        return Section("Rows", ("row", "says", "source", "date", "confidence", "note"), rows)


def verdict_line(check: StackCheck) -> str:
    """The answer in one sentence, numbers first."""
    target = ", ".join(f"{part} {version}" for part, version in check.target.items())
    nodes = dict.fromkeys(Outcome, 0)
    for node in check.nodes:
        nodes[node.outcome] += 1
    broken = [image for image in check.images if image.breaks]
    pods = sum(image.pods for image in broken)
    return (
        f"{WORDS[check.outcome]} ({target or 'as it is today'}): {len(check.nodes)} nodes:"
        f" {nodes[Outcome.GO]} go, {nodes[Outcome.UNKNOWN]} cannot tell, {nodes[Outcome.NO]} no;"
        f" {pods} {'pod' if pods == 1 else 'pods'} would stop working"
    )


def sections(check: StackCheck, *, is_wide: bool) -> list[Section]:
    """All tables; wide: images that run natively, findings that are fine, and every node, too."""
    cited = _Citations()
    parts = [
        _pools(check),
        _images(check, cited, is_wide=is_wide),
        _chain(check, cited, is_wide=is_wide),
        _endings(check, cited),
        *([_nodes(check)] if is_wide else []),
    ]
    parts.append(cited.section())  # last: the others cite
    return [part for part in parts if part.rows]


def lines(check: StackCheck, *, is_wide: bool) -> list[str]:
    """The answer as text."""
    result = [verdict_line(check)]
    for section in sections(check, is_wide=is_wide):
        result += ["", *text.table(section.headers, section.rows)]
    return result


def _pools(check: StackCheck) -> Section:
    rows = [
        [
            pool.pool,
            str(pool.nodes),
            pool.gpus,
            _change(pool.drivers_now, pool.drivers_then),
            *(str(pool.pods[verdict]) for verdict in Verdict),
            pool.outcome.value,
        ]
        for pool in check.pools
    ]
    headers = ("pool", "nodes", "gpu", "driver", *(verdict.value for verdict in Verdict), "verdict")
    return Section("Pools, and their pods by verdict", headers, rows, len(headers) - 1)


def _change(now: Sequence[str], then: Sequence[str]) -> str:
    before, after = ", ".join(now), ", ".join(then)
    return before if before == after else f"{before} -> {after}"


def _images(check: StackCheck, cited: _Citations, *, is_wide: bool) -> Section:
    shown = [image for image in check.images if is_wide or not _is_plain(image)]
    headers = ("image", "cuda", "pool", "pods", "now", "then", "why", "row")
    rows = [
        [
            image.image,
            str(image.cuda),
            image.pool,
            str(image.pods),
            image.now.verdict.value,
            image.then.verdict.value,
            _why(image),
            cited.number(image.then.row),
        ]
        for image in shown
    ]
    return Section("Images", headers, rows, headers.index("then"))


def _is_plain(image: ImageResult) -> bool:
    """Whether there is nothing to say: it will run natively."""
    return image.then.verdict is Verdict.NATIVE and not image.then.notes


def _why(image: ImageResult) -> str:
    return "; ".join((image.then.why, *image.then.notes))


def _chain(check: StackCheck, cited: _Citations, *, is_wide: bool) -> Section:
    shown = [link for link in check.chain if is_wide or link.finding.state is not State.OK]
    headers = ("parts", "nodes", "verdict", "since", "why", "row")
    rows = [_link(link, cited) for link in shown]
    return Section("The chain from Kubernetes to the GPU", headers, rows, headers.index("verdict"))


def _link(link: ChainResult, cited: _Citations) -> list[str]:
    finding = link.finding
    return [
        finding.parts,
        str(len(link.nodes)),
        finding.state.value,
        "upgrade" if link.is_new else "today",
        finding.why,
        cited.number(finding.row),
    ]


def _endings(check: StackCheck, cited: _Citations) -> Section:
    headers = ("part", "version", "nodes", "support", "ends", "row")
    rows = [
        [
            ending.component,
            ending.version,
            str(ending.nodes),
            ending.support.value,
            _end(ending),
            cited.number(ending.row),
        ]
        for ending in check.endings
    ]
    return Section("Ends of life", headers, rows, headers.index("support"))


def _end(ending: Ending) -> str:
    if ending.support is Support.UNKNOWN or ending.days is None:
        return "no row says it"
    if ending.days < 0:
        return f"{ending.day}, {-ending.days} days ago"
    return f"{ending.day}, in {ending.days} days"


def _nodes(check: StackCheck) -> Section:
    rows = [
        [node.node, node.pool, node.outcome.value, "; ".join(node.reasons) or "nothing against it"]
        for node in check.nodes
    ]
    return Section("Nodes", ("node", "pool", "verdict", "why"), rows, 2)
