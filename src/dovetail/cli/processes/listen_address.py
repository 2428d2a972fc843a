"""The type of options that name an address to listen on: HOST:PORT."""

from __future__ import annotations

from typing import Any

import click


class ListenAddress(click.ParamType[tuple[str, int]]):
    """HOST:PORT, as a pair. The example is for its error message."""

    name = "address"

    def __init__(self, example: str) -> None:
        self._example = example

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """The host without brackets, and the port."""
        host, _, port = str(value).rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65_535:
            self.fail(f"{value!r} is not HOST:PORT, such as {self._example}", param, ctx)
        return host.strip("[]"), int(port)
