"""`dovetail doctor` on the embedded API server: what it reports is about the cluster, not about the server's limits."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dovetail.boot import clocks
from dovetail.doctor import checkup, findings, gather
from dovetail.kube.auth import client_config
from dovetail.sim.server.api_server import SimApi
from tests.contract.build import pod
from tests.support import rest_place


def test_the_embedded_server_gives_the_doctor_nothing_to_complain_about(tmp_path: Path) -> None:
    async def gathered() -> findings.Facts:
        api = SimApi(clocks.SystemClock(), collects_all_kinds=True, is_complete=True)
        api.put(pod("waiting"))
        async with rest_place.served(api, tmp_path) as kubeconfig:
            return await gather.gather_facts(client_config.load(str(kubeconfig)), None)

    facts = asyncio.run(gathered())
    assert facts.is_embedded
    assert facts.unread == {}
    assert facts.rights is not None
    assert (facts.rights.subject, facts.rights.missing) == ("your user", ())

    report = checkup.report(facts)
    complaints = [each for each in report.findings if each.severity != findings.Severity.NOTE]
    # True of a cluster without nodes; nothing is said about rights, the leader or the scheduler.
    assert [each.check for each in complaints] == ["slices"]
