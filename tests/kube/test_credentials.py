"""The identity of the moment: files that change, plugins whose tokens end, refusals."""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path

import pytest

from dovetail.kube.auth import credentials, exec_plugin
from dovetail.ports import failures

PLUGIN = exec_plugin.Plugin(command="plugin", api_version=exec_plugin.API_VERSIONS[0])


class Plugin:
    """Issues token-1, token-2, ... Each run waits until it may end."""

    def __init__(self, *, expires: float | None = None, is_held: bool = False) -> None:
        self.runs = 0
        self.expires = expires
        self.may_end = asyncio.Event()
        self.is_held = is_held
        self.failure: failures.ApiFailure | None = None

    async def __call__(self, plugin: exec_plugin.Plugin) -> exec_plugin.Issued:
        self.runs += 1
        if self.is_held:
            await self.may_end.wait()
        if self.failure:
            raise self.failure
        return exec_plugin.Issued(
            token=f"token-{self.runs}", certificate=b"c", key=b"k", expires=self.expires
        )


class Time:
    """A clock to set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def headers(**given: object) -> dict[str, str]:
    identity = asyncio.run(credentials.Source(credentials.Credentials(**given)).current())  # type: ignore[arg-type]
    return dict(identity.headers)


def test_tokens_passwords_and_no_credentials() -> None:
    assert headers(token="t") == {"Authorization": "Bearer t"}
    assert headers() == {}
    basic = headers(username="ann", password="pä:ss")["Authorization"]
    assert base64.b64decode(basic.removeprefix("Basic ")).decode() == "ann:pä:ss"
    assert headers(token="t", impersonation=(("Impersonate-User", "bob"),)) == {
        "Impersonate-User": "bob",
        "Authorization": "Bearer t",
    }


def test_a_token_no_header_can_carry_is_refused_unseen() -> None:
    for token in ("a\nb", "s3crét"):
        with pytest.raises(failures.Unauthorised) as caught:
            headers(token=token)
        assert token not in str(caught.value)


def test_a_changed_token_file_is_noticed_at_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")

    async def main() -> None:
        source = credentials.Source(credentials.Credentials(token_file=str(file)))
        first = await source.current()
        assert dict(first.headers) == {"Authorization": "Bearer one"}
        assert await source.current() is first
        replacement = tmp_path / "next"
        replacement.write_text("two\n")
        replacement.rename(file)
        assert dict((await source.current()).headers) == {"Authorization": "Bearer two"}

    asyncio.run(main())


def test_a_token_file_that_looks_the_same_is_read_again_after_a_minute_or_a_refusal(
    tmp_path: Path,
) -> None:
    file = tmp_path / "token"
    time = Time()

    def write(token: str) -> None:
        with file.open("r+" if file.exists() else "w") as opened:
            opened.write(token)
        os.utime(file, ns=(1, 1))

    async def main() -> None:
        source = credentials.Source(credentials.Credentials(token_file=str(file)), monotonic=time)
        write("one")
        first = await source.current()
        write("two")
        assert await source.current() == first
        time.now = credentials.REREAD_SECONDS
        assert dict((await source.current()).headers) == {"Authorization": "Bearer two"}
        write("six")
        refused = await source.current()
        assert dict((await source.renew(refused)).headers) == {"Authorization": "Bearer six"}

    asyncio.run(main())


def test_a_token_file_beats_a_token_and_outlives_its_absence(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("file")

    async def main() -> None:
        source = credentials.Source(credentials.Credentials(token="inline", token_file=str(file)))
        first = await source.current()
        assert dict(first.headers) == {"Authorization": "Bearer file"}
        file.unlink()
        assert await source.current() == first

    asyncio.run(main())


def test_a_token_file_that_never_was_or_is_empty(tmp_path: Path) -> None:
    with pytest.raises(failures.Unauthorised, match="cannot be read"):
        headers(token_file=str(tmp_path / "no"))
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(failures.Unauthorised, match="holds no token"):
        headers(token_file=str(tmp_path / "empty"))


def test_rotated_certificates_are_another_identity(tmp_path: Path) -> None:
    certificate, key = tmp_path / "c", tmp_path / "k"
    certificate.write_bytes(b"c1")
    key.write_bytes(b"k1")

    async def main() -> None:
        given = credentials.Credentials(certificate_file=str(certificate), key_file=str(key))
        source = credentials.Source(given)
        assert await source.current() == credentials.Identity((), b"c1", b"k1")
        certificate.write_bytes(b"c-2")
        key.write_bytes(b"k-2")
        assert await source.current() == credentials.Identity((), b"c-2", b"k-2")

    asyncio.run(main())


def test_nothing_new_can_be_had_of_a_fixed_token() -> None:
    async def main() -> None:
        source = credentials.Source(credentials.Credentials(token="t"))
        first = await source.current()
        assert await source.renew(first) == first

    asyncio.run(main())


def test_a_plugin_runs_once_until_its_token_ends_or_is_refused() -> None:
    time = Time()

    async def main() -> None:
        plugin = Plugin(expires=100.0)
        source = credentials.Source(credentials.Credentials(plugin=PLUGIN), issue=plugin, now=time)
        first = await source.current()
        assert first == credentials.Identity((("Authorization", "Bearer token-1"),), b"c", b"k")
        time.now = 99.0
        assert await source.current() is first
        plugin.expires = 200.0
        time.now = 100.0
        second = await source.current()
        assert dict(second.headers) == {"Authorization": "Bearer token-2"}
        third = await source.renew(second)
        assert dict(third.headers) == {"Authorization": "Bearer token-3"}
        assert await source.renew(second) is third, "a refusal of an older one needs no run"
        assert plugin.runs == 3

    asyncio.run(main())


def test_all_wait_for_one_run_and_giving_up_does_not_end_it() -> None:
    async def main() -> None:
        plugin = Plugin(is_held=True)
        source = credentials.Source(credentials.Credentials(plugin=PLUGIN), issue=plugin)
        impatient, *others = [asyncio.create_task(source.current()) for _ in range(5)]
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.wait([impatient])
        plugin.may_end.set()
        assert len({id(await other) for other in others}) == 1
        assert plugin.runs == 1

    asyncio.run(main())


def test_a_failed_run_fails_all_callers_and_is_tried_again_next_time() -> None:
    async def main() -> None:
        plugin = Plugin()
        plugin.failure = failures.Unauthorised("log in first")
        source = credentials.Source(credentials.Credentials(plugin=PLUGIN), issue=plugin)
        outcomes = await asyncio.gather(source.current(), source.current(), return_exceptions=True)
        assert [str(outcome) for outcome in outcomes] == ["log in first"] * 2
        plugin.failure = None
        assert dict((await source.current()).headers) == {"Authorization": "Bearer token-2"}

    asyncio.run(main())


def test_closing_ends_a_run() -> None:
    async def main() -> None:
        plugin = Plugin(is_held=True)
        source = credentials.Source(credentials.Credentials(plugin=PLUGIN), issue=plugin)
        waiting = asyncio.create_task(source.current())
        await asyncio.sleep(0)
        await source.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_token_beats_the_plugin() -> None:
    async def main() -> None:
        plugin = Plugin()
        source = credentials.Source(credentials.Credentials(token="t", plugin=PLUGIN), issue=plugin)
        assert dict((await source.current()).headers) == {"Authorization": "Bearer t"}
        assert plugin.runs == 0

    asyncio.run(main())
