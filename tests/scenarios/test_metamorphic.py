"""Public scenarios written differently are decided as before: what must not matter does not.

Each way of writing is tried on a part of the scenarios, chosen by a digest of their ids; the expectation is changed in
the same way. Four scenarios whose victims depend on ties between nodes are left out where nodes change.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dovetail.replay import json_lines
from dovetail.replay.scenarios import run_scenario, scenario_format, scenario_outcome
from tests.cli import running as commands
from tests.scenarios import comparing, scoring, transforming
from tests.scenarios.transforming import Change, Document
from tests.support import shared

MOST_JOBS = 30  # two scenarios have more, and take as long as all others
PARTS = 16  # of which every change is tried on one in `make check`, and on five more in `make test`

SAME_NODES: tuple[Change, ...] = (
    transforming.names_in_order,
    transforming.names_beyond_labels,
    transforming.shuffled,
    transforming.numbers_as_fractions,
    transforming.defaults_left_out,
    transforming.nothings_written_out,
    transforming.queue_without_jobs,
    transforming.job_that_is_over,
    transforming.job_that_may_not_start,
    transforming.priorities_stretched,
    transforming.ages_stretched,
    transforming.cpu_and_memory_scaled,
    transforming.gpu_memory_scaled,
    transforming.any_steps,
    transforming.more_cycles,
)
OTHER_NODES: tuple[Change, ...] = (transforming.names_at_random, transforming.node_without_room)
CHANGES = (*SAME_NODES, *OTHER_NODES)


@pytest.fixture(scope="module")
def public() -> list[Document]:
    """The public scenarios, but for the two large ones."""
    path = shared.data(scoring.PUBLIC)
    result = [json.loads(line) for _, line in json_lines.numbered(str(path))]
    return [item for item in result if len(item["jobs"]) <= MOST_JOBS]


def chosen(public: list[Document], change: Change, parts: range) -> Iterator[Document]:
    """Those whose digest falls into one of these parts, others for every change."""
    for document in public:
        if change in OTHER_NODES and "search_sensitive" in document["tags"]:
            continue
        if (
            hashlib.sha256(f"{change.__name__} {document['id']}".encode()).digest()[0] % PARTS
            in parts
        ):
            yield document


def problems(document: Document, change: Change) -> list[str]:
    """What is not as expected of a scenario that is written differently."""
    changed = change(document, random.Random(document["id"]))
    if changed is None:
        return []
    scenario = scenario_format.read(json.dumps(changed).encode(), place=change.__name__)
    outcome = run_scenario.run(scenario)
    result = [str(deviation) for deviation in comparing.compare(changed, scenario, outcome)]
    return [f"{document['id']}: {text}" for text in (*result, *comparing.broken(scenario, outcome))]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_another_way_of_writing_is_decided_as_before(
    public: list[Document], change: Change
) -> None:
    asked = [*chosen(public, change, range(1))]
    assert asked
    assert not [text for item in asked for text in problems(item, change)]


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_more_scenarios_are_decided_as_before(public: list[Document], change: Change) -> None:
    assert not [
        text
        for document in chosen(public, change, range(1, 4))
        for text in problems(document, change)
    ]


def test_a_change_that_matters_is_seen(public: list[Document]) -> None:
    def without_gpus(document: Document, chance: random.Random) -> Document:
        nodes = [
            item | {"gpu": {"count": 0}, "allocatable": {"cpu": 0}} for item in document["nodes"]
        ]
        jobs = [
            job | {"pods": [pod | {"state": "pending"} for pod in job["pods"]]}
            for job in document["jobs"]
        ]
        return document | {"nodes": nodes, "jobs": jobs, "claims": [], "device_slices": []}

    changing = [item for item in public if "no_change" not in item["tags"]][:10]
    assert all(problems(item, without_gpus) for item in changing)


def test_a_step_that_does_nothing_is_as_good_as_none(public: list[Document]) -> None:
    """Where a step alone changes nothing, another step after it does what it does alone."""
    single = [
        document
        for document in public
        if document["run"]["mode"] == "single" and document["run"]["actions"] == ["reclaim"]
    ]
    asked = 0
    for document in single[::6]:
        alone = report_of(document)
        for idle in ("consolidation", "preempt", "stale_gang_eviction"):
            first = report_of(document | {"run": document["run"] | {"actions": [idle]}})
            if sum(msgspec.to_builtins(first.per_cycle[0]).values()):
                continue
            asked += 1
            assert (
                report_of(document | {"run": document["run"] | {"actions": [idle, "reclaim"]}})
                == alone
            ), (
                document["id"],
                idle,
            )
    assert asked > 10


def report_of(document: Document) -> scenario_outcome.ScenarioReport:
    scenario = scenario_format.read(json.dumps(document).encode(), place="here")
    return scenario_outcome.report(scenario, run_scenario.run(scenario))


def test_packed_or_not_with_blank_lines_and_other_ends_of_lines(
    public: list[Document], tmp_path: Path
) -> None:
    lines = [json.dumps(one, ensure_ascii=at % 2 == 0) for at, one in enumerate(public[:4])]
    files = {
        "plain.jsonl": "\n".join(lines).encode(),  # the last line has no end
        "windows.jsonl": ("\r\n".join(lines) + "\r\n\r\n").encode(),
        "blank.jsonl": ("\n\n" + "\n \n".join(lines) + "\n").encode(),
        "packed": gzip.compress(("\n".join(lines) + "\n").encode()),
        "twice.gz": gzip.compress((lines[0] + "\n").encode())
        + gzip.compress("\n".join(lines[1:]).encode()),
    }
    answers = set()
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        run = commands.inside(
            tmp_path, "decide", "--scenarios", str(tmp_path / name), "-o", "jsonl"
        )
        assert (run.code, run.err) == (0, ""), name
        answers.add(run.out)
    assert len(answers) == 1


def test_names_of_any_kind_are_given_back_as_they_came(
    public: list[Document], tmp_path: Path
) -> None:
    strange = [
        "x" * 5000,
        "ключ",
        "作業 7",
        'quo"te\\',
        "tab\tnew\nline",
        "../..",
        "",
        "sha256-",
        "\u2028",
        "🚀",
    ]
    document = public[0] | {"id": "i" * 10_000 + "🚀"}
    pod = {"state": "pending", "request": {"cpu": 1}}
    leaf = public[0]["jobs"][0]["queue"]
    document["jobs"] = [
        {"name": name, "queue": leaf, "pods": [pod | {"name": f"{name}-{at}"}]}
        for at, name in enumerate(strange)
    ]
    (tmp_path / "f").write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    run = commands.inside(tmp_path, "decide", "--scenarios", str(tmp_path / "f"), "-o", "jsonl")
    assert run.code == 0, run.err
    answer = json.loads(run.out)
    assert (answer["id"], [*answer["jobs"]]) == (document["id"], strange)
    assert all(item["states"] == {"bound": 1} for item in answer["jobs"].values())
