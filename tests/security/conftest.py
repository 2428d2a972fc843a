"""The running cluster of the command line's tests, for attacks on the reader of its output."""

from tests.cli.conftest import _sample, cluster, empty, state

__all__ = ["_sample", "cluster", "empty", "state"]
