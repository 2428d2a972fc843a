"""`dovetail dashboard`, and the one that `up` starts beside the embedded cluster: links, options, and its end."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import ssl
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.files import state_directory
from dovetail.web.process import dashboard_process
from tests.cli import running
from tests.support import rest_place, waiting

LINK = re.compile(r"dashboard: (https?://127\.0\.0\.1:\d+/)#token=([\w-]{42})$", re.MULTILINE)
POD = """
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: train}
spec: {containers: [{name: c, image: i}]}
"""


def _ask(url: str, *, body: Any = None, **headers: str) -> tuple[int, Any, dict[str, str]]:
    content = None if body is None else json.dumps(body).encode()
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data=content, headers=sent)
    try:
        with urllib.request.urlopen(request, timeout=waiting.GIVE_UP_SECONDS) as answer:
            return answer.status, json.loads(answer.read()), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read()), dict(error.headers)


def _sign_in(url: str, token: str) -> tuple[int, str]:
    """The status, and the session cookie."""
    origin = url.rstrip("/")
    status, _, headers = _ask(
        f"{url}api/v1/session", body={"token": token}, Dovetail_Request="1", Origin=origin
    )
    cookies = {name.lower(): value for name, value in headers.items()}.get("set-cookie", "")
    return status, cookies.partition(";")[0]


@contextlib.contextmanager
def _dashboard(state: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A dashboard in the foreground: its process, its address and the token of its link."""
    process = subprocess.Popen(
        [*running.PROGRAM, "dashboard", "--no-open", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=running.environment(state),
        cwd=running.ROOT,
    )
    assert process.stdout is not None
    try:
        link = LINK.match(process.stdout.readline())
        assert link is not None, process.communicate()[1]
        yield process, link[1], link[2]
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.slow
def test_a_snapshot_is_served_until_a_signal(tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text(POD)
    with _dashboard(tmp_path / "none", "--snapshot", str(file)) as (process, url, token):
        status, cookie = _sign_in(url, token)
        assert status == 200
        assert _sign_in(url, token)[0] == 401  # a link works once
        status, session, _ = _ask(f"{url}api/v1/session", Cookie=cookie)
        assert status == 200
        assert (session["kind"], session["isLive"]) == ("snapshot", False)
        assert (session["canWrite"], "pods.yaml" in session["cluster"]) == (False, True)
        process.send_signal(signal.SIGINT)
        assert process.wait(waiting.GIVE_UP_SECONDS) == 0


@pytest.mark.slow
def test_programs_use_the_token_of_a_file(tmp_path: Path) -> None:
    file, kept = tmp_path / "pods.yaml", tmp_path / "token"
    file.write_text(POD)
    options = ("--snapshot", str(file), "--token-file", str(kept))
    with _dashboard(tmp_path / "none", *options) as (_, url, _):
        token = kept.read_text().strip()
        assert kept.stat().st_mode & 0o777 == 0o600
        assert _ask(f"{url}api/v1/session", Authorization=f"Bearer {token}")[0] == 200
    with _dashboard(tmp_path / "none", *options) as (_, url, _):
        assert _ask(f"{url}api/v1/session", Authorization=f"Bearer {token}")[0] == 200


@pytest.mark.slow
def test_it_is_served_by_https_with_a_certificate(tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text(POD)
    made = rest_place.certificate()
    options = ("--tls-cert", str(made.certificate), "--tls-key", str(made.key))
    with _dashboard(tmp_path / "none", "--snapshot", str(file), *options) as (_, url, _):
        assert url.startswith("https://")
        trust = ssl.create_default_context(cafile=str(made.certificate))
        with urllib.request.urlopen(f"{url}healthz", context=trust) as answer:
            assert answer.status == 200


@pytest.mark.slow
def test_up_starts_a_dashboard_and_down_ends_it(tmp_path: Path) -> None:
    own = tmp_path / "own"
    try:
        up = running.outside(own, "up", "--empty")
        assert up.code == 0
        link = LINK.search(up.err)
        assert link is not None, up.err
        url, token = link[1], link[2]
        assert up.err.splitlines()[-1].startswith("next: ")
        status, cookie = _sign_in(url, token)
        assert status == 200

        again = LINK.search(running.outside(own, "dashboard").out)
        assert again is not None
        assert (again[1], again[2] == token) == (url, False)
        found = LINK.search(running.outside(own, "up").err)
        assert found is not None
        assert found[1] == url
        prices = tmp_path / "prices.yaml"
        prices.write_text("currency: CHF\nprices: [{perHour: 3}]\n")
        assert running.outside(own, "up", "--prices", str(prices)).code == 0
        priced = dashboard_process.link(own, seconds=waiting.GIVE_UP_SECONDS)
        url, _, token = priced.partition("#token=")
        status, cookie = _sign_in(url, token)
        assert status == 200

        def is_read() -> bool:
            status, tree, _ = _ask(f"{url}api/v1/session", Cookie=cookie)
            assert status == 200
            return bool(tree["asOf"])

        waiting.wait_until(is_read, "the cluster to be read")
        status, table, _ = _ask(f"{url}api/v1/cost?window=1h", Cookie=cookie)
        assert (status, table["currency"]) == (200, "CHF")
        assert [note["code"] for note in table["notes"]] == []
        modes = {path.stat().st_mode & 0o777 for path in own.glob("dashboard*")}
        assert modes == {0o600}

        pid = dashboard_process.running_pid(own)
        assert pid is not None
        assert running.outside(own, "down").code == 0
        assert dashboard_process.running_pid(own) is None
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", urllib.parse.urlsplit(url).port or 0))

        bare = running.outside(own, "up", "--no-dashboard")
        assert (bare.code, LINK.search(bare.err)) == (0, None)
    finally:
        running.outside(own, "down", "--purge")
    assert not own.exists()


@pytest.mark.slow
def test_a_dashboard_follows_a_cluster_that_was_killed_and_resumed(tmp_path: Path) -> None:
    """A dashboard in the foreground stays; the cluster comes back at another address."""
    own = tmp_path / "own"
    try:
        assert running.outside(own, "up", "--empty", "--no-dashboard").code == 0
        token_file = tmp_path / "token"
        with _dashboard(own, "--token-file", str(token_file)) as (_, url, _):
            token = token_file.read_text().strip()

            def session() -> Any:
                return _ask(f"{url}api/v1/session", Authorization=f"Bearer {token}")[1]

            waiting.wait_until(lambda: session()["asOf"], "the cluster to be read")
            assert running.outside(own, "down").code == 0
            waiting.wait_until(lambda: session()["staleSince"], "the dashboard to notice")
            assert running.outside(own, "up", "--no-dashboard").code == 0
            waiting.wait_until(lambda: session()["staleSince"] is None, "the cluster's return")
    finally:
        running.outside(own, "down", "--purge")


def test_what_would_be_open_to_others_is_refused(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text(POD)
    for options, words in (
        (("--address", "0.0.0.0"), "say who may look"),
        (("--auth", "proxy", "--address", "0.0.0.0"), "claim to be anyone"),
        (("--trusted-proxy", "10.0.0.0/8"), "belong to --auth proxy"),
        (("--auth", "proxy", "--trusted-proxy", "10.0.0.0/99"), "10.0.0.0/99"),
        (("--tls-cert", "a"), "--tls-cert and --tls-key together"),
        (("--snapshot", str(file), "--auth", "token"), "need a cluster"),
    ):
        run = running.inside(state, "dashboard", "--no-open", *options)
        assert run.code in (1, 2), options
        assert words in run.err


def test_a_port_that_is_taken_is_named(state: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = running.inside(state, "dashboard", "--no-open", "--port", str(port))
    assert run.code == 1
    assert f"port {port} of 127.0.0.1 is taken" in run.err


def test_a_file_that_holds_no_secret_is_refused(state: Path, tmp_path: Path) -> None:
    (tmp_path / "short").write_text("guess me\n")
    run = running.inside(state, "dashboard", "--no-open", "--token-file", str(tmp_path / "short"))
    assert run.code == 1
    assert "at least 32" in run.err


def test_files_of_the_dashboard_are_removed_with_the_cluster() -> None:
    own = {
        state_directory.DASHBOARD,
        state_directory.DASHBOARD_LOCK,
        state_directory.DASHBOARD_LOG,
        state_directory.DASHBOARD_TOKEN,
    }
    assert own <= set(state_directory.FILES)


SLOW_IMPORT = """
import os, sys, time

class WaitsForRelease:
    def find_spec(self, name, path=None, target=None):
        while name == "uvicorn" and not os.path.exists(os.environ["RELEASE"]):
            time.sleep(0.02)

sys.meta_path.insert(0, WaitsForRelease())
"""


@pytest.mark.slow
def test_up_does_not_wait_for_a_dashboard_that_loads_slowly(tmp_path: Path) -> None:
    """The link is printed while the server's modules are not imported yet, and works as soon as they are."""
    own, release, shim = tmp_path / "own", tmp_path / "release", tmp_path / "shim"
    shim.mkdir()
    (shim / "sitecustomize.py").write_text(SLOW_IMPORT)
    try:
        up = running.outside(own, "up", "--empty", PYTHONPATH=str(shim), RELEASE=str(release))
        assert up.code == 0
        link = LINK.search(up.err)
        assert link is not None, up.err
        release.touch()
        assert _sign_in(link[1], link[2])[0] == 200
    finally:
        running.outside(own, "down", "--purge")
