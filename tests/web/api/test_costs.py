"""What GPUs cost, as the dashboard's server answers: who sees what, and OpenCost's form."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.model.accounting import records
from dovetail.web import asked, problems
from dovetail.web.api.accounting import (
    allocation_resource,
    cost_resource,
    utilisation_resource,
)
from tests.web.api import clusters

# RECORDED: ten hours of one GPU at 2.00; half of it for train, a quarter (half of the time half) for secret.
HIDDEN_NODES = asked.Visibility(in_namespaces=frozenset({("Pod", "train")}))


def question(may: asked.Visibility = asked.EVERYTHING) -> asked.Asked:
    return clusters.asked_of(clusters.typical(), name="c1", may=may)


def cost(may: asked.Visibility = asked.EVERYTHING, **words: str) -> Any:
    params = cost_resource.CostParams(**({"window": "1d"} | words))
    return cost_resource.answer(question(may), params)


def allocation(may: asked.Visibility = asked.EVERYTHING, **words: Any) -> list[dict[str, Any]]:
    params = allocation_resource.AllocationParams(**({"window": "1d"} | words))
    reply = allocation_resource.answer(question(may), params)
    tree = msgspec.json.decode(msgspec.json.encode(reply))
    assert tree["code"] == 200
    data: list[dict[str, Any]] = tree["data"]
    return data


def costs(table: Any) -> dict[str, float]:
    return {row.name: row.cost.total for row in table.steps[0].rows}


def test_an_administrator_sees_all_of_it() -> None:
    table = cost()
    assert costs(table) == {"train": 10.00, "secret": 5.00, "__idle__": 5.00}
    assert table.total.waiting_gpu_hours == 1.0
    assert table.notes == ()


def test_a_tenant_sees_their_own_share_and_what_was_free() -> None:
    table = cost(clusters.TENANT)
    assert costs(table) == {"train": 10.00, "__idle__": 5.00}
    assert table.total.waiting_gpu_hours == 0.0
    assert [note.code for note in table.notes] == ["left-out"]
    (data,) = allocation(clusters.TENANT, aggregate="namespace", include_idle=True)
    assert {name: row["totalCost"] for name, row in data.items()} == {
        "train": 10.0,
        "__idle__": 5.0,
    }


def test_without_the_right_to_list_nodes_nothing_is_said_about_capacity() -> None:
    table = cost(HIDDEN_NODES)
    assert costs(table) == {"train": 10.00}
    assert (table.asset_cost, table.steps[0].asset_cost) == ("", "")
    (data,) = allocation(HIDDEN_NODES, aggregate="namespace", include_idle=True)
    assert set(data) == {"train"}


def test_a_stranger_sees_nothing() -> None:
    assert costs(cost(clusters.STRANGER)) == {}
    assert allocation(clusters.STRANGER, include_idle=True) == [{}]
    with pytest.raises(problems.Refusal) as refusal:
        cost_resource.budgets(question(clusters.STRANGER), msgspec.convert({}, Any))
    assert refusal.value.problem.status == 403


def test_claims_are_named_to_those_who_may_list_them() -> None:
    may = asked.Visibility(
        everywhere=clusters.TENANT.everywhere, in_namespaces=frozenset({("Pod", "train")})
    )
    assert costs(cost(may, aggregate="claim")) == {"__idle__": 5.00}
    assert costs(cost(clusters.TENANT, aggregate="claim"))["llama-0-claim"] == 10.00


def test_budgets_are_shown_with_their_forecast() -> None:
    (budget,) = cost_resource.budgets(question(), msgspec.convert({}, Any)).items
    assert (budget.queue, budget.spent, budget.state) == ("train", 10.00, "ok")


def test_a_filter_keeps_what_it_names() -> None:
    assert costs(cost(filter='namespace:"secret"')) == {"secret": 5.00}
    assert costs(cost(filter='node:"h100-0" + namespace!:"secret"')) == {
        "train": 10.00,
        "__idle__": 5.00,
    }


def test_the_reply_has_the_fields_that_clients_of_opencost_read() -> None:
    (data,) = allocation(aggregate="namespace")
    row = data["train"]
    assert set(data) == {"train", "secret"}  # idle only if it is asked for
    assert row["name"] == "train"
    assert row["properties"]["namespace"] == "train"
    assert row["properties"]["cluster"] == "c1"
    assert row["properties"]["pod"] == "llama-0"
    assert row["window"] == {"start": "2026-06-01T00:00:00Z", "end": "2026-06-02T00:00:00Z"}
    assert row["end"] == "2026-06-01T12:00:00Z"
    assert (row["minutes"], row["gpuHours"], row["gpuCost"]) == (720.0, 5.0, 10.0)
    assert row["gpuCount"] == 0.41667  # five decimals
    assert row["cpuCost"] == row["ramCost"] == row["pvCost"] == row["networkCost"] == 0
    assert row["gpuAllocation"]["GPUModel"] == "NVIDIA H100 80GB HBM3"
    assert row["gpuAllocation"]["IsGPUShared"] is True
    assert row["gpuEfficiency"] is None
    assert {"cpuCoreHours", "ramByteHours", "sharedCost", "externalCost", "pvs"} <= set(row)


def test_idle_is_a_row_of_the_cluster_or_of_its_nodes() -> None:
    (data,) = allocation(aggregate="namespace", include_idle=True)
    assert data["__idle__"]["gpuCost"] == 5.0
    (data,) = allocation(aggregate="namespace", include_idle=True, idle_by_node=True)
    assert data["h100-0/__idle__"]["properties"]["node"] == "h100-0"
    (data,) = allocation(aggregate="node", include_idle=True)
    assert {name: row["gpuCost"] for name, row in data.items()} == {
        "h100-0": 15.0,
        "__idle__": 5.0,
    }


@pytest.mark.parametrize("idle_by_node", [False, True])
def test_shared_idle_is_divided_by_cost_also_for_those_who_see_a_part(idle_by_node: bool) -> None:
    words: dict[str, Any] = {"aggregate": "namespace", "idle_by_node": idle_by_node}
    (data,) = allocation(share_idle="true", include_idle=True, **words)
    assert set(data) == {"train", "secret"}
    assert data["train"]["totalCost"] == 13.33333
    assert data["secret"]["totalCost"] == 6.66667
    assert data["train"]["gpuCostIdle"] == 3.33333
    (mine,) = allocation(clusters.TENANT, share_idle="weighted", **words)
    assert mine["train"]["totalCost"] == 13.33333


def test_idle_of_a_node_is_shared_by_the_work_on_that_node_only() -> None:
    """A second GPU on another node is free for nine of its ten hours."""
    more = records.Records(
        assets=(
            *clusters.RECORDED.assets,
            records.Asset("GPU-1", "h100-1", "NVIDIA H100 80GB HBM3", clusters.millis(600)),
        ),
        allocations=(
            *clusters.RECORDED.allocations,
            msgspec.structs.replace(
                clusters.RECORDED.allocations[1],
                allocation="other",
                asset="GPU-1",
                micro_gpu=1_000_000,
                start=clusters.millis(60),
                end=None,
            ),
        ),
    )
    accounting = clusters.Accounted(more)
    asking = asked.Asked(question()._frame, asked.EVERYTHING, accounting=accounting)
    params = allocation_resource.AllocationParams(
        window="1d", aggregate="namespace", share_idle="true", idle_by_node=True
    )
    (data,) = allocation_resource.answer(asking, params).data
    assert data["train"].total_cost == 13.33333
    assert data["secret"].total_cost == 26.66667  # all of the second GPU, a third of the first


def test_steps_are_maps_of_their_own_and_accumulate() -> None:
    words: dict[str, Any] = {"aggregate": "namespace", "window": "10h"}
    hours = allocation(step="1h", **words)
    assert len(hours) == 10
    assert {hour["train"]["gpuCost"] for hour in hours} == {1.0}
    assert "secret" not in hours[-1]
    for chosen in ({"accumulate": "true"}, {"accumulate_by": "all"}, {"accumulate": "all"}):
        (whole,) = allocation(step="1h", **words, **chosen)
        assert whole["train"]["gpuCost"] == 10.0
        assert whole["train"]["window"]["start"] == hours[0]["train"]["window"]["start"]
    assert len(allocation(step="1h", accumulate_by="day", **words)) == 1


def test_without_an_aggregate_rows_are_single_pods() -> None:
    (data,) = allocation()
    assert set(data) == {"c1/h100-0/train/llama-0", "c1/h100-0/secret/vault-0"}


def test_labels_have_the_names_that_opencost_gives_them() -> None:
    (data,) = allocation(aggregate="team")
    assert set(data) == {"llama-0", "vault-0"}
    (data,) = allocation(aggregate="department", filter='team:"llama-0"')
    assert set(data) == {"__unallocated__"}


@pytest.mark.parametrize(
    ("words", "detail"),
    [
        ({"window": ""}, "window is missing: expected today"),
        ({"window": "soon"}, 'window "soon": expected today'),
        ({"step": "often"}, 'step "often": expected a duration'),
        ({"step": "1m", "window": "30d"}, 'step "1m": the window has 43200 of them'),
        ({"aggregate": "nmespace"}, 'aggregate: unknown key "nmespace"; did you mean "namespace"?'),
        ({"aggregate": "container"}, 'aggregate: "container" is not recorded'),
        ({"aggregate": "annotation:x"}, 'aggregate: "annotation:x" is not recorded'),
        ({"aggregate": "pod,pod"}, 'aggregate: "pod" is given twice'),
        ({"filter": "pod"}, "filter: position 4: expected an operator"),
        ({"accumulate": "perhaps"}, '"perhaps": expected true or false'),
        ({"accumulate_by": "year"}, '"year": expected one of hour, day'),
        ({"share_idle": "evenly"}, '"evenly": expected true, weighted or false'),
    ],
)
def test_what_cannot_be_read_is_a_bad_request(words: dict[str, Any], detail: str) -> None:
    with pytest.raises(problems.Refusal) as refusal:
        allocation(**words)
    assert refusal.value.problem.status == 400
    assert refusal.value.problem.detail.startswith(detail)


def test_a_dashboard_without_history_says_how_to_give_it_one() -> None:
    frame = question()._frame
    with pytest.raises(problems.Refusal) as refusal:
        cost_resource.answer(asked.Asked(frame, asked.EVERYTHING), cost_resource.CostParams())
    assert refusal.value.problem.status == 404
    assert "--history" in refusal.value.problem.next


def test_records_that_end_early_are_not_stretched() -> None:
    accounting = clusters.Accounted(clusters.RECORDED, until=clusters.millis(360))
    asking = asked.Asked(question()._frame, asked.EVERYTHING, accounting=accounting)
    table = cost_resource.answer(asking, cost_resource.CostParams(window="1d"))
    assert costs(table) == {"train": 4.00, "secret": 4.00}
    assert [note.message for note in table.notes] == [
        "nothing was recorded after 2026-06-01T06:00:00Z"
    ]


def utilisation(may: asked.Visibility = asked.EVERYTHING, **words: str) -> Any:
    params = utilisation_resource.UtilisationParams(**({"window": "12h"} | words))
    return utilisation_resource.answer(question(may), params)


def test_utilisation_without_measurements_is_not_zero() -> None:
    result = utilisation()
    (row,) = [row for row in result.rows if row.name != "__unallocated__"]
    assert (row.name, row.allocated, row.unallocated) == ("NVIDIA H100 80GB HBM3", 7.5, 2.5)
    assert (row.busy, row.idle, row.unmeasured) == (None, None, 7.5)
    assert not result.is_measured
    assert result.known_hours == 10.0
    assert result.total.waiting == 1.0


def test_a_tenant_sees_the_utilisation_of_their_work_and_what_was_free() -> None:
    result = utilisation(clusters.TENANT, aggregate="namespace")
    assert {row.name: row.allocated + row.unallocated for row in result.rows} == {
        "train": 5.0,
        "__idle__": 2.5,
    }
    assert [note.code for note in result.notes] == ["left-out"]
    hidden = utilisation(HIDDEN_NODES, aggregate="namespace")
    assert [row.name for row in hidden.rows] == ["train"]


def test_utilisation_by_steps_adds_up_and_knows_what_was_not_recorded() -> None:
    result = utilisation(step="1h")
    assert len(result.steps) == 12
    assert [step.known_hours for step in result.steps[:3]] == [0.0, 0.0, 1.0]
    assert result.steps[0].rows == ()
    assert sum(step.total.allocated for step in result.steps) == result.total.allocated
    with pytest.raises(problems.Refusal) as refusal:
        utilisation(step="often")
    assert refusal.value.problem.status == 400
