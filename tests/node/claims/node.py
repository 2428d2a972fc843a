"""A node for stories: fake GPUs under the real NVML binding, the agent's folders, and an API server with claims.

`Node.restart` is a new agent on what the old one left behind.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from dovetail.boot import clocks
from dovetail.devcluster.fake_gpus.hardware import Hardware
from dovetail.kubetypes import registry
from dovetail.node.cdi.claim_specs import Paths as CdiPaths
from dovetail.node.cdi.driver_root import DriverRoot
from dovetail.node.claims import assembly, plan_prepare
from dovetail.node.claims.mps import MpsDaemons
from dovetail.node.claims.service import NodeClaims
from dovetail.node.inventory import Inventory
from dovetail.node.kubelet.claim_service import ClaimReference, Failed, Prepared
from dovetail.node.nvml.control import NvmlControl
from dovetail.node.nvml.session import Session
from dovetail.ports.api import Target
from dovetail.sim.server.api_server import SimApi

POOL = "node-a"
DRIVER = "gpu.nvidia.com"
Tree = dict[str, Any]
T = TypeVar("T")


def opaque(
    kind: str, *, source: str = "FromClaim", requests: Sequence[str] = (), **members: Any
) -> Tree:
    """A config of an allocation."""
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, **members}
    config: Tree = {"source": source, "opaque": {"driver": DRIVER, "parameters": parameters}}
    if requests:
        config["requests"] = list(requests)
    return config


def time_slicing(interval: str | None = None, **scope: Any) -> Tree:
    """GpuConfig with strategy TimeSlicing."""
    sharing: Tree = {"strategy": "TimeSlicing"}
    if interval is not None:
        sharing["timeSlicingConfig"] = {"interval": interval}
    return opaque("GpuConfig", sharing=sharing, **scope)


def mps(kind: str = "GpuConfig", scope: Mapping[str, Any] | None = None, **config: Any) -> Tree:
    """A config with strategy MPS."""
    sharing: Tree = {"strategy": "MPS"}
    if config:
        sharing["mpsConfig"] = config
    return opaque(kind, sharing=sharing, **(scope or {}))


def share(device: str, **consumed: str) -> Tree:
    """The result of allocating a share of a device."""
    names = {"share": "dovetail.dev/share"}
    capacity = {names.get(name, name): amount for name, amount in consumed.items()}
    return {"device": device, "shareID": str(uuid.uuid4()), "consumedCapacity": capacity}


def claim_tree(
    name: str,
    *devices: str | Tree,
    configs: Sequence[Tree] = (),
    pool: str = POOL,
    namespace: str = "default",
) -> Tree:
    """An allocated claim. Requests are named r0, r1 and so on."""
    results: list[Tree] = []
    for index, device in enumerate(devices):
        tree = {"device": device} if isinstance(device, str) else device
        results.append({"request": f"r{index}", "driver": DRIVER, "pool": pool, **tree})
    requests = [
        {"name": f"r{index}", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
        for index in range(max(1, len(devices)))
    ]
    allocation: Tree = {"devices": {"results": results, "config": list(configs)}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"devices": {"requests": requests}},
        "status": {"allocation": allocation},
    }


class Node:
    """The machine, its folders and the agent."""

    def __init__(
        self, folder: Path, hardware: Hardware, *, mig: str = "dynamic", **options: Any
    ) -> None:
        self._runner = asyncio.Runner()  # one event loop for the agent's whole life
        self.folder = folder
        self.hardware = hardware
        self.plugin = folder / "plugin"
        self.cdi = folder / "cdi"
        self.boot_id_file = folder / "boot_id"
        if not self.boot_id_file.exists():
            self.boot_id_file.write_text("boot-1\n", "ascii")
        self.namespace: str = options.pop("namespace", "default")
        self.api: Any = options.pop("api", None) or self._embedded()
        self.agent_api: Any = options.pop("agent_api", self.api)
        self.settings = plan_prepare.Settings(pool=POOL, mig=plan_prepare.MigPolicy(mig))
        self._is_inventory_kept = options.pop("keeps_inventory", False)
        self.options = options
        self.session = Session(hardware.driver_root)
        self.control = NvmlControl(self.session, sysfs_root=hardware.sysfs_root)
        self._references: dict[str, ClaimReference] = {}
        self.agent = self._agent()

    def _embedded(self) -> SimApi:
        api = SimApi(clocks.SystemClock(), namespaces=[self.namespace])
        label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
        target = Target(registry.NAMESPACE, name=self.namespace)
        self.run(api.patch(target, msgspec.json.encode(label)))
        return api

    def _agent(self) -> NodeClaims:
        paths = assembly.Paths(
            plugin_folder=self.plugin,
            boot_id_file=self.boot_id_file,
            driver_root=self.hardware.driver_root,
            cdi=CdiPaths(
                cdi_folder=self.cdi,
                proc_root=self.hardware.proc_root,
                sysfs_root=self.hardware.sysfs_root,
            ),
        )
        return assembly.node_claims(
            api=self.agent_api,
            clock=clocks.SystemClock(),
            control=self.control,
            inventory=self._inventory(),
            settings=self.settings,
            paths=paths,
            **self.options,
        )

    def _inventory(self) -> Callable[[], Inventory]:
        """The newest facts; or those of the agent's start, as between two scans of a watcher."""
        if not self._is_inventory_kept:
            return self.control.inventory
        kept = self.control.inventory()
        return lambda: kept

    def close(self) -> None:
        """Ends the daemons that a story left running."""
        self._runner.close()
        daemons = MpsDaemons(self.plugin / "mps", DriverRoot(self.hardware.driver_root))
        for name in daemons.names():
            daemons.stop(name)

    # ---- claims in the API server

    def allocate(self, name: str, *devices: str | Tree, **options: Any) -> ClaimReference:
        """Stores an allocated claim."""
        tree = claim_tree(name, *devices, namespace=self.namespace, **options)
        reference = self.run(self._store(tree))
        self._references[name] = reference
        return reference

    async def _store(self, tree: Tree) -> ClaimReference:
        metadata = tree["metadata"]
        status = tree.pop("status")
        target = Target(registry.CLAIM, metadata["namespace"])
        stored = msgspec.json.decode(await self.api.create(target, msgspec.json.encode(tree)))
        named = target._replace(name=metadata["name"], subresource="status")
        await self.api.patch(named, msgspec.json.encode({"status": status}))
        return ClaimReference(metadata["namespace"], metadata["name"], stored["metadata"]["uid"])

    def reallocate(self, name: str, *devices: str) -> None:
        """Changes what a claim has."""
        status = claim_tree(name, *devices)["status"]
        target = Target(registry.CLAIM, self.namespace, name, "status")
        self.run(self.api.patch(target, msgspec.json.encode({"status": None})))
        self.run(self.api.patch(target, msgspec.json.encode({"status": status})))

    def delete(self, name: str) -> None:
        """Deletes a claim from the API server."""
        self.run(self.api.delete(Target(registry.CLAIM, self.namespace, name)))

    def stored(self, name: str) -> Tree:
        """A claim in the API server."""
        document = self.run(self.api.get(Target(registry.CLAIM, self.namespace, name)))
        return dict(msgspec.json.decode(document))

    # ---- the kubelet's part

    def start(self) -> None:
        """The agent begins."""
        self.run(self.agent.start())

    def restart(self) -> None:
        """A new agent on the same folders."""
        self.agent = self._agent()
        self.start()

    def prepare(self, name: str) -> Prepared | Failed:
        """Asks the agent to prepare a claim."""
        reference = self._references[name]
        return self.run(self.agent.prepare([reference]))[reference.uid]

    def prepared(self, name: str, *devices: str | Tree, **options: Any) -> Prepared:
        """A new claim that is prepared."""
        self.allocate(name, *devices, **options)
        answer = self.prepare(name)
        assert isinstance(answer, Prepared), answer
        return answer

    def refused(self, name: str, *devices: str | Tree, **options: Any) -> str:
        """A new claim that is not; the message."""
        self.allocate(name, *devices, **options)
        answer = self.prepare(name)
        assert isinstance(answer, Failed), answer
        return answer.message

    def unprepare(self, name: str) -> Failed | None:
        """Asks the agent to undo a claim."""
        reference = self._references[name]
        return self.run(self.agent.unprepare([reference]))[reference.uid]

    def uid(self, name: str) -> str:
        """The uid of a claim."""
        return self._references[name].uid

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs it to its end."""
        return self._runner.run(work)

    # ---- what there is

    def instances(self, gpu: int = 0) -> list[tuple[str, int]]:
        """The GPU instances: profile and first memory slice."""
        state = self.hardware.snapshot().gpus[gpu]
        return sorted((instance.profile, instance.start) for instance in state.gpu_instances)

    def is_mig_on(self, gpu: int = 0) -> bool:
        """MIG mode."""
        return bool(self.hardware.snapshot().gpus[gpu].mig_mode)

    def cdi_files(self) -> list[str]:
        """The names of all files in the CDI folder."""
        return sorted(path.name for path in self.cdi.iterdir()) if self.cdi.exists() else []

    def cdi_spec(self, name: str) -> Tree:
        """The CDI file of a claim."""
        path = self.cdi / f"k8s.gpu.nvidia.com-claim_{self.uid(name)}.yaml"
        return dict(yaml.safe_load(path.read_bytes()))

    def checkpoint(self) -> Tree:
        """The data of checkpoint.json; before the first claim there is none."""
        if not (self.plugin / "checkpoint.json").exists():
            return {"claims": {}}
        content = msgspec.json.decode((self.plugin / "checkpoint.json").read_bytes())
        return dict(content["data"])

    def events(self, *names: str) -> list[str]:
        """The events of the hardware's history, as far as they are among these."""
        return [change.event for change in self.hardware.history() if change.event in names]

    def assert_clean(self, gpus: Iterable[int] = (0,)) -> None:
        """Nothing is left of any claim."""
        for gpu in gpus:
            assert self.instances(gpu) == []
        assert self.cdi_files() == []
        assert self.checkpoint()["claims"] == {}
        assert self.hardware.snapshot().mps_daemons == ()
