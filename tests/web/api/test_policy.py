"""The rules of the scheduler: where they come from, said honestly, and what is not known."""

from __future__ import annotations

from dovetail.model import configuration, policy
from dovetail.web import asked
from dovetail.web.api import policy_resource
from dovetail.web.endpoints import Nothing
from tests.web.api import clusters


def shown(
    trees: list[clusters.Tree], *, rules: policy.Policy | None = None
) -> policy_resource.PolicyView:
    frame = clusters.frame_of(clusters.stored(trees), name="policy")
    frame.policy = rules or frame.policy
    return policy_resource.answer(asked.Asked(frame, asked.EVERYTHING), Nothing())


def values(view: policy_resource.PolicyView) -> dict[str, object]:
    return {setting.name: setting.value for setting in view.settings}


def test_defaults_are_called_defaults() -> None:
    view = shown([])
    assert view.source.startswith("the defaults")
    assert all(
        setting.value == setting.default
        for setting in view.settings
        if setting.name != "schedulerNames"
    )
    assert all(setting.meaning for setting in view.settings)


def test_every_setting_is_shown_or_named_as_unknown() -> None:
    view = shown([])
    every = {field.path for field in configuration.fields()}
    assert {setting.name for setting in view.settings} | set(view.unknown) == every
    assert "logging.level" in view.unknown


def test_a_given_configuration_is_shown() -> None:
    given = configuration.SchedulerConfiguration(queues=configuration.Queues(promises=9))
    view = shown([], rules=configuration.policy_of(given))
    assert values(view)["queues.promises"] == 9
    assert view.source == "the configuration that the dashboard was given"
    assert view.scheduler_names == ("dovetail",)


def test_the_charts_config_map_is_shown_where_it_was_read() -> None:
    text = (
        "apiVersion: dovetail.dev/v1alpha1\nkind: SchedulerConfiguration\nlogging: {level: debug}\n"
    )
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "dovetail", "name": "dovetail-scheduler"},
        "data": {"scheduler.yaml": text},
    }
    view = shown([config_map])
    assert view.source.startswith("ConfigMap dovetail/dovetail-scheduler")
    assert values(view)["logging.level"] == "debug"
    assert view.unknown == ()


def test_steps_and_weights_are_listed() -> None:
    view = shown([clusters.queue("a"), clusters.queue("b")])
    assert [step.name for step in view.steps] == [str(step) for step in policy.Step]
    assert {weight.name for weight in view.weights} >= {"stranding", "tightFitPerGpu"}
    assert view.queues == 2
