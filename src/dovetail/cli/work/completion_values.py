"""Completes the values of options and arguments: kinds, names of objects, namespaces, contexts, queues, GPU types.

Given a command, adds a function to each parameter that a cluster or kubeconfig can complete. Asks with a short deadline
and returns nothing when anything goes wrong: a shell must never hang or show an error.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from dovetail.kube.http import transport

SECONDS: Final = 1.0  # for all requests of one completion
MOST_NAMES: Final = 500
FILE, DIRECTORY = "file", "dir"
OWN_TABLES: Final = ("gpus", "devices", "claims", "pools", "classes", "slices", "templates")
WORK_KINDS: Final = ("jobs", "pods")
NODE_VERBS: Final = ("remove", "cordon", "uncordon", "drain")  # options of what-if

T = TypeVar("T")
Ask = Callable[["transport.Transport", click.Context], Awaitable[T]]
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_values(name: str, command: click.Command) -> None:
    """Lets the parameters of a command, and of its subcommands, be completed."""
    if isinstance(command, click.Group):
        for child_name, child in command.commands.items():
            complete_values(f"{name} {child_name}", child)
    for parameter in command.params:
        completer = _OF_ARGUMENTS.get((name, parameter.name or ""))
        completer = completer or _OF_OPTIONS.get(parameter.name or "")
        if completer is not None and not isinstance(parameter.type, click.Choice):
            # The attribute that click's own `shell_complete=` argument sets.
            parameter._custom_shell_complete = completer


# Values of options


def _names(plural: str, *, api_version: str = "v1") -> Complete:
    """Completes with the names of all cluster-wide objects of a kind."""

    async def ask(over: transport.Transport, context: click.Context) -> list[str]:
        return await _listed(over, _path(api_version, plural))

    return _completer(ask)


def _contexts(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from dovetail.kube.auth import client_config

    with contextlib.suppress(Exception):
        file = (context.meta.get("dovetail.cluster") or {}).get("kubeconfig")
        return _matching(client_config.context_names(file), incomplete)
    return []


def _files(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type=FILE)]


def _directories(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type=DIRECTORY)]


def _types(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from dovetail.ask.submission import gpu_products
    from dovetail.kube import read_objects
    from dovetail.kubetypes import object_set, registry

    reads = [object_set.Read(kind) for kind in (registry.NODE, registry.SLICE, registry.CLAIM)]

    async def ask(over: transport.Transport, context: click.Context) -> object_set.ObjectSet:
        return (await read_objects.read_over(over, reads, cluster="")).objects

    with contextlib.suppress(Exception), context.scope(cleanup=False):
        types = gpu_products.types_of(_asked(context, ask))
        items = [CompletionItem(each.word, help=each.counts) for each in types]
        return [item for item in items if item.value.startswith(incomplete.lower())]
    return []


# Values of arguments


async def _resource_words(
    over: transport.Transport, context: click.Context, incomplete: str
) -> list[str]:
    """`KIND`, `KIND NAME` or `KIND/NAME`, as far as the words before have got."""
    before = [str(word) for word in context.params.get("words") or ()]
    kind, slash, _ = incomplete.partition("/")
    if slash:
        return [f"{kind}/{name}" for name in await _names_of_kind(over, context, kind)]
    if before and "/" not in before[0]:
        return await _names_of_kind(over, context, before[0])
    from dovetail.kube import resource_names

    served = await resource_names.discover(over)
    plurals = {resource.kind.plural for resource in served.all()}
    return sorted({*plurals, *(OWN_TABLES if context.info_name == "get" else ())})


async def _work_words(
    over: transport.Transport, context: click.Context, incomplete: str
) -> list[str]:
    """`job/NAME` and `pod/NAME` of the namespace."""
    lists = [(kind, await _names_of_kind(over, context, kind)) for kind in WORK_KINDS]
    qualified = [f"{kind.removesuffix('s')}/{name}" for kind, names in lists for name in names]
    if "/" in incomplete:
        return qualified
    return [*qualified, *(name for _, names in lists for name in names)]


async def _queue_words(
    over: transport.Transport, context: click.Context, incomplete: str
) -> list[str]:
    queues = await _listed(over, _path("dovetail.dev/v1alpha1", "queues"))
    return [*queues, *await _work_words(over, context, incomplete)]


async def _waiting_words(
    over: transport.Transport, context: click.Context, incomplete: str
) -> list[str]:
    """Work of the namespace that was given, else of all: that is where the command looks."""
    if not context.params.get("namespace"):
        context.params["all_namespaces"] = True
    return await _work_words(over, context, incomplete)


async def _node_words(
    over: transport.Transport, context: click.Context, incomplete: str
) -> list[str]:
    """`node/NAME`."""
    return [f"node/{name}" for name in await _listed(over, _path("v1", "nodes"))]


async def _set_words(
    over: transport.Transport, context: click.Context, incomplete: str
) -> list[str]:
    """`queue/NAME.FIELD=`, `node/NAME.FIELD=` and `job/NAME.priority=`."""
    from dovetail.answer.what_if import changes

    queues = await _listed(over, _path("dovetail.dev/v1alpha1", "queues"))
    nodes = await _listed(over, _path("v1", "nodes"))
    work = await _work_words(over, context, "/")
    targets = [f"queue/{name}.{field}=" for name in queues for field in changes.QUEUE_FIELDS]
    targets += [f"node/{name}.{field}=" for name in nodes for field in changes.NODE_FIELDS]
    return [*targets, *(f"{word}.{field}=" for word in work for field in changes.WORK_FIELDS)]


async def _ended_words(
    over: transport.Transport, context: click.Context, incomplete: str
) -> list[str]:
    return await _work_words(over, context, "/")


def _awaited(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from dovetail.cli.work import wait_conditions

    return _matching(wait_conditions.WORDS, incomplete)


def _explained(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Reasons and kinds; what is known without a cluster is enough."""
    from dovetail.cli.work.explaining import reason_texts

    words = _matching(reason_texts.ALL, incomplete)
    with contextlib.suppress(Exception):
        from dovetail.cli.work.explaining import known_schemas

        plurals = sorted({each.kind.plural for each in known_schemas.resources().all()})
        words += _matching(plurals, incomplete)
    return words


