"""Device metadata files (KEP-5304): what a container can read about the devices it got, without asking the API server.

Given a prepared claim, writes one JSON file per request and one CDI file that mounts it; returns the CDI ids.
Layout and names are those of Kubernetes' own plugin library, so that programs find them. Raises OSError.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import msgspec

from dovetail.node.cdi import durable_files, spec
from dovetail.node.claims import checkpoint, configs

_API_VERSION: Final = "metadata.resource.k8s.io/v1beta1"
_KIND: Final = f"{configs.DRIVER}/metadata"
_CONTAINER_FOLDER: Final = "/var/run/kubernetes.io/dra-device-attributes"
_FILE_MODE: Final = 0o644
_FOLDER_MODE: Final = 0o755


class DeviceMetadata:
    """The metadata files of this node's claims."""

    def __init__(self, plugin_folder: Path, cdi_folder: Path) -> None:
        self._folder = plugin_folder / "dra-device-metadata"
        self._cdi_folder = cdi_folder

    def write(self, claim: checkpoint.Claim) -> dict[str, str]:
        """Writes the files; returns the CDI id for each request."""
        ids: dict[str, str] = {}
        requests = dict.fromkeys(device.request for device in claim.devices)
        for request in requests:
            base = request.partition("/")[0]
            path = self._claim_folder(claim) / base / "metadata.json"
            path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            durable_files.replace(path, _document(claim, request), mode=_FILE_MODE)
            self._write_mount(claim, base, path)
            ids[request] = f"{_KIND}={claim.uid}_{base}"
        return ids

    def remove(self, claim: checkpoint.Claim) -> None:
        """Deletes them; nothing happens if there are none."""
        for path in self._cdi_folder.glob(f"{configs.DRIVER}_metadata_{claim.uid}_*.json"):
            durable_files.remove(path)
        folder = self._claim_folder(claim)
        if folder.exists():
            shutil.rmtree(folder)

    def _claim_folder(self, claim: checkpoint.Claim) -> Path:
        return self._folder / f"{claim.namespace}_{claim.name}"

    def _write_mount(self, claim: checkpoint.Claim, request: str, path: Path) -> None:
        if claim.pod_claim_name:
            place = f"resourceclaimtemplates/{claim.pod_claim_name}"
        else:
            place = f"resourceclaims/{claim.name}"
        inside = f"{_CONTAINER_FOLDER}/{place}/{request}/{configs.DRIVER}-metadata.json"
        mount = spec.Mount(host_path=str(path), container_path=inside, options=("ro", "bind"))
        device = spec.Device(
            name=f"{claim.uid}_{request}", container_edits=spec.Edits(mounts=(mount,))
        )
        content = msgspec.json.encode(spec.spec_of(_KIND, (device,), spec.Edits()))
        name = f"{configs.DRIVER}_metadata_{claim.uid}_{request}.json"
        durable_files.replace(self._cdi_folder / name, content, mode=_FILE_MODE)


def _document(claim: checkpoint.Claim, request: str) -> bytes:
    devices = [_device(held) for held in claim.devices if held.request == request]
    document: dict[str, Any] = {
        "apiVersion": _API_VERSION,
        "kind": "DeviceMetadata",
        "metadata": {
            "name": claim.name,
            "namespace": claim.namespace,
            "uid": claim.uid,
            "generation": 1,
        },
        "requests": [{"name": request, "devices": devices}],
    }
    if claim.pod_claim_name:
        document["podClaimName"] = claim.pod_claim_name
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _device(held: checkpoint.HeldDevice) -> dict[str, Any]:
    attributes = {"type": "mig" if held.slice_count else "gpu", "uuid": held.gpu_uuid}
    if held.instance is not None:
        attributes |= {
            "uuid": held.instance.uuid,
            "parentUUID": held.gpu_uuid,
            "profile": held.profile,
        }
    if held.pci_bus_id:
        attributes["resource.kubernetes.io/pciBusID"] = held.pci_bus_id
    return {
        "driver": configs.DRIVER,
        "pool": held.pool,
        "name": held.device,
        "attributes": {name: {"string": text} for name, text in attributes.items()},
    }
