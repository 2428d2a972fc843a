"""The slots that we report are those of NVIDIA's upgrade library, on any fleet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.upgrade.adapters import operator_levers
from dovetail.upgrade.adapters.operator_labels import STATE, State
from tests.support import oracle, upgrade_library
from tests.upgrade import trees

pytestmark = pytest.mark.slow
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: none
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: none, context: {cluster: none, user: ""}}]
"""
NODE = st.tuples(st.sampled_from(list(State)), st.booleans(), st.booleans())
LIMIT = st.one_of(st.integers(0, 12), st.integers(0, 100).map(lambda percent: f"{percent}%"))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[oracle.Oracle]:
    """The library with a server that is not there: it counts without one."""
    path: Path = tmp_path_factory.mktemp("library") / "kubeconfig"
    path.write_text(KUBECONFIG)
    with upgrade_library.start(path) as process:
        yield process


@settings(max_examples=500)
@given(fleet=st.lists(NODE, min_size=1, max_size=12), parallel=st.integers(0, 12), limit=LIMIT)
def test_slots_equal_those_of_the_library(
    library: oracle.Oracle,
    fleet: list[tuple[State, bool, bool]],
    parallel: int,
    limit: int | str,
) -> None:
    nodes = [
        trees.node(f"n{number}", {STATE: state.value}, is_cordoned=is_cordoned, is_ready=is_ready)
        for number, (state, is_cordoned, is_ready) in enumerate(fleet)
    ]
    policy: dict[str, Any] = {"maxParallelUpgrades": parallel, "maxUnavailable": limit}
    theirs = library.ask({"nodes": nodes, "policy": policy})
    lever = operator_levers.lever_of(trees.facts("n0", *nodes, trees.policy(**policy)))
    assert lever is not None
    assert "error" not in theirs
    assert operator_levers.slots(lever).free == max(theirs["slots"], 0)
