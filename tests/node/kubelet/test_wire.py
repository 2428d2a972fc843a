"""Our .proto files against the kubelet's own: the same methods, and every field of ours with its number and type."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from google.protobuf import descriptor_pb2

from dovetail.devcluster import kube_binaries
from dovetail.node.kubelet import wire
from tests.support import cluster, real

# Ours, and where k8s.io/kubelet has it.
FILES: dict[str, tuple[ModuleType, str]] = {
    "registration": (wire.registration_v1_pb2, "pluginregistration/v1"),
    "dra v1": (wire.dra_v1_pb2, "dra/v1"),
    "dra v1beta1": (wire.dra_v1beta1_pb2, "dra/v1beta1"),
    "health v1": (wire.health_v1_pb2, "dra-health/v1"),
    "health v1alpha1": (wire.health_v1alpha1_pb2, "dra-health/v1alpha1"),
    "device plugin": (wire.device_plugin_v1beta1_pb2, "deviceplugin/v1beta1"),
}
NEW_IN_1_37 = ("health v1",)

Field = tuple[int, str, str, bool]


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("version", cluster.EACH_VERSION)
def test_messages_and_methods_are_the_kubelets_own(name: str, version: str, tmp_path: Path) -> None:
    if name in NEW_IN_1_37 and version == "1.36":
        pytest.skip("not in this version")
    module, folder = FILES[name]
    ours = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(ours)
    theirs = upstream(version, folder, tmp_path)

    assert ours.package == theirs.package
    assert methods(ours) == methods(theirs)
    their_messages = fields(theirs)
    for message, our_fields in fields(ours).items():
        missing = {
            field: shape
            for field, shape in our_fields.items()
            if their_messages[message].get(field) != shape
        }
        assert not missing, f"{message}: {missing}"
    assert enums(ours) == enums(theirs)


def upstream(version: str, folder: str, scratch: Path) -> descriptor_pb2.FileDescriptorProto:
    """The kubelet's file, compiled from the module cache."""
    if shutil.which("go") is None:
        real.missing("go")
    cache = subprocess.run(
        ["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True
    ).stdout.strip()
    module = "v0." + kube_binaries.pinned(version).removeprefix("v1.")
    source = Path(cache) / f"k8s.io/kubelet@{module}/pkg/apis" / folder / "api.proto"
    if not source.is_file():
        real.missing(f"the source of k8s.io/kubelet {module}")
    target = scratch / "descriptors"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"--proto_path={source.parent}",
            f"--descriptor_set_out={target}",
            source.name,
        ],
        check=True,
    )
    (file,) = descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes()).file
    return file


def methods(file: descriptor_pb2.FileDescriptorProto) -> dict[str, tuple[str, str, bool]]:
    """Full method names with their messages, and whether they stream."""
    return {
        f"/{file.package}.{service.name}/{method.name}": (
            method.input_type,
            method.output_type,
            method.server_streaming,
        )
        for service in file.service
        for method in service.method
    }


def fields(file: descriptor_pb2.FileDescriptorProto) -> dict[str, dict[str, Field]]:
    """Fields by message; the entries of maps are messages of their own."""
    messages = [*file.message_type]
    for message in file.message_type:
        messages += message.nested_type
    return {
        message.name: {
            field.name: (
                field.number,
                descriptor_pb2.FieldDescriptorProto.Label.Name(field.label),
                field.type_name or descriptor_pb2.FieldDescriptorProto.Type.Name(field.type),
                field.proto3_optional,
            )
            for field in message.field
        }
        for message in messages
    }


def enums(file: descriptor_pb2.FileDescriptorProto) -> dict[str, dict[str, int]]:
    return {
        enum.name: {value.name: value.number for value in enum.value} for enum in file.enum_type
    }
