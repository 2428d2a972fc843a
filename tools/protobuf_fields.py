"""Writes the field numbers of Kubernetes' protobuf encoding, read from the struct tags of the Go module k8s.io/api.

Given the version of the modules; writes `protobuf_fields.txt` of `sim/rest/encoding`: one line per message that the
kinds below reach, with number, JSON name and type of every field. Run it again for another Kubernetes.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final, NamedTuple

TARGET: Final = Path(__file__).parent.parent / "src/dovetail/sim/rest/encoding/protobuf_fields.txt"
# The kinds that kubectl sends in this encoding: its generators, reviews and evictions.
KINDS: Final = (
    "core/v1 Namespace ConfigMap Secret Service ServiceAccount ResourceQuota Pod Node Binding "
    "PersistentVolumeClaim PersistentVolume Endpoints LimitRange Event ReplicationController",
    "apps/v1 Deployment ReplicaSet StatefulSet DaemonSet ControllerRevision",
    "batch/v1 Job CronJob",
    "autoscaling/v1 Scale",
    "autoscaling/v2 HorizontalPodAutoscaler",
    "networking/v1 Ingress NetworkPolicy IngressClass",
    "policy/v1 PodDisruptionBudget Eviction",
    "rbac/v1 Role RoleBinding ClusterRole ClusterRoleBinding",
    "scheduling/v1 PriorityClass",
    "storage/v1 StorageClass",
    "coordination/v1 Lease",
    "authentication/v1 TokenReview TokenRequest SelfSubjectReview",
    "authorization/v1 SubjectAccessReview SelfSubjectAccessReview LocalSubjectAccessReview "
    "SelfSubjectRulesReview",
)
SPECIAL: Final = {
    "resource.Quantity": "quantity",
    "intstr.IntOrString": "intorstring",
    "metav1.Time": "time",
    "metav1.MicroTime": "time",
    "metav1.FieldsV1": "json",
    "runtime.RawExtension": "json",
}
SCALARS: Final = {
    "string": "string",
    "bool": "bool",
    "int32": "int",
    "int64": "int",
    "[]byte": "bytes",
    "float64": "float",
}
_STRUCT: Final = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.M | re.S)
_ALIAS: Final = re.compile(r"^type (\w+) ([\w.\[\]]+)$", re.M)
_FIELD: Final = re.compile(
    r"^\t(?:(\w+)\s+)?([\w.*\[\]]+)\s+`json:\"([^\"]*)\"[^`]*protobuf:\"[a-z0-9]+,(\d+),", re.M
)


class Package(NamedTuple):
    """The types of one package."""

    name: str
    structs: dict[str, str]
    aliases: dict[str, str]


def main(version: str) -> int:
    """Writes the file for one version of the modules."""
    root = Path.home() / "go/pkg/mod/k8s.io"
    packages = {"metav1": _package("metav1", root / f"apimachinery@{version}/pkg/apis/meta/v1")}
    for line in KINDS:
        path = line.split()[0]
        packages[path] = _package(path, root / f"api@{version}" / path)
    lines: dict[str, str] = {}
    for line in KINDS:
        path, *kinds = line.split()
        for kind in kinds:
            _reach(packages, path, kind, lines)
    TARGET.write_text("\n".join(lines[name] for name in sorted(lines)) + "\n")
    print(f"{TARGET}: {len(lines)} messages")
    return 0


def _package(name: str, folder: Path) -> Package:
    text = "\n".join(path.read_text() for path in sorted(folder.glob("*types*.go")))
    return Package(name, dict(_STRUCT.findall(text)), dict(_ALIAS.findall(text)))


def _reach(packages: dict[str, Package], path: str, name: str, lines: dict[str, str]) -> None:
    """Adds a message and everything it refers to."""
    full = f"{path}.{name}"
    if full in lines:
        return
    lines[full] = ""
    fields = []
    for field, go_type, tag, number in _FIELD.findall(packages[path].structs[name]):
        json_name, *options = tag.split(",")
        kind, needs = _typed(packages, path, go_type)
        if "inline" in options or not (field or json_name):
            json_name = "<"  # its fields belong to the message around it
        fields.append(f"{number} {json_name} {kind}")
        for needed_path, needed in needs:
            _reach(packages, needed_path, needed, lines)
    lines[full] = f"{full}: {', '.join(fields)}"


def _typed(
    packages: dict[str, Package], path: str, go_type: str
) -> tuple[str, list[tuple[str, str]]]:
    """The type in our notation, and the messages it refers to."""
    if go_type in SCALARS:
        return SCALARS[go_type], []
    if go_type in SPECIAL:
        return SPECIAL[go_type], []
    if go_type.startswith("*"):
        kind, needs = _typed(packages, path, go_type[1:])
        return f"*{kind}", needs
    if go_type.startswith("[]"):
        kind, needs = _typed(packages, path, go_type[2:])
        return f"[]{kind}", needs
    if go_type.startswith("map["):
        kind, needs = _typed(packages, path, go_type.partition("]")[2])
        return f"map:{kind}", needs
    place, _, name = go_type.rpartition(".")
    package = packages[_import(packages, path, place)]
    if name in package.structs:
        return f"{package.name}.{name}", [(package.name, name)]
    if f"metav1.{name}" in SPECIAL and package.name == "metav1":
        return SPECIAL[f"metav1.{name}"], []
    if name in package.aliases:
        return _typed(packages, package.name, package.aliases[name])
    return "string", []  # a named text of another package


def _import(packages: dict[str, Package], path: str, place: str) -> str:
    if not place:
        return path
    names = {"v1": "core/v1", "corev1": "core/v1", "metav1": "metav1", "types": "metav1"}
    return names.get(place, "core/v1")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "v0.37.1"))
