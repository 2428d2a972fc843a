"""A port is given to one: neither twice here, nor to another process that asks at the same time."""

from __future__ import annotations

import subprocess
import sys

from dovetail.devcluster import free_ports

ASK = (
    "import sys; from dovetail.devcluster import free_ports\n"
    "print(free_ports.reserve([int(port) for port in sys.argv[1:]]))"
)


def test_no_two_parts_get_one_port() -> None:
    first, second = free_ports.reserve(), free_ports.reserve()
    free_ports.release(second)
    assert {_given_here(first, second) for _ in range(8)} == {second}
    free_ports.release(first)


def test_another_process_is_given_a_port_once_it_is_released() -> None:
    first, second = free_ports.reserve(), free_ports.reserve()
    free_ports.release(second)
    assert {_given_elsewhere(first, second) for _ in range(4)} == {second}
    free_ports.release(first)
    free_ports.release(first)  # once was enough, twice does no harm
    assert _given_elsewhere(first) == first


def _given_here(*among: int) -> int:
    port = free_ports.reserve(among)
    free_ports.release(port)
    return port


def _given_elsewhere(*among: int) -> int:
    command = [sys.executable, "-c", ASK, *map(str, among)]
    return int(
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    )
