"""A real Prometheus and a real Alertmanager on loopback, with our rules, for the time of a test."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from dovetail.monitoring import alertmanager_routes
from dovetail.monitoring.rules import rules_file
from tests.monitoring.scripted_exporter import Exporter
from tests.support import real, waiting


class Watching(NamedTuple):
    """A Prometheus that scrapes the exporter every second, and the Alertmanager that it notifies."""

    exporter: Exporter
    prometheus: str
    alertmanager: str

    def ask(self, path: str, **parameters: str) -> Any:
        """The `data` of an answer of Prometheus."""
        return answer(f"{self.prometheus}/api/v1/{path}", **parameters)["data"]

    def samples(self, query: str) -> list[dict[str, Any]]:
        """What an instant query returns: series with labels and values."""
        data = self.ask("query", query=query)
        if data["resultType"] == "scalar":
            return [{"metric": {}, "value": data["result"]}]
        return list(data["result"])


def answer(url: str, **parameters: str) -> Any:
    """A JSON document."""
    if parameters:
        url = f"{url}?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{url}: {error.read().decode()}") from None


@contextlib.contextmanager
def watching(directory: Path) -> Iterator[Watching]:
    """Both programs, ready, with a scripted exporter."""
    with contextlib.ExitStack() as stack:
        exporter = stack.enter_context(Exporter())
        alertmanager = stack.enter_context(_alertmanager(directory, exporter.address))
        prometheus = stack.enter_context(_prometheus(directory, exporter.address, alertmanager))
        yield Watching(exporter, prometheus, f"http://{alertmanager}")


@contextlib.contextmanager
def _alertmanager(directory: Path, hooks: str) -> Iterator[str]:
    routes = alertmanager_routes.tree(f"http://{hooks}/")
    routes["route"] |= {"group_wait": "0s", "group_interval": "1s"}
    file = directory / "alertmanager.yaml"
    file.write_text(yaml.safe_dump(routes), encoding="utf-8")
    with _program(
        "prometheus-alertmanager",
        f"--config.file={file}",
        f"--storage.path={directory / 'alertmanager'}",
        "--cluster.listen-address=",
        directory=directory,
        ready="/-/ready",
    ) as address:
        yield address


@contextlib.contextmanager
def _prometheus(directory: Path, exporter: str, alertmanager: str) -> Iterator[str]:
    rules = directory / "rules.yaml"
    rules.write_text(rules_file.text(), encoding="utf-8")
    configuration = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [
            {
                "job_name": "dovetail",
                "honor_labels": True,
                "static_configs": [{"targets": [exporter]}],
            }
        ],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
    }
    file = directory / "prometheus.yaml"
    file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    with _program(
        "prometheus",
        f"--config.file={file}",
        f"--storage.tsdb.path={directory / 'tsdb'}",
        directory=directory,
        ready="/-/ready",
    ) as address:
        yield f"http://{address}"


@contextlib.contextmanager
def _program(name: str, *options: str, directory: Path, ready: str) -> Iterator[str]:
    """A server at a free port of loopback; it ends with the block, and its log stays in the directory."""
    program = shutil.which(name)
    if program is None:
        real.missing(f"{name}; make system-deps installs it")
    address = f"127.0.0.1:{_free_port()}"
    log = directory / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, *options, f"--web.listen-address={address}"],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
        )
        try:
            waiting.wait_until(
                lambda: _is_ready(f"http://{address}{ready}", process),
                f"{name} to be ready",
                so_far=lambda: log.read_text(encoding="utf-8")[-2000:],
            )
            yield address
        finally:
            process.terminate()
            process.wait(timeout=waiting.GIVE_UP_SECONDS)


def _is_ready(url: str, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "it ended"
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
