"""Reads the chart: validates its values and renders its templates to objects.

Given values files, `path=value` settings and the API versions that the cluster serves. The chart in deploy/chart is the
only source of an installation; Helm renders the same files. Never sends a request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from dovetail import errors
from dovetail.files import bounded_files, configuration_file
from dovetail.install import chart_functions, chart_templates, chart_values, value_problems
from dovetail.kubetypes import names, untyped
from dovetail.manifest import yaml_text

SERVICE: Final = "dovetail"  # manager of the objects of `dovetail install`; Helm writes "Helm"
INSTANCE_LABEL: Final = "app.kubernetes.io/instance"
MANAGER_LABEL: Final = "app.kubernetes.io/managed-by"
PART_LABEL: Final = "app.kubernetes.io/part-of"
# Kinds that templates use if the cluster serves them: group, version and kind.
OPTIONAL: Final = (
    "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy",
    "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy",
)
# Every kind that any version of the chart had, with its API versions, in creation order; deletion is in reverse.
VERSIONS: Final[dict[str, tuple[str, ...]]] = {
    "Namespace": ("v1",),
    "CustomResourceDefinition": ("apiextensions.k8s.io/v1",),
    "Lease": ("coordination.k8s.io/v1",),
    "ServiceAccount": ("v1",),
    "Secret": ("v1",),
    "ConfigMap": ("v1",),
    "PersistentVolumeClaim": ("v1",),
    "ClusterRole": ("rbac.authorization.k8s.io/v1",),
    "ClusterRoleBinding": ("rbac.authorization.k8s.io/v1",),
    "Role": ("rbac.authorization.k8s.io/v1",),
    "RoleBinding": ("rbac.authorization.k8s.io/v1",),
    "NetworkPolicy": ("networking.k8s.io/v1",),
    "PodDisruptionBudget": ("policy/v1",),
    "Service": ("v1",),
    "MutatingAdmissionPolicy": (
        "admissionregistration.k8s.io/v1",
        "admissionregistration.k8s.io/v1beta1",
    ),
    "MutatingAdmissionPolicyBinding": (
        "admissionregistration.k8s.io/v1",
        "admissionregistration.k8s.io/v1beta1",
    ),
    "ValidatingAdmissionPolicy": ("admissionregistration.k8s.io/v1",),
    "ValidatingAdmissionPolicyBinding": ("admissionregistration.k8s.io/v1",),
    "ServiceMonitor": ("monitoring.coreos.com/v1",),
    "PrometheusRule": ("monitoring.coreos.com/v1",),
    "DeviceClass": ("resource.k8s.io/v1",),
    "Deployment": ("apps/v1",),
    "DaemonSet": ("apps/v1",),
}
FOLDERS: Final = ("grafana", "prometheus")  # whose files templates read
MAX_RELEASE: Final = 53  # Helm's limit for the name of a release

_HERE: Final = Path(__file__).resolve().parent
_SETTING: Final = re.compile(r"(?P<path>[A-Za-z][\w./-]*?)=(?P<value>.*)", re.DOTALL)

Tree = dict[str, Any]


class Release(NamedTuple):
    """One installation: its name is part of every object's name."""

    name: str
    namespace: str


USUAL: Final = Release("dovetail", "dovetail-system")


def home() -> Path:
    """The chart's directory: inside the package in a wheel, under deploy/ in a checkout."""
    for place in (_HERE.parent / "deploy" / "chart", _HERE.parents[2] / "deploy" / "chart"):
        if (place / "Chart.yaml").is_file():
            return place
    raise errors.StateError(
        "the chart is not part of this installation; reinstall the dovetail package"
    )


def values_of(files: Sequence[str | Path] = (), *, settings: Sequence[str] = ()) -> Tree:
    """The chart's values, overridden by files and then settings, the last one winning. Raises InputError."""
    values = _defaults()
    for file in files:
        values = chart_functions.merged_over(values, _file_tree(Path(file)))
    for setting in settings:
        values = chart_functions.merged_over(values, _setting_tree(setting))

    # Each check relies on the one before it.
    misfits = value_problems.misfits(values) or _null_misfits(values)
    if not misfits:
        misfits = list(value_problems.problems(_converted(values)))
    if misfits:
        lines = [f"values: {misfit.path}: {misfit.message}" for misfit in misfits]
        raise errors.InputError("\n".join(lines))
    return values


def _converted(values: Tree) -> chart_values.Values:
    return msgspec.convert(values, chart_values.Values)


def _null_misfits(values: Tree) -> list[untyped.Misfit]:
    """Values that are null. Other checks read null as absent, but a template would write an empty text."""
    try:
        _converted(values)
    except msgspec.ValidationError as error:
        message, _, location = str(error).partition(" - at `$")
        path = location.rstrip("`").lstrip(".")
        expectation = message.replace("`", "").replace("Expected", "expected", 1)
        return [untyped.Misfit(path, f"{expectation}; leave it out for its default")]
    return []


def objects(
    values: Tree, release: Release = USUAL, *, api_versions: Sequence[str] = ()
) -> list[Tree]:
    """All objects of an installation, in creation order. Raises InputError for wrong values."""
    _check(release)
    trees = []
    for name, text in _rendered(values, release, api_versions).items():
        for document in yaml_text.documents(text):
            if isinstance(document.tree, dict):
                _check_object(document.tree, name)
                trees.append(document.tree)

    config_map = next(tree for tree in trees if tree["kind"] == "ConfigMap")
    _check_configuration(config_map["data"]["scheduler.yaml"])

    order = list(VERSIONS)
    return sorted(trees, key=lambda tree: (order.index(tree["kind"]), tree["metadata"]["name"]))


