"""The server in memory behind HTTP, for tests: with a certificate made once per process and a kubeconfig."""

from __future__ import annotations

import contextlib
import datetime
import functools
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from dovetail.sim.rest import local_kubeconfig, loopback_certificate, rest_server
from dovetail.sim.server.api_server import SimApi

TOKEN = "a-token-of-tests"


@functools.cache
def certificate() -> loopback_certificate.Files:
    """Made once: it takes a tenth of a second."""
    folder = tempfile.mkdtemp(prefix="dovetail-certificate-")
    return loopback_certificate.kept_in(Path(folder), datetime.datetime.now(datetime.UTC))


@contextlib.asynccontextmanager
async def served(api: SimApi, folder: Path, **options: Any) -> AsyncIterator[Path]:
    """Serves while the block lasts; yields the kubeconfig."""
    files = certificate()
    async with rest_server.serve(api, token=TOKEN, certificate=files, **options) as server:
        kubeconfig = folder / "kubeconfig"
        local_kubeconfig.write(
            kubeconfig, server=server, token=TOKEN, certificate=files.certificate
        )
        yield kubeconfig
