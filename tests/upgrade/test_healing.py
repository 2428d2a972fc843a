"""The healer's decisions: from a fault to a reset, with gangs, limits, a breaker, and a reason for each refusal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dovetail.model.node_annotations import HealResponse as Response
from dovetail.upgrade.heal import heal_record, healing, remedy_ladder
from dovetail.upgrade.heal.heal_policy import HealPolicy
from dovetail.upgrade.heal.heal_record import Phase, Record, Result, Unreadable
from dovetail.upgrade.heal.healing import Action
from dovetail.upgrade.heal.remedy_ladder import Rung
from tests.upgrade.heal_cluster import Cluster, fault

XID_48 = fault("xid-48")
LATER = 10_000.0  # long after any breaker's time


def broken(*, nodes: int = 8) -> Cluster:
    """A pod on the broken GPU of a node, another on the GPU beside it."""
    cluster = Cluster(nodes=nodes)
    cluster.breaks("n-0", "gpu-0", XID_48)
    cluster.pod("a", "n-0", "gpu-0")
    cluster.pod("b", "n-0", "gpu-1")
    return cluster


def test_a_broken_gpu_is_emptied_alone_then_reset_and_the_neighbour_runs_on() -> None:
    cluster = broken()
    begun = cluster.play()["n-0"]
    assert (begun.action, begun.rung, begun.gpus) == (Action.BEGIN, Rung.RESET_GPU, ("gpu-0",))
    moved = cluster.play()["n-0"]
    assert [pod.uid for pod in moved.pods] == ["a"]
    assert cluster.play()["n-0"].action is Action.WAIT  # it is ending
    cluster.end_pods()
    assert cluster.play()["n-0"].action is Action.REQUEST
    asked = heal_record.annotations_of(cluster.record("n-0"))[heal_record.REQUEST]
    assert asked is not None
    assert '"action":"reset-gpu","gpus":["gpu-0"]' in asked
    cluster.breaks("n-0", "gpu-0")
    done = cluster.play()["n-0"]
    assert done.action is Action.FINISH
    assert "healed" in done.reason
    assert "b" in cluster.places


def test_a_gang_leaves_as_a_whole_from_all_its_nodes() -> None:
    cluster = Cluster(nodes=8)
    cluster.gang(("g0", "n-0", "gpu-0"), ("g1", "n-1", "gpu-0"), ("g2", "n-2", "gpu-1"))
    cluster.breaks("n-0", "gpu-0", XID_48)
    cluster.play()
    assert {pod.uid for pod in cluster.play()["n-0"].pods} == {"g0", "g1", "g2"}


def test_a_fault_gets_time_to_pass_before_anything_moves() -> None:
    cluster = broken()
    cluster.now = 10_000.0
    cluster.breaks("n-0", "gpu-0", fault("gpu-lost", since=cluster.now - 89))
    step = cluster.play()["n-0"]
    assert (step.action, step.record) == (Action.NOTHING, None)
    assert step.reason == "reboot begins when gpu-lost has stood for 90 s"
    cluster.now += 1
    assert cluster.play()["n-0"].action is Action.BEGIN


def test_a_fault_that_keeps_no_work_away_moves_no_pod() -> None:
    cluster = broken()
    cluster.breaks("n-0", "gpu-0", fault("row-remap-pending", effect="None"))
    step = cluster.play()["n-0"]
    assert step.action is Action.ADVISE
    assert "reset-gpu when it is next empty" in step.reason


def test_applications_are_restarted_only_where_the_policy_says_so() -> None:
    cluster = broken()
    cluster.breaks("n-0", "gpu-0", fault("xid-13", effect="None"))
    assert cluster.play()["n-0"].action is Action.ADVISE
    policy = HealPolicy(restart_applications=True)
    assert cluster.play(policy)["n-0"].rung is Rung.RESTART_APP
    assert [pod.uid for pod in cluster.play(policy)["n-0"].pods] == ["a"]
    assert cluster.play(policy)["n-0"].action is Action.FINISH


def test_a_reboot_empties_the_node_and_a_persons_work_is_only_advised() -> None:
    cluster = broken()
    cluster.breaks("n-0", "gpu-0", fault("xid-79"))
    cluster.play()
    assert {pod.uid for pod in cluster.play()["n-0"].pods} == {"a", "b"}
    other = broken()
    other.breaks("n-0", "gpu-0", fault("temperature"))
    step = other.play()["n-0"]
    assert step.action is Action.ADVISE
    assert "a person has to check power and cooling" in step.reason


def test_a_remedy_that_does_not_help_leads_up_the_ladder_to_a_person() -> None:
    cluster = Cluster(nodes=8)
    cluster.breaks("n-0", "gpu-0", XID_48)
    cluster.now = LATER
    rungs = []
    for _ in range(40):
        step = cluster.play()["n-0"]
        if step.action is Action.BEGIN:
            rungs.append(step.rung)
        cluster.now += 1_000
    assert rungs == [
        Rung.RESET_GPU,
        Rung.RESET_GPU,
        Rung.DRAIN_AND_RESET,
        Rung.DRAIN_AND_RESET,
        Rung.REBOOT,
        Rung.REBOOT,
        Rung.REPLACE,
    ]
    assert cluster.record("n-0").phase is Phase.REQUESTED  # a person has all the time


def test_a_failed_request_ends_at_once_and_an_old_answer_counts_for_nothing() -> None:
    cluster = Cluster(nodes=8)
    cluster.breaks("n-0", "gpu-0", XID_48)
    cluster.play()
    cluster.play()
    request = cluster.record("n-0").id
    cluster.set("n-0", response=Response(id="of-long-ago", result="failed"))
    assert cluster.play()["n-0"].action is Action.WAIT
    cluster.set("n-0", response=Response(id=request, result="failed", message="in use"))
    assert "the node answered failed: in use" in cluster.play()["n-0"].reason
    assert cluster.record("n-0").attempts[0].result is Result.FAILED


def test_a_remedy_that_the_node_refuses_waits_for_a_person_and_leads_to_no_greater_one() -> None:
    cluster = broken()
    cluster.now = LATER
    for _ in range(3):
        cluster.play()
        cluster.end_pods()
    record = cluster.record("n-0")
    assert record.phase is Phase.REQUESTED
    cluster.set("n-0", response=Response(id=record.id, result="refused", message="no hook"))
    cluster.now += 100_000
    step = cluster.play()["n-0"]
    assert (step.action, step.record) == (Action.STUCK, None)
    assert "the node answered refused: no hook; next: on the node: nvidia-smi" in step.reason
    assert "b" in cluster.places
    cluster.set("n-0", response=None)  # as a person asks again
    cluster.now = record.requested
    assert cluster.play()["n-0"].action is Action.WAIT
    cluster.breaks("n-0", "gpu-0")
    assert cluster.play()["n-0"].action is Action.FINISH


def test_while_an_upgrade_has_the_node_nothing_is_asked_of_it() -> None:
    cluster = broken()
    cluster.play()
    cluster.play()
    cluster.end_pods()
    cluster.set("n-0", upgrade="StackUpgrade roll has fenced the node")
    step = cluster.play()["n-0"]
    assert (step.action, step.record) == (Action.WAIT, None)
    assert "reset-gpu of gpu-0 is asked for after it" in step.reason
    cluster.set("n-0", upgrade="")
    assert cluster.play()["n-0"].action is Action.REQUEST


def test_a_request_is_withdrawn_while_work_is_back_on_the_gpu() -> None:
    cluster = Cluster(nodes=8)
    cluster.breaks("n-0", "gpu-0", XID_48)
    cluster.play()
    cluster.play()
    cluster.pod("tolerant", "n-0", "gpu-0")
    assert cluster.play()["n-0"].action is Action.WITHDRAW
    withdrawn = heal_record.annotations_of(cluster.record("n-0"))
    assert withdrawn[heal_record.REQUEST] is None
    cluster.play()
    assert [pod.uid for pod in cluster.play()["n-0"].pods] == ["tolerant"]


def test_many_faults_at_once_open_the_breaker_of_their_pool() -> None:
    cluster = Cluster(nodes=8)
    for number in range(3):
        cluster.breaks(f"n-{number}", "gpu-0", fault("xid-48", since=900.0))
    steps = cluster.play()
    assert {step.action for step in steps.values()} == {Action.REFUSE}
    assert "3 of 8 nodes failed within 300 s, more than 2" in steps["n-0"].reason
    cluster.now += 300
    begun = [step for step in cluster.play().values() if step.action is Action.BEGIN]
    assert len(begun) == 2


def test_every_refusal_has_a_reason_and_a_next_step() -> None:
    cluster = broken()
    cluster.bare.add("a")
    assert "1 pods have no controller" in cluster.steps()["n-0"].reason
    cluster = broken()
    cluster.set("n-0", upgrade="the GPU Operator has the node in drain-required")
    assert "the GPU Operator has the node in drain-required" in cluster.steps()["n-0"].reason
    cluster = broken()
    cluster.set("n-0", is_ready=False)
    assert "the node is not ready" in cluster.steps()["n-0"].reason
    cluster = broken()
    cluster.breaks("n-0", "gpu-0", fault("xid-79"))
    refused = cluster.steps(HealPolicy(highest=Rung.RESET_GPU))["n-0"]
    assert "needs reboot; the policy allows up to reset-gpu" in refused.reason
    cluster = broken()
    cluster.set("n-0", record=Unreadable("not JSON"))
    step = cluster.steps()["n-0"]
    assert step.action is Action.REFUSE
    assert "kubectl annotate node n-0 dovetail.dev/heal-" in step.reason


def test_a_node_of_a_device_plugin_is_left_to_a_person() -> None:
    cluster = Cluster(nodes=2)
    cluster.set("n-0", gpus=(), unlocated="gpu-0: xid 48: drain the GPU and reset it")
    step = cluster.steps()["n-0"]
    assert step.action is Action.ADVISE
    assert "no device shows which GPU it is" in step.reason


def test_old_attempts_are_forgotten_and_the_record_goes_with_the_last() -> None:
    cluster = Cluster(nodes=8)
    cluster.breaks("n-0", "gpu-0", XID_48)
    cluster.play()
    cluster.play()
    cluster.breaks("n-0", "gpu-0")
    cluster.play()
    assert cluster.steps() == {}
    cluster.now += 86_400
    assert cluster.play()["n-0"].action is Action.FORGET
    assert heal_record.annotations_of(cluster.record("n-0"))[heal_record.RECORD] is None


NAMES = (
    "xid-48",
    "xid-79",
    "xid-13",
    "gpu-lost",
    "row-remap-failed",
    "recovery-gpu-reset",
    "fabric",
)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.just(0), st.just(0)),
        st.tuples(st.just("break"), st.integers(0, 5), st.integers(0, len(NAMES) - 1)),
        st.tuples(st.just("mend"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("end"), st.just(0), st.just(0)),
        st.tuples(st.just("time"), st.integers(1, 2_000), st.just(0)),
        st.tuples(st.just("pod"), st.integers(0, 5), st.integers(0, 1)),
        st.tuples(st.just("gang"), st.integers(0, 5), st.integers(0, 5)),
    ),
    max_size=40,
)


class Checked:
    """A cluster that is watched while anything happens to it."""

    def __init__(self, policy: HealPolicy) -> None:
        self.policy = policy
        self.cluster = Cluster(nodes=6)
        self.begun: list[tuple[float, str]] = []
        self.rungs: dict[str, list[tuple[float, Rung]]] = {}
        self.count = 0

    def happen(self, what: str, first: int, second: int) -> None:
        cluster = self.cluster
        self.count += 1
        match what:
            case "pass":
                self.judge()
            case "break":
                effect = "None" if NAMES[second] == "xid-13" else "NoSchedule"
                seen = fault(NAMES[second], since=cluster.now, effect=effect)
                cluster.breaks(f"n-{first}", "gpu-0", seen)
            case "mend":
                cluster.breaks(f"n-{first}", "gpu-0")
            case "end":
                cluster.end_pods()
            case "time":
                cluster.now += first
            case "pod":
                cluster.pod(f"p{self.count}", f"n-{first}", f"gpu-{second}")
            case "gang":
                one, other = f"g{self.count}a", f"g{self.count}b"
                cluster.gang((one, f"n-{first}", "gpu-0"), (other, f"n-{second}", "gpu-1"))

    def judge(self) -> None:
        cluster = self.cluster
        before = cluster.facts
        steps = cluster.play(self.policy)
        for step in steps.values():
            assert step.reason
            if step.action is Action.MOVE:
                leaving = {pod.uid for pod in step.pods} | cluster.ending
                for pod in step.pods:
                    assert set(before.pods[pod.uid].with_it) <= leaving
            if step.action is Action.REQUEST:
                assert step.rung is not None
                (node,) = [each for each in before.nodes if each.name == step.node]
                assert healing.occupants(node, step.rung, step.gpus) == ()
            if step.action is Action.BEGIN:
                self.begin(step)
        standing = [name for name in cluster.nodes if cluster.record(name).is_active]
        assert len(standing) <= self.policy.allowed(6)

    def begin(self, step: healing.Step) -> None:
        now, limit = self.cluster.now, self.policy.allowed(6)
        self.begun.append((now, step.node))
        recent = {node for at, node in self.begun if now - at < self.policy.breaker_seconds}
        assert len(recent) <= limit
        assert step.rung is not None
        if step.rung is Rung.RESTART_APP:
            return
        record = self.cluster.record(step.node)
        earlier = [
            each.rung
            for each in record.attempts
            if set(each.gpus) & set(step.gpus)
            and each.result is not Result.NOT_NEEDED
            and now - each.ended < self.policy.window_seconds
        ]
        heights = [remedy_ladder.height(each) for each in earlier]
        assert remedy_ladder.height(step.rung) >= max(heights, default=0)


@given(events=EVENTS, share=st.sampled_from((0.1, 0.5)), restarts=st.booleans())
def test_whatever_happens_limits_hold_gangs_stay_whole_and_no_gpu_in_use_is_reset(
    events: list[tuple[str, int, int]], share: float, restarts: bool
) -> None:
    policy = HealPolicy(breaker_share=share, restart_applications=restarts, window_seconds=3_000)
    checked = Checked(policy)
    for event in events:
        checked.happen(*event)
        checked.judge()


@given(events=EVENTS)
def test_a_record_says_the_same_after_it_was_written_and_read(
    events: list[tuple[str, int, int]],
) -> None:
    checked = Checked(HealPolicy())
    for event in events:
        checked.happen(*event)
        checked.judge()
    for name in checked.cluster.nodes:
        record = checked.cluster.record(name)
        written = heal_record.annotations_of(record)
        kept = {key: value for key, value in written.items() if value is not None}
        assert heal_record.record_of(kept) == (record if kept else Record())