def _check_configuration(text: str) -> None:
    """Raises InputError with paths as the values have them."""
    try:
        configuration_file.read(text, file="values: configuration")
    except errors.InputError as error:
        message = str(error).replace("values: configuration: ", "values: configuration.")
        raise errors.InputError(message) from None


def definitions() -> list[Tree]:
    """The definitions of our kinds, which a scheduler outside of the cluster needs too."""
    # The chart requires an image, although no definition names it.
    unused = values_of(settings=["image.repository=none"])
    return [tree for tree in objects(unused) if tree["kind"] == "CustomResourceDefinition"]


def namespace_object(release: Release, values: Tree) -> Tree:
    """The namespace, labelled as ours. Pod Security restricts it, unless node agents run there: they are privileged."""
    level = "privileged" if values["nodeAgent"]["enabled"] else "restricted"
    labels = {
        "app.kubernetes.io/name": "dovetail",
        INSTANCE_LABEL: release.name,
        PART_LABEL: "dovetail",
        MANAGER_LABEL: SERVICE,
        "pod-security.kubernetes.io/enforce": level,
    }
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": release.namespace, "labels": labels},
    }


def schema() -> Tree:
    """values.schema.json: the values' structs, with the configuration file's schema inside."""
    (reference,), components = msgspec.json.schema_components(
        (chart_values.Values,), ref_template="#/$defs/{name}"
    )
    own = components.pop(reference["$ref"].rpartition("/")[2])
    meaning = own["properties"]["configuration"]

    configuration = configuration_file.schema()
    inner = configuration.pop("$defs")
    for name in ("$schema", "$id", "required", "title"):
        configuration.pop(name, None)
    for path in chart_values.DECIDED:
        section, _, field = path.partition(".")
        if field:
            section_name = configuration["properties"][section]["$ref"].rpartition("/")[2]
            inner[section_name]["properties"].pop(field)
        else:
            configuration["properties"].pop(section)

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
    return dict(
        yaml.load((home() / "values.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    )


def _file_tree(path: Path) -> Tree:
    try:
        documents = [document.tree for document in yaml_text.documents(bounded_files.text(path))]
    except yaml_text.TextError as error:
        raise errors.InputError(f"{path}: line {error.line}: {error.message}") from None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise errors.InputError(f"{path}: expected one mapping of values")
    return documents[0]


def _setting_tree(setting: str) -> Tree:
    """`a.b=value` as a mapping; the value is YAML, so that lists and numbers can be written."""
    parts = _SETTING.fullmatch(setting)
    if parts is None:
        raise errors.InputError(
            f'--set {setting}: expected path=value, such as replicas=3 or "schedulerNames=[a, b]"'
        )
    path = parts["path"].split(".")
    if len(path) > yaml_text.MAX_DEPTH:
        raise errors.InputError(
            f"--set {setting[:80]}...: a path of {len(path)} names; no value is nested so deeply"
        )

    try:
        values = [document.tree for document in yaml_text.documents("---\n" + parts["value"])]
    except yaml_text.TextError as error:
        raise errors.InputError(
            f"--set {setting}: the value is not YAML ({error.message}); quote it"
        ) from None
    if len(values) > 1:
        raise errors.InputError(f"--set {setting}: expected one value, got {len(values)}")

    tree: Any = None
    if values:
        tree = values[0]
    elif not parts["value"]:
        tree = ""  # `path=` means the empty text
    for name in reversed(path):
        tree = {name: tree}
    return dict(tree)


def _rendered(values: Tree, release: Release, api_versions: Sequence[str]) -> dict[str, str]:
    directory = home()
    about = yaml.safe_load((directory / "Chart.yaml").read_text(encoding="utf-8"))
    root = {
        "Values": values,
        "Release": {"Name": release.name, "Namespace": release.namespace, "Service": SERVICE},
        "Chart": {
            "Name": about["name"],
            "Version": about["version"],
            "AppVersion": about["appVersion"],
        },
        "Capabilities": {"APIVersions": frozenset(api_versions)},
        "Files": _files(directory),
    }
    texts = {
        file.name: file.read_text(encoding="utf-8")
        for file in sorted((directory / "templates").iterdir())
        if not file.name.endswith(".txt")
    }
    rendering = chart_templates.Rendering(texts)
    return {name: rendering.render(name, root) for name in texts if name.endswith(".yaml")}


def _files(directory: Path) -> dict[str, str]:
    """What templates may read by `.Files.Get`: rules and dashboards, by their path in the chart."""
    return {
        str(path.relative_to(directory)): path.read_text(encoding="utf-8")
        for folder in FOLDERS
        for path in sorted((directory / folder).iterdir())
    }


def _check(release: Release) -> None:
    if not names.is_dns_label(release.name) or len(release.name) > MAX_RELEASE:
        raise errors.InputError(
            f'--name: {names.LABEL_RULE} (here at most {MAX_RELEASE}), got "{release.name}"'
        )
    if not names.is_dns_label(release.namespace):
        raise errors.InputError(f'--namespace: {names.LABEL_RULE}, got "{release.namespace}"')


def _check_object(tree: Tree, name: str) -> None:
    if tree.get("kind") not in VERSIONS or not isinstance(tree.get("metadata"), dict):
        raise errors.StateError(
            f"{name}: renders {untyped.shown(tree.get('kind'))}, which is not in the creation order"
        )


def _draft_7(tree: Any) -> Any:
    """References in the form of JSON Schema draft 7, which every version of Helm reads."""
    if isinstance(tree, list):
        return [_draft_7(element) for element in tree]
    if not isinstance(tree, Mapping):
        return tree

    converted = {key: _draft_7(value) for key, value in tree.items()}
    if "$ref" in tree:
        converted["$ref"] = tree["$ref"].replace("#/$defs/", "#/definitions/")
    return converted
