"""`POST /what-if`: what changes would do: the answer of `dovetail what-if -o json`. Changes nothing.

Changes apply in the order of the fields: nodes that come, go, close, open and drain, then settings, then work that
ends, then new work.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import msgspec

from dovetail import errors
from dovetail.answer.what_if import changes, what_if_answer
from dovetail.ask import what_if_asked
from dovetail.kubetypes import object_set, registry
from dovetail.manifest import manifests
from dovetail.web import asked, endpoints, problems
from dovetail.web.api import hidden_names, read_kinds, rights

MOST_CHANGES = 100
FILE = "manifest"


class WhatIfParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The changes, each as the option of the command takes it; prices of one GPU-hour by type."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    cordon: tuple[str, ...] = ()
    uncordon: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    set: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    manifest: str = ""
    prices: dict[str, float | str] = {}
    horizon: str = what_if_asked.DEFAULT_HORIZON
    namespace: str = object_set.DEFAULT_NAMESPACE  # of work without one


def answer(question: asked.Asked, params: WhatIfParams) -> what_if_answer.Answer:
    """The cluster with the changes, beside the cluster as it is. Raises 400 for a change that cannot be."""
    hidden = hidden_names.of(question)
    try:
        stated = list(_stated(question, params))
        if not stated:
            raise problems.bad_request(
                "give at least one change", next_step="add, set, manifest ..."
            )
        whole = what_if_asked.what_if(
            question.replica(),
            stated,
            horizon_seconds=what_if_asked.horizon_seconds(params.horizon),
            prices=_prices(params),
        )
    except errors.InputError as error:
        raise hidden.refusal(error) from None
    return hidden.without(whole)


def _stated(question: asked.Asked, params: WhatIfParams) -> Iterator[changes.Stated]:
    texts = [(verb, text) for verb in what_if_asked.VERBS for text in getattr(params, verb)]
    if len(texts) > MOST_CHANGES:
        raise problems.bad_request(f"{len(texts)} changes; at most {MOST_CHANGES} are taken")
    for verb, text in texts:
        stated = changes.read(verb, text, namespace=params.namespace)
        _check_rights(question, stated.change)
        yield stated
    if params.manifest.strip():
        objects = _objects(question, params)
        yield what_if_asked.stated_work({FILE: objects}, question.view)[FILE]


def _check_rights(question: asked.Asked, change: changes.Change) -> None:
    """Raises where a change is about objects that the user may not list: the answer would say whether they exist."""
    match change:
        case changes.SetPriority(work=work) | changes.EndWork(work=work):
            question.may.must_see(work.namespace, str(work))
        case changes.SetQueue():
            rights.must_list(question, registry.QUEUE)
        case changes.NewWork():
            pass  # the objects are the user's own
        case _:
            rights.must_list(question, registry.NODE)


def _objects(question: asked.Asked, params: WhatIfParams) -> tuple[manifests.ManifestObject, ...]:
    loaded = manifests.load(params.manifest, file=FILE, default_namespace=params.namespace)
    if loaded.problems:
        listed = "; ".join(map(str, loaded.problems[:10]))
        raise problems.bad_request(listed, field=FILE)
    for item in loaded.objects:
        namespace = item.stored.struct.metadata.namespace
        if namespace:
            question.may.must_see(namespace, f"namespace {namespace}")
    return loaded.objects


def _prices(params: WhatIfParams) -> dict[str, Fraction]:
    return {
        name: what_if_asked.price(f"{name}={amount}", str(amount))
        for name, amount in params.prices.items()
    }


ENDPOINTS = (
    endpoints.Endpoint(
        "/what-if",
        WhatIfParams,
        what_if_answer.Answer,
        answer,
        method="POST",
        summary="What changes of nodes, queues or work would do",
        reads=(*read_kinds.ENGINE, read_kinds.CLASSES),
    ),
)
