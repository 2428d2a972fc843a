"""The running cluster of five nodes of the command line's tests."""

from tests.cli.conftest import _small, small

__all__ = ["_small", "small"]
