"""Which device is recommended, and why."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dovetail.answer.right_size import families
from dovetail.answer.right_size.right_size_answer import Level, Verdict
from dovetail.model.accounting import records
from dovetail.model.accounting.records import MICRO_GPU, Form, Records
from tests.answer.right_size import building
from tests.answer.right_size.building import DAY, GIB, HOUR, answer, only, owner, together, work


def test_small_memory_and_little_compute_get_the_smallest_slice() -> None:
    advice = only(work(memory=lambda _: 8 * GIB))
    assert advice.verdict is Verdict.SHRINK
    assert advice.work == "deployment/team/chat"
    assert advice.recommended is not None
    assert (advice.recommended.name, advice.recommended.profile) == ("MIG 1g.10gb", "1g.10gb")
    assert advice.why_not_smaller == "there is nothing smaller on this board"
    assert advice.confidence.level is Level.HIGH


def test_memory_decides_and_says_why_nothing_smaller() -> None:
    advice = only(work(memory=lambda _: 9 * GIB))
    assert advice.recommended is not None
    assert advice.recommended.profile in ("1g.20gb", "2g.20gb")
    assert advice.why_not_smaller == "MIG 1g.10gb has 9.8 GiB, needs 10.4 GiB"


def test_compute_refines_the_choice() -> None:
    advice = only(work(memory=lambda _: 8 * GIB, busy=400_000))
    assert advice.recommended is not None
    assert advice.recommended.profile == "3g.40gb"
    assert "of the compute, needs 40 %" in advice.why_not_smaller


@pytest.mark.parametrize(
    ("metrics", "bound"),
    [
        ({"tensor_micro": 700_000}, "the tensor pipe"),
        ({"dram_micro": 700_000}, "memory bandwidth"),
    ],
)
def test_bound_work_is_not_shrunk(metrics: dict[str, int], bound: str) -> None:
    advice = only(work(busy=100_000, **metrics))
    assert advice.verdict is Verdict.KEEP
    assert advice.needs is not None
    assert advice.needs.bound_by == bound
    assert f"because {bound} is the bound" in advice.why_not_smaller


def test_bandwidth_below_the_bound_still_counts() -> None:
    advice = only(work(memory=lambda _: 8 * GIB, dram_micro=300_000))
    assert advice.recommended is not None
    assert advice.recommended.profile == "3g.40gb"
    assert "memory bandwidth, needs 30 %" in advice.why_not_smaller


def test_several_gpus_at_once_are_left_alone() -> None:
    advice = only(work(gpus=2))
    assert advice.verdict is Verdict.EXCLUDED
    assert advice.recommended is None
    assert "holds 2 GPUs at once" in advice.why
    assert "NVLink" in advice.why


def test_one_gpu_after_the_other_is_one_gpu() -> None:
    first = work(days=4)
    second = work(days=4, start=4 * DAY)
    moved = tuple(
        records.Allocation(
            f"{each.allocation}-2", each.asset, each.node, each.micro_gpu, each.form, each.owner,
            each.start, each.end,
        )
        for each in second.allocations
    )  # fmt: skip
    usage = tuple(
        records.Usage(
            each.asset, f"{each.allocation}-2", each.start, each.end, 1, each.memory_bytes
        )
        for each in second.usage
    )
    both = together(first, building.with_field(second, allocations=moved, usage=usage))
    assert only(both).verdict is Verdict.SHRINK


def test_distributed_training_is_left_alone() -> None:
    pods = [
        work(f"train-{rank}", owner_=owner(f"train-{rank}", "PyTorchJob", "train"))
        for rank in range(2)
    ]
    advice = only(together(*pods))
    assert advice.verdict is Verdict.EXCLUDED
    assert "PyTorchJob exchange data" in advice.why


def test_nothing_measured_recommends_nothing_and_says_so() -> None:
    whole = answer(building.with_field(work(), usage=()))
    (advice,) = whole.work
    assert advice.verdict is Verdict.UNKNOWN
    assert advice.needs is None
    assert advice.confidence.is_partial
    assert whole.gpu_hours_saved == 0
    assert whole.notes == ("no usage was measured in this window: nothing is recommended",)


def test_no_records_at_all() -> None:
    assert answer(Records()).notes == ("no work held a GPU in this window: nothing to recommend",)


def test_memory_without_busy_time_is_not_enough() -> None:
    advice = only(work(busy=None))
    assert advice.verdict is Verdict.UNKNOWN
    assert "busy time was not measured" in advice.why
    assert advice.needs is not None
    assert advice.needs.busy_micro is None


def test_too_few_samples_recommend_nothing() -> None:
    advice = only(work(days=3))
    assert advice.verdict is Verdict.UNKNOWN
    assert "72 samples; at least 100" in advice.why


def test_samples_that_lack_memory_make_it_partial() -> None:
    advice = only(work(memory=[8 * GIB, None]))
    assert advice.confidence.is_partial
    assert advice.confidence.missing == ("memory is missing in 96 of 192 samples",)
    assert advice.confidence.level is Level.MEDIUM


def test_gaps_make_it_partial() -> None:
    gap = records.Gap(records.GapSource.METRICS, 0, HOUR, subject="node-1")
    elsewhere = records.Gap(records.GapSource.METRICS, 0, HOUR, subject="node-2")
    assert only(building.with_field(work(), gaps=(gap,))).confidence.is_partial
    assert not only(building.with_field(work(), gaps=(elsewhere,))).confidence.is_partial


def test_runs_without_samples_make_it_partial() -> None:
    silent = building.with_field(work("chat-abc12-y"), usage=())
    advice = only(together(work(), silent))
    assert advice.confidence.missing == ("1 of 2 runs have no samples",)
    assert (advice.confidence.runs, advice.confidence.runs_measured) == (2, 1)


def test_all_runs_of_a_deployment_are_one_family() -> None:
    small = work("chat-abc12-x", memory=lambda _: 8 * GIB)
    large = work("chat-abc12-y", memory=lambda _: 30 * GIB)
    advice = only(together(small, large))
    assert advice.needs is not None
    assert advice.needs.largest_memory_bytes == 30 * GIB
    assert advice.gpu_hours_held == 2 * 8 * 24


@pytest.mark.parametrize(
    ("kind", "name", "family"),
    [
        ("ReplicaSet", "chat-abc12", ("team", "Deployment", "chat")),
        ("ReplicaSet", "chat-other", ("team", "ReplicaSet", "chat-other")),
        ("Job", "nightly-28912345", ("team", "CronJob", "nightly")),
        ("Job", "train", ("team", "Job", "train")),
        ("", "", ("team", "Pod", "p")),
    ],
)
def test_families(kind: str, name: str, family: tuple[str, str, str]) -> None:
    held_by = records.Owner("team", "p", "u", kind, name, "", {"pod-template-hash": "abc12"})
    assert tuple(families.family_of(held_by)) == family


def test_running_out_of_memory_asks_for_more() -> None:
    owner_ = owner("nb-0", "StatefulSet", "nb")
    slice_ = work(
        "nb-0", memory=lambda hour: (7 + hour % 3) * GIB, form=Form.MIG, profile="1g.10gb",
        micro_gpu=MICRO_GPU // 7, owner_=owner_,
    )  # fmt: skip
    kept = only(slice_)
    assert kept.verdict is Verdict.KEEP
    event = records.OutOfMemory(DAY, owner_)
    advice = only(building.with_field(slice_, out_of_memory=(event,)))
    assert advice.verdict is Verdict.GROW
    assert advice.recommended is not None
    assert advice.recommended.memory_bytes > 10 * GIB
    assert "ran out of memory 1 times with 9.8 GiB" in advice.why
    assert advice.gpu_hours_saved < 0


def test_preallocating_programs_are_not_judged_by_their_memory() -> None:
    given = work(memory=lambda hour: (20 + hour % 2) * GIB)
    key = families.FamilyKey("team", "Deployment", "chat")
    pod = {"spec": {"containers": [{"image": "vllm/vllm-openai:v0.9"}]}}
    advice = only(given, programs={key: [pod]})
    assert advice.verdict is Verdict.SETTING
    assert "vLLM takes 90 %" in advice.why
    assert "a setting, not a need" in advice.why


def test_a_flat_line_near_the_limit_is_a_setting() -> None:
    advice = only(work(memory=lambda _: 71 * GIB))
    assert advice.verdict is Verdict.SETTING
    assert "flat at 89 %" in advice.why


def test_replicas_that_are_rarely_busy_together_may_share() -> None:
    pods = [
        work(
            f"chat-abc12-{number}", memory=lambda _: 15 * GIB, days=8, busy=20_000,
            product="NVIDIA L40S",
        )
        for number in range(4)
    ]  # fmt: skip
    small = [
        building.with_field(
            pod,
            assets=tuple(
                records.Asset(
                    each.asset, each.node, each.product, 0, memory_bytes=46068 * building.MIB
                )
                for each in pod.assets
            ),
        )
        for pod in pods
    ]
    advice = only(together(*small))
    assert advice.recommended is not None
    assert advice.recommended.shared_by == 2  # two peaks of 17 GiB fit 45 GiB, three do not
    assert advice.recommended.form is Form.REPLICA


def test_replicas_that_are_busy_together_may_not_share() -> None:
    pods = [
        work(f"chat-abc12-{number}", busy=600_000, product="NVIDIA L40S") for number in range(2)
    ]
    advice = only(together(*pods))
    assert advice.verdict is Verdict.KEEP
    assert "want more than one GPU 100 % of the time" in advice.why_not_smaller


def test_a_run_alone_may_not_share() -> None:
    advice = only(work(product="NVIDIA L40S"))
    assert advice.verdict is Verdict.KEEP
    assert "at the same time" in advice.why_not_smaller


def test_a_board_outside_the_catalogue_is_kept() -> None:
    advice = only(work(product="Some GPU"))
    assert advice.verdict is Verdict.KEEP


def test_usage_of_a_whole_asset_is_of_its_only_holder() -> None:
    given = work()
    of_assets = tuple(
        records.Usage(each.asset, "", each.start, each.end, each.busy_micro, each.memory_bytes)
        for each in given.usage
    )
    assert only(building.with_field(given, usage=of_assets)).verdict is Verdict.SHRINK


def test_hours_and_money_saved() -> None:
    whole = answer(work(), prices={"h100": Fraction(5, 2)})
    (advice,) = whole.work
    assert advice.gpu_hours_held == 192
    assert advice.gpu_hours_saved == pytest.approx(192 * 6 / 7, abs=0.01)
    assert advice.money_saved == pytest.approx(192 * 6 / 7 * 2.5, abs=0.01)
    assert whole.money_saved == advice.money_saved
    assert answer(work(), prices={"a100": Fraction(1)}).unpriced == (building.H100,)


def test_the_rule_is_checked_on_the_second_half_of_the_window() -> None:
    steady = work("chat-abc12-x", days=10)
    growing = work(
        "tune-0", memory=lambda hour: (8 if hour < 120 else 30) * GIB, days=10,
        owner_=owner("tune-0", "StatefulSet", "tune"),
    )  # fmt: skip
    test = answer(together(steady, growing), days=10).back_test
    assert test is not None
    assert (test.work, test.exceeded) == (2, ("statefulset/team/tune",))
    assert answer(work(days=3), days=30).back_test is None  # only in the first half


def test_only_the_window_counts() -> None:
    given = work(days=8)
    (advice,) = answer(given, days=5).work
    assert advice.gpu_hours_held == 5 * 24
    assert answer(work(start=40 * DAY)).work == ()
