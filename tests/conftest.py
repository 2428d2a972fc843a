"""Fixtures of all tests: the upstream oracle and real clusters, started by the first test that asks, ended once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Final

import hypothesis
import pytest

from tests.support import closing, gpu_node, leftovers, lengths, live
from tests.support import cluster as planes
from tests.support import oracle as upstream

# The one profile of all properties. It has no clock: a deadline, or the health check for slow drawing, would fail
# a correct program on a busy machine. Under CI the same tree draws the same examples, so that a verdict never
# depends on chance and a failure can be repeated; elsewhere every run draws new ones and the database of failures
# repeats what failed. The printed blob repeats a single failure anywhere (`@reproduce_failure`).
hypothesis.settings.register_profile(
    "dovetail",
    deadline=None,
    derandomize="CI" in os.environ,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("dovetail")

# A shell ignores SIGINT for what it starts in the background, and all children inherit that: a test that interrupts
# a program would wait for it in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

leftovers.name_openers()

LONGEST_FIRST: Final = (
    "tests/faults/test_campaign.py",
    "tests/hostile/",
    "tests/node_e2e/",  # a worker that runs one starts a cluster with a real node: they stay together
    "tests/image/",
    "tests/e2e/test_scale.py",
    "tests/bench/",
    "tests/e2e/",
    "tests/nvidia/",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out older versions of tests for the newest alone, and long tests of a short run. What takes minutes begins
    at once, so that no worker is left alone with it at the end.
    """
    left_out = [item for item in items if _is_left_out(item)]
    config.hook.pytest_deselected(items=left_out)
    unwanted = set(left_out)
    items[:] = [item for item in items if item not in unwanted]
    items.sort(
        key=lambda item: next(
            (at for at, part in enumerate(LONGEST_FIRST) if item.nodeid.startswith(part)), 99
        )
    )


def _is_left_out(item: pytest.Item) -> bool:
    marks = {mark.name for mark in item.iter_markers()}
    return {"newest", "skew"} <= marks or ("long" in marks and not lengths.IS_FULL)


@pytest.hookimpl(trylast=True)  # after the slowest tests
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The closing words: what recorded data was not there."""
    closing.write(terminalreporter)


@pytest.fixture(scope="session")
def oracle() -> Iterator[upstream.Oracle]:
    """The running oracle; skips, or fails under REQUIRE_REAL=1, where it cannot be built."""
    yield upstream.session()
    upstream.stop_session()


@pytest.fixture(scope="session", autouse=True)
def _clusters_end_with_the_session() -> Iterator[None]:
    """Ends whatever clusters the tests of this process shared."""
    yield
    live.stop_all()
    gpu_node.stop_all()  # before the API server it reports to
    planes.stop_all()
