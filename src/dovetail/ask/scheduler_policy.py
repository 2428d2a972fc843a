"""The policy with which a question asks the engine: the scheduler's own, as far as it is known.

Given a configuration file, or what was read of a cluster. Never asks the engine itself.
"""

from __future__ import annotations

from dovetail.ask import cluster_view
from dovetail.model import policy


def configured(file: str | None) -> policy.Policy | None:
    """The policy of the scheduler's configuration file, if one was given."""
    if file is None:
        return None
    from dovetail.files import configuration_file
    from dovetail.model import configuration

    return configuration.policy_of(configuration_file.load(file))


def default(seen: cluster_view.View) -> policy.Policy:
    """Every pod of the embedded cluster and of a snapshot is ours; elsewhere there may be other schedulers."""
    from dovetail.model import configuration

    if seen.is_ours:
        return policy.DEFAULT
    return configuration.policy_of(configuration.SchedulerConfiguration())