async def _names_of_kind(over: transport.Transport, context: click.Context, word: str) -> list[str]:
    """The names of the objects of a kind, in the namespace that the command names."""
    from dovetail.cli.cluster import resource_arguments
    from dovetail.kube import resource_names
    from dovetail.kube.http import paths

    if word in ("gpus", "gpu", "devices", "device"):
        return await _listed(over, _path("v1", "nodes")) if word.startswith("gpu") else []
    served = await resource_names.discover(over)
    resource = resource_arguments.resource_of(word, served)
    namespace = _namespace(context) if resource.kind.is_namespaced else ""
    return await _listed(over, paths.collection(resource.kind, namespace))


# Asking


def _completer(ask: Ask[list[str]]) -> Complete:
    """A function for click that asks the chosen cluster, within the deadline, and never fails."""

    def complete(
        context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        with contextlib.suppress(Exception), context.scope(cleanup=False):
            return _matching(_asked(context, ask), incomplete)
        return []

    return complete


def _argument(
    ask: Callable[[transport.Transport, click.Context, str], Awaitable[list[str]]],
) -> Complete:
    """As `_completer`, for arguments whose completion depends on what is typed."""

    def complete(
        context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        async def ask_for(over: transport.Transport, context: click.Context) -> list[str]:
            return await ask(over, context, incomplete)

        with contextlib.suppress(Exception), context.scope(cleanup=False):
            return _matching(_asked(context, ask_for), incomplete)
        return []

    return complete


def _asked(context: click.Context, ask: Ask[T]) -> T:
    from dovetail.ask import api_session
    from dovetail.cli.cluster import cluster_option

    choice = cluster_option.chosen()

    async def work(over: transport.Transport) -> T:
        return await asyncio.wait_for(ask(over, context), SECONDS)

    return api_session.run(choice, work)


async def _listed(over: transport.Transport, path: str) -> list[str]:
    import msgspec

    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
    answer = await over.request("GET", path, params={"limit": str(MOST_NAMES)}, accept=accept)
    if not answer.is_success:
        return []
    items = msgspec.json.decode(answer.body).get("items") or ()
    return [str(item["metadata"]["name"]) for item in items]


def _path(api_version: str, plural: str) -> str:
    root = "/apis" if "/" in api_version else "/api"
    return f"{root}/{api_version}/{plural}"


def _namespace(context: click.Context) -> str:
    from dovetail.cli.cluster import cluster_option

    if context.params.get("all_namespaces"):
        return ""
    return str(context.params.get("namespace") or cluster_option.default_namespace())


def _matching(values: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(value) for value in values if value.startswith(incomplete)]


_OF_OPTIONS: Final[dict[str, Complete]] = {
    "namespace": _names("namespaces"),
    "node": _names("nodes"),
    "queue": _names("queues", api_version="dovetail.dev/v1alpha1"),
    "priority": _names("priorityclasses", api_version="scheduling.k8s.io/v1"),
    "context": _contexts,
    "gpu_type": _types,
    "kubeconfig": _files,
    "file": _files,
    "files": _files,
    "filename": _files,
    "case_file": _files,
    "prices": _files,
    "path": _files,
    "snapshot": _directories,
    "state": _directories,
    "directory": _directories,
}
_OF_ARGUMENTS: Final[dict[tuple[str, str], Complete]] = {
    **{(name, "words"): _argument(_resource_words) for name in ("get", "describe", "delete")},
    **{(name, "words"): _argument(_work_words) for name in ("wait", "cancel")},
    ("logs", "word"): _argument(_work_words),
    ("when", "name"): _argument(_waiting_words),
    ("why", "name"): _argument(_work_words),
    ("capacity", "like"): _argument(_work_words),
    **{("what-if", verb): _argument(_node_words) for verb in NODE_VERBS},
    ("what-if", "set"): _argument(_set_words),
    ("what-if", "end"): _argument(_ended_words),
    ("queue", "name"): _argument(_queue_words),
    ("explain", "word"): _explained,
    ("wait", "wanted"): _awaited,
}
