"""Reasons of pods behind a promise, in the live loop; an expected runtime lets none of them run ahead."""

from __future__ import annotations

from dovetail.kubetypes import registry
from tests.live.live_scheduler import Stage, play


def runs(stage: Stage, name: str) -> None:
    """The kubelet reports that the pod runs."""
    tree = stage.api.tree(registry.POD, name, namespace="default")
    tree["status"] |= {
        "phase": "Running",
        "startTime": stage.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    stage.api.shelf.put(registry.POD, tree)


def pending_message(stage: Stage, name: str) -> str:
    """The message of the pod's PodScheduled condition."""
    conditions = stage.the_pod(name).status.conditions
    return next(
        (condition.message for condition in conditions if condition.type == "PodScheduled"), ""
    )


def test_a_pod_with_an_expected_runtime_alone_does_not_start_in_front_of_a_promise() -> None:
    """Four GPUs are free until the head starts. To say "a minute" helps no more than to say nothing."""

    async def story() -> None:
        stage = Stage(nodes=1, gpus=8)
        stage.template("four", count=4)
        stage.template("eight", count=8)
        stage.pod("first", templates=("four",), annotations={"dovetail.dev/max-runtime": "30m"})
        async with stage.scheduling():
            await stage.pass_time(5)
            runs(stage, "first")
            stage.pod("head", templates=("eight",), annotations={"dovetail.dev/max-runtime": "1h"})
            await stage.pass_time(5)
            stage.pod("honest", templates=("four",))
            stage.pod(
                "liar", templates=("four",), annotations={"dovetail.dev/expected-runtime": "60s"}
            )
            await stage.pass_time(5)
            assert (stage.node_of("honest"), stage.node_of("liar")) == ("", "")
            for name in ("honest", "liar"):
                assert pending_message(stage, name).startswith(
                    "1 node: 1 is kept for default/pod/head, promised "
                )
                assert "no nodes" not in pending_message(stage, name)
            stage.pod("short", templates=("four",), annotations={"dovetail.dev/max-runtime": "60s"})
            await stage.pass_time(5)
            assert stage.node_of("short")

    play(story)


def test_a_promised_node_is_named_next_to_those_that_do_not_fit() -> None:
    async def story() -> None:
        stage = Stage(nodes=2, gpus=4)
        stage.template("four", count=4)
        stage.template("two", count=2)
        on_first = {"kubernetes.io/hostname": "n-0"}
        stage.pod(
            "first",
            templates=("two",),
            annotations={"dovetail.dev/max-runtime": "30m"},
            nodeSelector=on_first,
        )
        stage.pod("other", templates=("four",), nodeSelector={"kubernetes.io/hostname": "n-1"})
        async with stage.scheduling():
            await stage.pass_time(5)
            runs(stage, "first")
            runs(stage, "other")
            notes = {"dovetail.dev/max-runtime": "1h"}
            stage.pod("head", templates=("four",), annotations=notes, nodeSelector=on_first)
            await stage.pass_time(5)
            stage.pod("late", templates=("two",))
            await stage.pass_time(5)
            assert "1 is kept for default/pod/head, promised" in pending_message(stage, "late")
            assert "elsewhere: 1 node: 1 cannot serve claim" in pending_message(stage, "late")

    play(story)
