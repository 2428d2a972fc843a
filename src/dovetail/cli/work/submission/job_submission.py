"""Sends the objects of `dovetail run` to a cluster, all or none, and lets the Job own the claim template.

Given trees. Says what the server refuses and ends the command then. The template is deleted with its Job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from dovetail.ask import api_session
from dovetail.cli.cluster import settling_notice
from dovetail.cli.objects import manifest_files, object_writing
from dovetail.kube import object_requests
from dovetail.kubetypes import codec, registry
from dovetail.manifest import manifests
from dovetail.ports import api

if TYPE_CHECKING:
    from dovetail.boot import cluster_choice
    from dovetail.kube.http import transport

ORIGIN: Final = "dovetail run"  # where messages say a refused field comes from
DID: Final = "submitted"

Tree = dict[str, Any]


def submit(choice: cluster_choice.Choice, trees: Sequence[Tree], *, namespace: str) -> None:
    """Creates the objects; on the embedded cluster returns once the scheduler has answered."""
    text = codec.encode_tree({"apiVersion": "v1", "kind": "List", "items": list(trees)})
    loaded = manifests.load(text, file=ORIGIN, default_namespace=namespace)
    writer = object_writing.Writer(loaded.objects, namespace=namespace, is_creating=True)
    problems = list(map(str, loaded.problems)) or writer.local_problems()
    if problems:
        manifest_files.refuse(problems, did=DID)

    notice = settling_notice.SettlingNotice()

    async def work(over: transport.Transport) -> object_writing.Outcome:
        settles = choice.is_embedded
        outcome = await writer.write(over, dry_run=False, settles=settles, report=notice.report)
        if not outcome.problems:
            await _give_template_to_job(over, outcome.changes)
        return outcome

    outcome = api_session.run(choice, work)
    notice.finish()
    if outcome.problems:
        is_taken = any("already exists" in problem for problem in outcome.problems)
        hint = "give it another --name, or end the other job: dovetail cancel" if is_taken else ""
        manifest_files.refuse(outcome.problems, did=DID, hint=hint)


async def _give_template_to_job(
    over: transport.Transport, changes: Sequence[object_writing.Change]
) -> None:
    job = next(each.tree for each in changes if each.kind == "Job")
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
    }
    for change in changes:
        if change.kind == registry.TEMPLATE.name:
            target = api.Target(registry.TEMPLATE, change.namespace, change.name)
            # Refused only where the user may not change templates: it stays behind then.
            await object_requests.patch(over, target, {"metadata": {"ownerReferences": [owner]}})
