"""Names the labels that a pod asks of its node and a node lacks, from its node selector and required node affinity.

Given a pod's spec and a node that was ruled out for its labels. Returns text and counts for a reason; never decides
whether the node fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dovetail.kubetypes import node_selectors
from dovetail.kubetypes.core import nodes, pods

SHOWN: Final = 4  # labels, values and alternatives named in one place
UNREADABLE: Final = "a node affinity that cannot be read"


class MissingLabels(NamedTuple):
    """What a node lacks, and how many of the conditions on labels it meets."""

    text: str
    asked: int
    met: int


class _Term(NamedTuple):
    failing: tuple[str, ...]
    asked: int


def missing_labels(spec: pods.PodSpec, node: nodes.Node) -> MissingLabels:
    """The labels that rule the node out. Of several terms of an affinity the nearest is counted, and each is named."""
    labels = node.metadata.labels
    selector = sorted(spec.node_selector.items())
    missing = [f"{key}={value}" for key, value in selector if labels.get(key) != value]

    terms = _failing_terms(spec, labels, node.metadata.name)
    nearest = min(terms, key=lambda term: len(term.failing), default=_Term((), 0))
    asked = len(selector) + nearest.asked
    met = asked - len(missing) - len(nearest.failing)

    alternatives = list(dict.fromkeys(_joined(term.failing, " and ") for term in terms))
    parts = [_joined(missing, " and ")] if missing else []
    if len(alternatives) > 1 and missing:
        parts.append(f"({_joined(alternatives, ' or ')})")
    elif alternatives:
        parts.append(_joined(alternatives, " or "))
    return MissingLabels(" and ".join(parts), asked, met)


def _failing_terms(spec: pods.PodSpec, labels: Mapping[str, str], node_name: str) -> list[_Term]:
    """What each term of the required affinity fails on; none where a term holds, or nothing is required."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None:
        return []
    terms = []
    for term in required.node_selector_terms:
        alone = node_selectors.NodeSelector(node_selector_terms=(term,))
        asked = len(term.match_expressions) + len(term.match_fields)
        if node_selectors.problems(alone) or not asked:
            terms.append(_Term((UNREADABLE,), max(asked, 1)))
            continue
        failing = node_selectors.failing_requirements(term, labels, node_name=node_name)
        if not failing:
            return []
        terms.append(_Term(tuple(map(_text, failing)), asked))
    return terms or [_Term((UNREADABLE,), 1)]


def _text(requirement: node_selectors.NodeSelectorRequirement) -> str:
    """A condition as it is written in the pod: `zone In [a, b]`, `gpu Exists`."""
    key, operator, values = requirement.key, requirement.operator, requirement.values
    if operator in ("In", "NotIn"):
        return f"{key} {operator} [{_joined(values, ', ')}]"
    return " ".join((key, operator, *values))


def _joined(texts: Sequence[str], word: str) -> str:
    shown = list(texts[:SHOWN])
    unnamed = len(texts) - len(shown)
    return word.join(shown) + (f"{word}{unnamed} more" if unnamed else "")
