"""The scheduler creates the templates of GPU shares that pods name: no other ones, and only while GPUs offer shares."""

from __future__ import annotations

import pytest

from dovetail.kubetypes import registry
from dovetail.kubetypes.resource import claims
from dovetail.model import gangs
from dovetail.ports import failures
from dovetail.ports.api import Target
from dovetail.sim.fleet import fleet_objects, fleet_spec
from dovetail.sim.server import share_claims
from dovetail.world.devices import gpu_ledger
from tests.live.live_scheduler import NAME, Stage, play

HALF = {"gpu-fraction": "0.5"}
ON = {"creates_share_templates": True}


class Shares(Stage):
    """A cluster whose server adds claims for shares, as the chart's policy does."""

    def share(
        self, name: str, annotations: dict[str, str], *, labels: dict[str, str] | None = None
    ) -> None:
        """A pod with KAI's annotations."""
        metadata = {"name": name, "namespace": "default", "annotations": annotations}
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata | {"labels": labels or {}},
            "spec": {"schedulerName": NAME, "containers": [container]},
        }
        self.api.put(share_claims.with_claim(pod))

    def publish_with_share(self, node: str) -> None:
        """A node with one GPU of which claims may request a part of the whole, too."""
        pool = fleet_spec.Pool(
            name=node.partition("-")[0],
            count=1,
            gpu="H100-SXM5-80GB",
            gpus_per_node=1,
            shares=fleet_spec.SHARED_MEMORY,
        )
        fleet = fleet_spec.Fleet(name="agent", pools=(pool,))
        steps = {"min": "10m", "max": "1", "step": "10m"}
        whole = {"value": "1", "requestPolicy": {"default": "1", "validRange": steps}}
        for tree in fleet_objects.objects_of(fleet):
            for device in tree.get("spec", {}).get("devices", []):
                device["capacity"]["dovetail.dev/share"] = whole
            if tree["kind"] in ("Node", "ResourceSlice"):
                self.api.put(tree)

    def templates(self) -> list[claims.ResourceClaimTemplate]:
        return list(self.api.all(registry.TEMPLATE))

    def notes(self) -> list[str]:
        return [event.note for event in self.events("FailedScheduling")]


def test_two_halves_share_a_gpu_and_a_third_waits_until_one_ends() -> None:
    async def story() -> None:
        stage = Shares(nodes=1, gpus=1, is_shareable=True)
        for name in ("a", "b", "c"):
            stage.share(name, HALF)
        async with stage.scheduling(**ON, is_quarantining=False):
            await stage.pass_time(5)
            assert stage.devices() == [("n-0", "gpu-0")] * 2
            [waiting] = [name for name in ("a", "b", "c") if not stage.node_of(name)]
            [note] = stage.notes()
            assert "0 with capacity left" in note
            [ended] = [name for name in ("a", "b") if name != waiting][:1]
            await stage.delete(ended, grace_seconds=0)
            await stage.pass_time(10)
            assert stage.node_of(waiting) == "n-0"
            assert stage.differences() == ()

    play(story)


def test_a_share_costs_its_part_of_the_gpu_and_a_whole_gpu_all_of_it() -> None:
    async def story() -> None:
        stage = Shares(nodes=1, gpus=3, is_shareable=True)
        stage.share("half", HALF)
        stage.share("quarter", {"gpu-memory": "20390"})  # of 81559
        stage.share("two", {"gpu-fraction": "0.2", "gpu-fraction-num-devices": "2"})
        stage.template("whole")
        stage.pod("whole", templates=("whole",))
        async with stage.scheduling(**ON) as scheduler:
            await stage.pass_time(5)
            world = scheduler.world
            costs = {}
            for claim in stage.claims():
                allocation = claim.status.allocation
                assert allocation is not None, claim.metadata.name
                pools = {("gpu.nvidia.com", "n-0"): world.devices_in(("gpu.nvidia.com", "n-0"))}
                devices = {key: value for key, value in pools.items() if value is not None}
                owner = claim.metadata.owner_references[0].name
                costs[owner] = gpu_ledger.Ledger().allocation_cost(allocation, devices)
            assert costs == {"half": 500, "quarter": 250, "two": 400, "whole": 1000}
            [view] = world.view("n-0").pools
            assert gpu_ledger.Ledger().free_milli_gpu(view) == 3000 - sum(costs.values())

    play(story)


def test_a_share_of_two_gpus_is_of_two_different_ones() -> None:
    async def story() -> None:
        stage = Shares(nodes=1, gpus=2, is_shareable=True)
        stage.share("two", HALF | {"gpu-fraction-num-devices": "2"})
        async with stage.scheduling(**ON):
            await stage.pass_time(5)
        assert stage.devices() == [("n-0", "gpu-0"), ("n-0", "gpu-1")]

    play(story)


def test_a_gang_whose_members_request_different_shares_starts_together() -> None:
    async def story() -> None:
        stage = Shares(nodes=1, gpus=1, is_shareable=True)
        labels = {gangs.GANG_LABEL: "g", gangs.MIN_LABEL: "3"}
        for name, fraction in (("a", "0.5"), ("b", "0.25"), ("c", "0.125")):
            stage.share(name, {"gpu-fraction": fraction}, labels=labels)
        async with stage.scheduling(**ON):
            await stage.pass_time(10)
        assert stage.devices() == [("n-0", "gpu-0")] * 3

    play(story)


