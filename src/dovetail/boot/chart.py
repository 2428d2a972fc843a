"""The chart as this program reads it: its values held against their schema, its templates rendered to objects.

Given values files, `path=value` settings and what the cluster serves. The chart in deploy/chart is the only source of
what is installed; Helm renders the same files. Never talks to a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from dovetail import errors
from dovetail.boot import chart_functions, chart_templates, files
from dovetail.boot import configuration as configuration_files
from dovetail.model import installation, trees, yaml_text
from dovetail.model.validation import names

SERVICE: Final = "dovetail"  # who manages what `dovetail install` made; Helm says "Helm" here
INSTANCE_LABEL: Final = "app.kubernetes.io/instance"
MANAGER_LABEL: Final = "app.kubernetes.io/managed-by"
PART_LABEL: Final = "app.kubernetes.io/part-of"
# What templates ask a cluster for, as group, version and kind.
OPTIONAL: Final = (
    "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy",
    "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy",
)
# Every kind the chart ever made and the versions it may be served in, in the order of making; deleted backwards.
VERSIONS: Final[dict[str, tuple[str, ...]]] = {
    "Namespace": ("v1",),
    "CustomResourceDefinition": ("apiextensions.k8s.io/v1",),
    "Lease": ("coordination.k8s.io/v1",),
    "ServiceAccount": ("v1",),
    "ConfigMap": ("v1",),
    "ClusterRole": ("rbac.authorization.k8s.io/v1",),
    "ClusterRoleBinding": ("rbac.authorization.k8s.io/v1",),
    "Role": ("rbac.authorization.k8s.io/v1",),
    "RoleBinding": ("rbac.authorization.k8s.io/v1",),
    "NetworkPolicy": ("networking.k8s.io/v1",),
    "PodDisruptionBudget": ("policy/v1",),
    "Service": ("v1",),
    "MutatingAdmissionPolicy": ("admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1"),
    "MutatingAdmissionPolicyBinding": ("admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1"),
    "ValidatingAdmissionPolicy": ("admissionregistration.k8s.io/v1",),
    "ValidatingAdmissionPolicyBinding": ("admissionregistration.k8s.io/v1",),
    "ServiceMonitor": ("monitoring.coreos.com/v1",),
    "Deployment": ("apps/v1",),
}
MAX_RELEASE: Final = 53  # Helm's limit for a release's name

_HERE: Final = Path(__file__).resolve().parent
_SETTING: Final = re.compile(r"(?P<path>[A-Za-z][\w./-]*?)=(?P<value>.*)", re.DOTALL)

Tree = dict[str, Any]


class Release(NamedTuple):
    """One installation: its name is part of every object's name."""

    name: str
    namespace: str


USUAL: Final = Release("dovetail", "dovetail-system")


def home() -> Path:
    """Where the chart is: inside the package in a wheel, under deploy/ in a checkout."""
    for place in (_HERE.parent / "deploy" / "chart", _HERE.parents[2] / "deploy" / "chart"):
        if (place / "Chart.yaml").is_file():
            return place
    raise errors.StateError("the chart is not part of this installation; install the dovetail package anew")


def values_of(files: Sequence[str | Path] = (), *, settings: Sequence[str] = ()) -> Tree:
    """The chart's values with files and settings over them, later ones deciding. Raises InputError."""
    found = _defaults()
    for file in files:
        found = chart_functions.merged_over(found, _file_tree(Path(file)))
    for setting in settings:
        found = chart_functions.merged_over(found, _setting_tree(setting))
    wrong = installation.misfits(found) or _null_misfits(found) or list(installation.problems(_converted(found)))
    if wrong:
        raise errors.InputError("\n".join(f"values: {one.path}: {one.message}" for one in wrong))
    return found


def _converted(found: Tree) -> installation.Values:
    return msgspec.convert(found, installation.Values)


def _null_misfits(found: Tree) -> list[trees.Misfit]:
    """Where a value is null. Elsewhere null is as good as nothing; a template would write an empty text for it."""
    try:
        _converted(found)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        path = place.rstrip("`").lstrip(".")
        return [
            trees.Misfit(
                path, f"{message.replace('`', '').replace('Expected', 'expected', 1)}; leave it out for its default"
            )
        ]
    return []


def objects(values: Tree, release: Release = USUAL, *, api_versions: Sequence[str] = ()) -> list[Tree]:
    """All objects of an installation, in the order they are made. Raises InputError for what is wrong."""
    _check(release)
    found = []
    for name, text in _rendered(values, release, api_versions).items():
        for document in yaml_text.documents(text):
            if isinstance(document.tree, dict):
                _check_object(document.tree, name)
                found.append(document.tree)
    configuration = next(one for one in found if one["kind"] == "ConfigMap")["data"]["scheduler.yaml"]
    try:
        configuration_files.read(configuration, file="values: configuration")
    except errors.InputError as error:
        raise errors.InputError(str(error).replace("values: configuration: ", "values: configuration.")) from None
    order = list(VERSIONS)
    return sorted(found, key=lambda one: (order.index(one["kind"]), one["metadata"]["name"]))


