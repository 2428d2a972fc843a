"""A real Prometheus that scrapes given targets, and promtool, for tests."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import aiohttp
import msgspec

from dovetail.devcluster import free_ports
from tests.support import real, waiting

INTERVAL = "500ms"
# What names of NVIDIA and of kube-state-metrics force upon us; promtool would have others.
FORCED_REMARKS = (
    'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter metrics should have "_total" suffix',
    'kube_resourceslice_devices_total non-counter metrics should not have "_total" suffix',
)
FORCED_LABELS = "label names should be written in 'snake_case' not 'camelCase'"  # DCGM's modelName


def binary(name: str) -> str:
    """The path of a program of Debian's package prometheus."""
    found = shutil.which(name)
    if found is None:
        real.missing(f"{name} (Debian package prometheus)")
    return found


def remarks(text: str) -> list[str]:
    """What promtool objects to in a text of metrics, apart from what names force upon us."""
    done = subprocess.run(
        [binary("promtool"), "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return [
        line
        for line in said
        if line not in FORCED_REMARKS
        and not (line.startswith("DCGM_") and line.endswith(FORCED_LABELS))
    ]


@contextlib.asynccontextmanager
async def scraping(
    folder: Path,
    targets: Sequence[str],
    *,
    labels: Mapping[str, str] | None = None,
    honor_labels: bool = True,
) -> AsyncIterator[str]:
    """Scrapes meanwhile, twice a second; yields the server's address once it answers."""
    program = binary("prometheus")
    configuration = {
        "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL},
        "scrape_configs": [
            {
                "job_name": "gpus",
                "honor_labels": honor_labels,
                "static_configs": [{"targets": list(targets), "labels": dict(labels or {})}],
            }
        ],
    }
    file = folder / "prometheus.yaml"  # JSON is YAML
    file.write_bytes(msgspec.json.encode(configuration))
    port = free_ports.reserve()
    url = f"http://127.0.0.1:{port}"
    command = [
        program,
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        async with aiohttp.ClientSession() as session:

            async def answers() -> bool:
                assert process.poll() is None, (folder / "prometheus.log").read_text()
                try:
                    async with session.get(f"{url}/-/ready") as answer:
                        return answer.status == 200
                except aiohttp.ClientError:
                    return False

            await waiting.until(answers, "Prometheus")
        yield url
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)