def test_a_fraction_is_another_amount_on_each_size_of_gpu() -> None:
    async def story() -> None:
        stage = Shares(nodes=1, gpus=1, is_shareable=True)
        small = fleet_spec.Pool(name="s", count=1, gpu="L40S", gpus_per_node=1, shares="memory")
        stage.publish(small)
        for number in range(4):
            stage.share(f"half-{number}", HALF)
        async with stage.scheduling(**ON):
            await stage.pass_time(5)
        results = [
            result
            for claim in stage.claims()
            if claim.status.allocation is not None
            for result in claim.status.allocation.devices.results
        ]
        amounts = sorted((each.pool, str(each.consumed_capacity["memory"])) for each in results)
        assert amounts == [("n-0", "40779Mi")] * 2 + [("s-0", "23034Mi")] * 2

    play(story)


def test_a_gpu_that_also_offers_a_share_of_the_whole_is_never_given_twice() -> None:
    """As Dovetail's node agent publishes it: what a claim does not request of both it takes whole."""

    async def story() -> None:
        stage = Shares(nodes=1, gpus=1)  # that one offers no shares
        stage.publish_with_share("g-0")
        stage.share("half", HALF)
        stage.share("some", {"gpu-memory": "20000"})  # of 81559
        async with stage.scheduling(**ON):
            await stage.pass_time(5)
            stage.share("rest", {"gpu-fraction": "0.26"})
            await stage.pass_time(5)
            assert not stage.node_of("rest")  # 0.26 of the whole is left, but less memory
        amounts = {
            claim.metadata.owner_references[0].name: {
                name: str(amount)
                for result in claim.status.allocation.devices.results
                for name, amount in result.consumed_capacity.items()
            }
            for claim in stage.claims()
            if claim.status.allocation is not None
        }
        assert amounts == {
            "half": {"memory": "40779Mi", "dovetail.dev/share": "500m"},
            "some": {"memory": "20000Mi", "dovetail.dev/share": "240m"},
        }

    play(story)


def test_while_no_gpu_offers_shares_the_pod_says_so_and_starts_once_one_does() -> None:
    async def story() -> None:
        stage = Shares(nodes=1, gpus=1)
        stage.share("early", HALF)
        async with stage.scheduling(**ON):
            await stage.pass_time(5)
            [note] = stage.notes()
            assert "no GPU offers shares of its memory" in note
            assert "request a whole GPU" in note
            assert stage.templates() == []
            pool = fleet_spec.Pool(name="s", count=1, gpu="L40S", gpus_per_node=1, shares="memory")
            stage.publish(pool)
            await stage.pass_time(5)
            assert stage.node_of("early") == "s-0"

    play(story)


def test_pods_of_one_share_have_one_template_which_goes_with_the_first() -> None:
    async def story() -> None:
        stage = Shares(nodes=1, gpus=2, is_shareable=True)
        stage.share("a", HALF)
        async with stage.scheduling(**ON):
            await stage.pass_time(5)
            stage.share("b", HALF)
            await stage.pass_time(5)
            [template] = stage.templates()
            assert [owner.name for owner in template.metadata.owner_references] == ["a"]
            await stage.delete("a", grace_seconds=0)
            await stage.pass_time(5)
            assert stage.templates() == []
            assert stage.node_of("b") == "n-0"
            stage.share("c", HALF)
            await stage.pass_time(5)
            assert stage.node_of("c") == "n-0"
            assert len(stage.templates()) == 1

    play(story)


@pytest.mark.parametrize("name", ["dovetail-gpu-fraction-1.5", "dovetail-gpu-memory-1gi", "mine"])
def test_a_template_of_any_other_name_is_never_created(name: str) -> None:
    async def story() -> None:
        stage = Shares(nodes=1, gpus=1, is_shareable=True)
        stage.pod("p", templates=(name,))
        async with stage.scheduling(**ON):
            await stage.pass_time(60)
        assert stage.templates() == []
        [note] = stage.notes()
        assert f"template {name} does not exist in namespace default" in note

    play(story)


def test_nothing_is_created_where_shares_are_turned_off() -> None:
    async def story() -> None:
        stage = Shares(nodes=1, gpus=1, is_shareable=True)
        stage.share("p", HALF)
        async with stage.scheduling():
            await stage.pass_time(60)
        assert stage.templates() == []
        [note] = stage.notes()
        assert "kaiShares is off in its configuration" in note

    play(story)


def test_a_server_that_refuses_the_template_is_asked_again_later_and_not_all_the_time() -> None:
    async def story() -> None:
        stage = Shares(nodes=1, gpus=1, is_shareable=True)
        asked = 0

        def refuse(verb: str, target: Target) -> None:
            nonlocal asked
            if verb == "create" and target.kind == registry.TEMPLATE:
                asked += 1
                raise failures.Refused("cannot create resource resourceclaimtemplates", status=403)

        stage.api.before = refuse
        stage.share("p", HALF)
        async with stage.scheduling(**ON) as scheduler:
            await stage.pass_time(2)
            for _ in range(15):
                scheduler.retry_all()
                await stage.pass_time(1)
            assert 1 <= asked <= 2
            assert "cannot create resource resourceclaimtemplates" in " ".join(stage.notes())
            stage.api.before = None
            await stage.pass_time(15)
            scheduler.retry_all()
            await stage.pass_time(5)
            assert stage.node_of("p") == "n-0"

    play(story)


def test_a_share_that_lost_its_template_before_its_claim_was_made_gets_another() -> None:
    """The pod for which the template was created ends just then."""

    async def story() -> None:
        stage = Shares(nodes=1, gpus=1, is_shareable=True)
        stage.share("a", HALF)
        async with stage.scheduling(**ON):
            await stage.pass_time(5)
            [template] = stage.templates()
            key = (template.metadata.namespace, template.metadata.name)
            stage.share("b", HALF)
            stage.api.shelf.delete(registry.TEMPLATE, key)
            await stage.pass_time(60)
            assert stage.node_of("b") == "n-0"

    play(story)