def definitions() -> list[Tree]:
    """The definitions of our own kinds alone: all a scheduler needs that runs outside of the cluster."""
    unused = values_of(settings=["image.repository=none"])  # the chart asks for an image; no definition names it
    return [one for one in objects(unused) if one["kind"] == "CustomResourceDefinition"]


def namespace_object(release: Release) -> Tree:
    """The namespace, labelled so that we know it for ours, and so that only pods as careful as ours run in it."""
    labels = {
        "app.kubernetes.io/name": "dovetail",
        INSTANCE_LABEL: release.name,
        PART_LABEL: "dovetail",
        MANAGER_LABEL: SERVICE,
        "pod-security.kubernetes.io/enforce": "restricted",
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": release.namespace, "labels": labels}}


def schema() -> Tree:
    """values.schema.json: the values' structs, with the configuration file's schema inside."""
    (reference,), components = msgspec.json.schema_components((installation.Values,), ref_template="#/$defs/{name}")
    own = components.pop(reference["$ref"].rpartition("/")[2])
    configuration = configuration_files.schema()
    inner = configuration.pop("$defs")
    meaning = own["properties"]["configuration"]
    for name in ("$schema", "$id", "required", "title"):
        configuration.pop(name, None)
    for path in installation.DECIDED:
        section, _, field = path.partition(".")
        place = inner[configuration["properties"][section]["$ref"].rpartition("/")[2]] if field else configuration
        place["properties"].pop(field or section)
    own["properties"]["configuration"] = configuration | {
        "description": meaning["description"],
        "default": meaning.get("default", {}),
    }
    if both := inner.keys() & components.keys():
        raise errors.StateError(f"two structs share the names {', '.join(sorted(both))}")
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **_draft_7(own),
        "definitions": _draft_7(components | inner),
    }


def _defaults() -> Tree:
    return dict(yaml.load((home() / "values.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))


def _file_tree(path: Path) -> Tree:
    try:
        documents = [one.tree for one in yaml_text.documents(files.text(path))]
    except yaml_text.TextError as error:
        raise errors.InputError(f"{path}: line {error.line}: {error.message}") from None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise errors.InputError(f"{path}: expected one mapping of values")
    return documents[0]


def _setting_tree(setting: str) -> Tree:
    """`a.b=value` as a mapping; the value is YAML, so that lists and numbers can be written."""
    found = _SETTING.fullmatch(setting)
    if found is None:
        raise errors.InputError(f'--set {setting}: expected path=value, such as replicas=3 or "schedulerNames=[a, b]"')
    path = found["path"].split(".")
    if len(path) > yaml_text.MAX_DEPTH:
        raise errors.InputError(f"--set {setting[:80]}...: a path of {len(path)} names; no value lies so deep")
    try:
        values = [one.tree for one in yaml_text.documents("---\n" + found["value"])]
    except yaml_text.TextError as error:
        raise errors.InputError(f"--set {setting}: the value is not YAML ({error.message}); quote it") from None
    if len(values) > 1:
        raise errors.InputError(f"--set {setting}: expected one value, got {len(values)}")
    tree: Any = values[0] if values else (None if found["value"] else "")
    for name in reversed(path):
        tree = {name: tree}
    return dict(tree)


def _rendered(values: Tree, release: Release, api_versions: Sequence[str]) -> dict[str, str]:
    place = home()
    about = yaml.safe_load((place / "Chart.yaml").read_text(encoding="utf-8"))
    root = {
        "Values": values,
        "Release": {"Name": release.name, "Namespace": release.namespace, "Service": SERVICE},
        "Chart": {"Name": about["name"], "Version": about["version"], "AppVersion": about["appVersion"]},
        "Capabilities": {"APIVersions": frozenset(api_versions)},
    }
    texts = {one.name: one.read_text(encoding="utf-8") for one in sorted((place / "templates").iterdir())}
    rendering = chart_templates.Rendering({name: text for name, text in texts.items() if not name.endswith(".txt")})
    return {name: rendering.render(name, root) for name in texts if name.endswith(".yaml")}


def _check(release: Release) -> None:
    if not names.is_dns_label(release.name) or len(release.name) > MAX_RELEASE:
        raise errors.InputError(f'--name: {names.LABEL_RULE} (here at most {MAX_RELEASE}), got "{release.name}"')
    if not names.is_dns_label(release.namespace):
        raise errors.InputError(f'--namespace: {names.LABEL_RULE}, got "{release.namespace}"')


def _check_object(tree: Tree, name: str) -> None:
    if tree.get("kind") not in VERSIONS or not isinstance(tree.get("metadata"), dict):
        raise errors.StateError(f"{name}: renders {trees.shown(tree.get('kind'))}, which has no place in the order")


def _draft_7(tree: Any) -> Any:
    """References as draft 7 has them, which every Helm reads."""
    if isinstance(tree, Mapping):
        return {
            key: value.replace("#/$defs/", "#/definitions/") if key == "$ref" else _draft_7(value)
            for key, value in tree.items()
        }
    return [_draft_7(item) for item in tree] if isinstance(tree, list) else tree
