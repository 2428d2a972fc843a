"""Puts configurations into the ConfigMap that NVIDIA's MIG manager reads, and keeps those that others use.

Given an API, the cluster that was read, and the configurations. The file is one value of the ConfigMap, so it is read,
extended and written back at the version that was read. The operator's own ConfigMap, which the operator writes again,
is copied and never changed. Raises InputError for a file that cannot be extended. Never sets a label.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dovetail import errors
from dovetail.answer.partitioning import mig_parted
from dovetail.answer.stack import node_stack, platform_objects
from dovetail.ask import cluster_view
from dovetail.kubetypes import codec, meta, registry
from dovetail.kubetypes.core import nodes
from dovetail.manifest import yaml_text
from dovetail.ports import api as apis
from dovetail.ports import failures
from dovetail.tables import yaml_dump
from dovetail.upgrade.adapters import mig_label_adapter

OPERATORS_OWN: Final = "default-mig-parted-config"  # of the GPU Operator, which writes it again
_VERSION: Final = "v1"  # of mig-parted's format
_CONFIGS: Final = "mig-configs"

Tree = dict[str, Any]


class ConfigMap(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The fields that matter here."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    data: dict[str, str] = {}


KIND: Final = registry.Kind("v1", "ConfigMap", "configmaps", True, ConfigMap)


class Extended(msgspec.Struct, frozen=True, kw_only=True):
    """The file as it is to be."""

    name: str
    namespace: str
    configurations: tuple[str, ...]  # all names in it
    copied_from: str = ""  # another ConfigMap
    tree: Tree | None = None  # what is to be written; None: everything is there
    is_new: bool = False

    def sentence(self, *, is_dry_run: bool) -> str:
        """What happens to it, for people."""
        verb = "stays as it is"
        if self.tree is not None:
            verb = "would be " if is_dry_run else ""
            verb += "created" if self.is_new else "extended"
        copied = f", those of {self.copied_from} among them" if self.copied_from else ""
        count = len(self.configurations)
        return f"configmap {self.namespace}/{self.name} {verb}: {count} configurations{copied}"


class Pointer(msgspec.Struct, frozen=True):
    """Which ConfigMap the operator's MIG manager reads."""

    name: str  # empty: nothing says so
    policy: str = ""  # the ClusterPolicy that names it


def pointer(seen: cluster_view.View) -> Pointer:
    """What the ClusterPolicy names."""
    policy_ = platform_objects.read(seen.objects).policy
    if policy_ is None:
        return Pointer("")
    config = policy_.spec.mig_manager.config
    return Pointer(config.name if config and config.name else OPERATORS_OWN, policy_.metadata.name)


async def extended(
    api: apis.Api, wanted: Mapping[str, list[Tree]], *, name: str, namespace: str
) -> Extended:
    """The ConfigMap with these configurations; a new one begins with those of the operator's own."""
    document = await _read(api, name, namespace)
    if document is not None:
        return _merged(document, wanted, name=name, namespace=namespace)
    own = await _read(api, OPERATORS_OWN, namespace)
    base = _file_of(own) if own is not None else mig_parted.configuration(())
    configs = base[_CONFIGS] | dict(wanted)
    return Extended(
        name=name,
        namespace=namespace,
        configurations=tuple(sorted(configs)),
        copied_from=OPERATORS_OWN if own is not None else "",
        tree=mig_parted.config_map(
            yaml_dump.text(base | {_CONFIGS: configs}), name=name, namespace=namespace
        ),
        is_new=True,
    )


async def write(api: apis.Api, extended_: Extended) -> None:
    """Creates or extends it. Raises Conflict or AlreadyThere where another writer was first."""
    if extended_.tree is None:
        return
    target = apis.Target(KIND, extended_.namespace, "" if extended_.is_new else extended_.name)
    document = codec.encode_tree(extended_.tree)
    if extended_.is_new:
        await api.create(target, document, brief=True)
    else:
        await api.patch(target, document, brief=True)


def unknown_labels(seen: cluster_view.View, configurations: tuple[str, ...]) -> dict[str, str]:
    """Configurations that labels name and the file has not, each with a node."""
    known = frozenset((*configurations, mig_label_adapter.UNKNOWN_CONFIG, ""))
    missing: dict[str, str] = {}
    for stored in seen.objects.listed(registry.NODE.unique_name):
        node = stored.struct
        config = node.metadata.labels.get(node_stack.MIG_CONFIG, "")
        if isinstance(node, nodes.Node) and config not in known:
            missing.setdefault(config, node.metadata.name)
    return missing


async def _read(api: apis.Api, name: str, namespace: str) -> ConfigMap | None:
    try:
        return codec.decode_struct(ConfigMap, await api.get(apis.Target(KIND, namespace, name)))
    except failures.Missing:
        return None


def _merged(
    document: ConfigMap, wanted: Mapping[str, list[Tree]], *, name: str, namespace: str
) -> Extended:
    file = _file_of(document)
    present = file[_CONFIGS]
    configs = present | dict(wanted)
    tree: Tree | None = None
    if configs != present:
        tree = {
            "metadata": {"resourceVersion": document.metadata.resource_version},
            "data": {mig_parted.CONFIG_KEY: yaml_dump.text(file | {_CONFIGS: configs})},
        }
    return Extended(
        name=name, namespace=namespace, configurations=tuple(sorted(configs)), tree=tree
    )


def _file_of(document: ConfigMap) -> Tree:
    """The file of a ConfigMap, as far as it can be extended."""
    place = f"configmap {document.metadata.namespace}/{document.metadata.name}"
    text = document.data.get(mig_parted.CONFIG_KEY)
    if text is None:
        raise errors.InputError(f"{place}: no key {mig_parted.CONFIG_KEY}, which the manager reads")
    try:
        documents = list(yaml_text.documents(text))
    except yaml_text.TextError as error:
        raise errors.InputError(f"{place}: {mig_parted.CONFIG_KEY}: {error}") from None
    file: Any = documents[0].tree if len(documents) == 1 else None
    is_known = isinstance(file, dict) and file.get("version") == _VERSION
    if not is_known or not isinstance(file.get(_CONFIGS), dict):
        raise errors.InputError(
            f"{place}: {mig_parted.CONFIG_KEY}: expected version {_VERSION} with a map {_CONFIGS};"
            " it is left as it is"
        )
    return dict(file)
