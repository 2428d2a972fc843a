"""How a server applies the schema of a definition to custom resources: drops, fills in, refuses.

The answers to the table of cases were recorded on a real server; each server must give them again.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail.kubetypes import codec, registry
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.sim.server import builtin_kinds
from tests.contract import custom_resource_cases as cases
from tests.contract import places
from tests.contract.conftest import ON_SERVERS
from tests.contract.places import Place, TreeClient, run_story
from tests.support import cluster, waiting

Tree = dict[str, Any]
ANSWERS: Tree = json.loads(Path(__file__).with_name("custom_resource_answers.json").read_text())
INVALID = "is invalid: "


@pytest.fixture(params=["http", *ON_SERVERS])
def place(request: pytest.FixtureRequest) -> Place:
    """A server that knows definitions; the one in memory reads schemas only behind HTTP."""
    if request.param == "http":
        return places.OverHttp()
    return places.OnServer(cluster.control_plane(request.param))


class Things:
    """The custom kind of one test."""

    def __init__(self, client: TreeClient) -> None:
        self.plural = places.fresh("things").replace("-", "")
        self.kind = registry.Kind(
            f"{cases.GROUP}/v1", self.plural.capitalize(), self.plural, True, codec.Generic
        )
        self._client = client
        self._definition = Target(builtin_kinds.CRD, "", f"{self.plural}.{cases.GROUP}")

    async def define(self) -> None:
        definition = places.encoded(cases.definition(self.plural))
        await self._client.api.create(self._definition._replace(name=""), definition)
        await self._until_taken(cases.SPEC["properties"]["count"]["maximum"])

    async def limit_count(self, maximum: int) -> None:
        """Changes the definition, and waits until the server goes by it."""
        document = places.parsed(await self._client.api.get(self._definition))
        (version,) = document["spec"]["versions"]
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        spec["properties"]["count"]["maximum"] = maximum
        await self._client.api.patch(
            self._definition, places.encoded({"spec": {"versions": [version]}})
        )
        await self._until_taken(maximum)

    async def _until_taken(self, maximum: int) -> None:
        """Real servers learn of definitions a moment later."""

        async def is_taken() -> bool:
            probe = self.tree("probe", {"count": maximum + 1})
            try:
                await self._client.api.create(self.at(), places.encoded(probe))
            except failures.Refused as refused:
                return f"less than or equal to {maximum}" in str(refused)
            except failures.ApiFailure:
                return False
            await self._client.api.delete(self.at("probe"))
            return False

        await waiting.until(is_taken, "the definition")

    async def remove(self) -> None:
        await self._client.api.delete(self._definition)

    def at(self, name: str = "", subresource: str = "") -> Target:
        return Target(self.kind, self._client.namespace, name, subresource)

    def tree(self, name: str, spec: Any, **other: Any) -> Tree:
        return {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.name,
            "metadata": {"name": name},
            "spec": spec,
        } | other

    async def create(self, name: str, spec: Any, **other: Any) -> Tree:
        body = places.encoded(self.tree(name, spec, **other))
        return places.parsed(await self._client.api.create(self.at(), body))

    async def patch(self, name: str, change: Tree, subresource: str = "") -> Tree:
        target = self.at(name, subresource)
        return places.parsed(await self._client.api.patch(target, places.encoded(change)))


def defined(place: Place, story: Callable[[Things], Awaitable[None]]) -> None:
    """Runs a story with a custom kind that exists for this test alone."""

    async def main(client: TreeClient) -> None:
        things = Things(client)
        await things.define()
        try:
            await story(things)
        finally:
            await things.remove()

    run_story(place, main)


def problems(text: str) -> list[str]:
    """The problems of a refusal in a fixed order: a real server lists them in random order."""
    return sorted(text.removeprefix("[").removesuffix("]").split(", "))


def test_every_case_of_the_table_has_its_recorded_answer(place: Place) -> None:
    async def story(things: Things) -> None:
        differences = []
        for case in cases.CASES:
            expected = ANSWERS[case.name]
            try:
                answer: Any = (await things.create(case.name, case.spec))["spec"]
            except failures.Refused as refused:
                answer = problems(str(refused).partition(INVALID)[2])
                expected = problems(expected) if isinstance(expected, str) else expected
            if answer != expected:
                differences.append(f"{case.name}: {answer}, expected {expected}")
        assert not differences, "\n".join(differences)

    defined(place, story)


def test_a_status_is_written_on_its_own_path_and_checked_there(place: Place) -> None:
    async def story(things: Things) -> None:
        created = await things.create("a", {}, status={"ready": "not looked at"})
        assert "status" not in created
        patched = await things.patch("a", {"status": {"ready": 1, "stranger": 2}}, "status")
        assert patched["status"] == {"ready": 1}
        kept = await things.patch("a", {"spec": {"count": 2}, "status": {"ready": 9}})
        assert (kept["spec"]["count"], kept["status"]) == (2, {"ready": 1})
        with pytest.raises(failures.Refused, match="ready in body must be of type integer"):
            await things.patch("a", {"status": {"ready": "x"}}, "status")

    defined(place, story)


def test_what_became_wrong_may_stay_while_other_fields_change(place: Place) -> None:
    async def story(things: Things) -> None:
        await things.create("a", {"count": 4})
        await things.limit_count(2)
        patched = await things.patch("a", {"spec": {"flag": True}})
        assert patched["spec"] == {"count": 4, "flag": True, "mode": "fast"}
        with pytest.raises(failures.Refused, match="should be less than or equal to 2"):
            await things.patch("a", {"spec": {"count": 5}})

    defined(place, story)


def test_an_object_without_a_required_part_is_refused(place: Place) -> None:
    async def story(things: Things) -> None:
        with pytest.raises(failures.Refused, match="spec: Required value"):
            await things.create("a", None)

    defined(place, story)
