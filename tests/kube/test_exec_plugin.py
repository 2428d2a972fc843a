"""Credential plugins are real programs here: small shell scripts."""

from __future__ import annotations

import asyncio
import datetime
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.kube.auth import exec_plugin
from dovetail.ports import failures
from tests.kube import serving
from tests.support import jumping
from tests.support.waiting import until

V1, V1BETA1 = exec_plugin.API_VERSIONS


def plugin(tmp_path: Path, script: str, **given: Any) -> exec_plugin.Plugin:
    path = tmp_path / "plugin"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return exec_plugin.Plugin(**{"command": str(path), "api_version": V1, **given})


def printing(api_version: str = V1, **status: Any) -> str:
    document = {"apiVersion": api_version, "kind": "ExecCredential", "status": status}
    return f"cat <<'END'\n{msgspec.json.encode(document).decode()}\nEND"


def issued(made: exec_plugin.Plugin, **given: Any) -> exec_plugin.Issued:
    return asyncio.run(exec_plugin.issue(made, **given))


def complaint(made: exec_plugin.Plugin, **given: Any) -> str:
    with pytest.raises(failures.Unauthorised) as caught:
        issued(made, **given)
    return str(caught.value)


@pytest.mark.parametrize("version", [V1, V1BETA1])
def test_a_token_and_its_end(tmp_path: Path, version: str) -> None:
    script = printing(version, token="secret", expirationTimestamp="2026-11-15T12:00:00Z")
    made = issued(plugin(tmp_path, script, api_version=version))
    assert made.token == "secret"
    assert made.expires == datetime.datetime(2026, 11, 15, 12, tzinfo=datetime.UTC).timestamp()


def test_a_certificate(tmp_path: Path) -> None:
    made = issued(plugin(tmp_path, printing(clientCertificateData="cert", clientKeyData="key")))
    assert (made.token, made.certificate, made.key, made.expires) == ("", b"cert", b"key", None)


@pytest.mark.parametrize("cluster", [b"", b'{"server":"https://a"}'])
def test_what_the_plugin_receives(tmp_path: Path, cluster: bytes) -> None:
    script = (
        f'printf %s "$KUBERNETES_EXEC_INFO" > {tmp_path}/info\n'
        f'printf "%s|%s|%s|%s" "$A" "$B" "$1" "$2" > {tmp_path}/rest\n'
        f"cat > {tmp_path}/stdin\n" + printing(token="t")
    )
    made = plugin(
        tmp_path, script, args=("x y", "z"), environment=(("A", "mine"),), cluster=cluster
    )
    issued(made, environ={**os.environ, "A": "theirs", "B": "kept"})
    info = msgspec.json.decode((tmp_path / "info").read_bytes())
    spec = {"interactive": False} | ({"cluster": {"server": "https://a"}} if cluster else {})
    assert info == {"apiVersion": V1, "kind": "ExecCredential", "spec": spec}
    assert (tmp_path / "rest").read_text() == "mine|kept|x y|z"
    assert (tmp_path / "stdin").read_bytes() == b""


def test_a_missing_plugin_comes_with_the_hint_how_to_get_it(tmp_path: Path) -> None:
    made = exec_plugin.Plugin(
        command="no-such-plugin", api_version=V1, install_hint="see example.com/install"
    )
    text = complaint(made)
    assert '"no-such-plugin" is not installed or not on PATH' in text
    assert text.endswith("see example.com/install")


def test_a_plugin_that_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "plugin").write_text("x")
    made = exec_plugin.Plugin(command=str(tmp_path / "plugin"), api_version=V1)
    assert "cannot be started: Permission denied" in complaint(made)


def test_a_plugin_that_fails_is_quoted(tmp_path: Path) -> None:
    text = complaint(plugin(tmp_path, "echo s3cret; echo 'please log in' >&2; exit 3"))
    assert "ended with code 3: please log in" in text
    assert "s3cret" not in text


def test_a_plugin_that_hangs_ends_with_its_children(tmp_path: Path) -> None:
    # The child holds the pipe open: were it not ended too, `issue` would never come back.
    script = f"sleep 1000 & echo $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/child; wait"

    async def story() -> None:
        issuing = asyncio.create_task(exec_plugin.issue(plugin(tmp_path, script), timeout=60))
        await until((tmp_path / "child").exists, "the plugin's child")
        child = int((tmp_path / "child").read_text())
        assert _is_running(child)

        jumping.jump(61)
        with pytest.raises(failures.Unauthorised, match="did not end within 60 s"):
            await issuing
        await until(lambda: not _is_running(child), "the end of the plugin's child")

    jumping.run(story())


def test_cancelling_ends_the_plugin(tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/pid; exec sleep 1000"

    async def main() -> None:
        task = asyncio.create_task(exec_plugin.issue(plugin(tmp_path, script)))
        await serving.eventually(
            lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip()
        )
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    pid = int((tmp_path / "pid").read_text())
    asyncio.run(serving.eventually(lambda: not _is_running(pid)))


def test_others_run_while_a_plugin_thinks(tmp_path: Path) -> None:
    script = f"while ! [ -e {tmp_path}/go ]; do sleep 0.01; done\n" + printing(token="t")

    async def main() -> exec_plugin.Issued:
        task = asyncio.create_task(exec_plugin.issue(plugin(tmp_path, script)))
        await asyncio.sleep(0)
        (tmp_path / "go").touch()  # a blocked loop would never get here
        return await task

    assert asyncio.run(main()).token == "t"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo s3cret", "not an ExecCredential"),
        (
            printing(V1BETA1, token="s3cret"),
            f"printed {V1BETA1} ExecCredential; the kubeconfig expects {V1}",
        ),
        (printing(), "neither a token nor a certificate"),
        (printing(clientKeyData="s3cret"), "a certificate or a key alone"),
        (printing(token="s3cret", expirationTimestamp="soon"), "not a time"),
        ('echo \'{"status":{"token":["s3cret"]}}\'', "not an ExecCredential"),
        ("true", "not an ExecCredential"),
    ],
)
def test_output_that_cannot_be_used_is_refused_without_repeating_it(
    tmp_path: Path, script: str, said: str
) -> None:
    complained = complaint(plugin(tmp_path, script))
    assert said in complained
    assert "s3cret" not in complained


def _is_running(pid: int) -> bool:
    """Whether the process still runs; one that waits to be collected by its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
