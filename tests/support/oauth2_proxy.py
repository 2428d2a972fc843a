"""The real oauth2-proxy for tests: built on first use, run on loopback with a configuration of its own."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.support import real, waiting

ROOT = Path(__file__).resolve().parents[2]
GO_MISSING = 3  # exit code of the build driver


@functools.cache
def program() -> Path:
    """The program; skips, or fails under REQUIRE_REAL=1, where it cannot be built."""
    real.refuse_unbuilt("oauth2-proxy")
    build = ROOT / "tools" / "oauth2proxy" / "build.py"
    done = subprocess.run([sys.executable, build], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == GO_MISSING:
        real.missing("a Go toolchain to build oauth2-proxy with")
    if done.returncode != 0:
        pytest.fail("oauth2-proxy could not be built; what Go said is above", pytrace=False)
    return Path(done.stdout.strip())


@contextlib.asynccontextmanager
async def running(
    folder: Path, configuration: dict[str, Any], *options: str
) -> AsyncIterator[None]:
    """The proxy while the block lasts. `configuration` is what it calls its alpha configuration."""
    file = folder / "oauth2-proxy.yaml"
    file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    log = folder / "oauth2-proxy.log"
    address = configuration["server"]["bindAddress"]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            str(program()), f"--alpha-config={file}", *options, stdout=output, stderr=output
        )
        try:
            async with aiohttp.ClientSession() as session:
                await waiting.until(
                    lambda: _is_up(session, address, process, log), "oauth2-proxy to answer"
                )
            yield
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _is_up(
    session: aiohttp.ClientSession, address: str, process: asyncio.subprocess.Process, log: Path
) -> bool:
    assert process.returncode is None, log.read_text(encoding="utf-8", errors="replace")
    try:
        async with session.get(f"http://{address}/ping") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False
