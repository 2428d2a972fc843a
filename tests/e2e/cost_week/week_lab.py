"""The parts of the week: a control plane, nodes with fake GPUs under node agents, Prometheus, the recorder.

All are real processes that a test kills and starts again; the test is scheduler and kubelet, so that it decides what
happens at which time. Each verb returns once the recorder has stored what it means, and time stands still meanwhile.
"""

from __future__ import annotations

import contextlib
import datetime
import subprocess
import sys
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from dovetail import errors, timestamps
from dovetail.devcluster import control_plane, free_ports, kube_binaries
from dovetail.devcluster.fake_gpus.hardware import Hardware
from dovetail.devcluster.fake_gpus.hardware_state import Process
from dovetail.history import stores
from dovetail.model.accounting.records import GapSource, Records
from tests.e2e.cost_week import dated_scrapes, week_clock
from tests.nvidia import agent_node
from tests.support import live, prometheus, rest
from tests.support.waiting import wait_until

DRIVER: Final = "gpu.nvidia.com"
SCRAPE_INTERVAL: Final = "100ms"
# Prometheus stamps its own series with the real time, after which those of the week are late.
OUT_OF_ORDER: Final = "15d"
SPOT: Final = {"karpenter.sh/capacity-type": "spot"}

Tree = dict[str, Any]


class Held(NamedTuple):
    """A claim of the week, and the pods that hold it."""

    node: str
    claim: Tree
    pods: tuple[tuple[str, str], ...]  # namespace and name


class Machine(NamedTuple):
    """A node of the week."""

    hardware: Hardware
    agent: agent_node.AgentNode
    port: int
    labels: Mapping[str, str]


class WeekLab:
    """See `running`."""

    def __init__(self, plane: control_plane.ControlPlane, folder: Path, start: int) -> None:
        self.plane = plane
        self.folder = folder
        self.clock = week_clock.WeekClock(folder / "clock", start=start)
        self.rest = rest.Rest(plane)
        self.store = str(folder / "history.sqlite")
        self.machines: dict[str, Machine] = {}
        self.held: dict[str, Held] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._pids: dict[str, int] = {}
        self._prometheus_port = free_ports.reserve()
        self.scrapes: dated_scrapes.DatedScrapes | None = None

    # Nodes

    def add_node(
        self,
        name: str,
        *,
        machine: str,
        gpus: int,
        mig: str = "off",
        shares: str = "off",
        labels: Mapping[str, str],
    ) -> None:
        """A node whose agent serves metrics."""
        hardware = Hardware.create(self.folder / f"gpus-{name}", machine=machine, gpus=gpus)
        port = free_ports.reserve()
        metrics = [f"--metrics=127.0.0.1:{port}", "--device-metrics=0.1"]
        agent = agent_node.AgentNode(
            hardware, self.plane, name, mig=mig, shares=shares, options=metrics
        )
        self.machines[name] = Machine(hardware, agent, port, labels)
        self.rest.patch("nodes", name, {"metadata": {"labels": dict(labels)}})

    def lose_node(self, name: str) -> None:
        """The machine is gone, and with it the Node; the control plane's collectors remove what it owned."""
        machine = self.machines[name]
        machine.agent.kill()
        for held in [each for each in self.held.values() if each.node == name]:
            self._forget(held)
        self.rest.delete("nodes", name)
        wait_until(lambda: not machine.agent.slices(), f"the slices of {name} to be collected")
        self.settled()

    def return_node(self, name: str) -> None:
        """The machine is back with the same GPUs and no work."""
        machine = self.machines[name]
        for gpu in range(len(machine.hardware.snapshot().gpus)):
            machine.hardware.set_processes(gpu, [])
            machine.hardware.set_utilisation(gpu, gpu_percent=0)
        metadata = {"name": name, "labels": dict(machine.labels)}
        self.rest.create("nodes", {"metadata": metadata})
        self.start_agent(name)
        self.settled()

    def kill_agent(self, name: str) -> None:
        """As a crash does."""
        self.machines[name].agent.kill()

    def start_agent(self, name: str) -> None:
        """On what the one before it left; returns when it serves metrics."""
        self.machines[name].agent.start()
        wait_until(lambda: self._text(name), f"metrics of {name}")

    # Work

    def run(
        self,
        claim: str,
        node: str,
        device: str,
        pods: Sequence[tuple[str, str]],
        *,
        is_share: bool = False,
    ) -> None:
        """Pods begin to run with a claim on a device, as scheduler and kubelet leave them behind."""
        namespace = pods[0][0]
        request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
        tree = {"metadata": {"name": claim}, "spec": {"devices": {"requests": [request]}}}
        self.rest.create("resourceclaims", tree, namespace)
        consumers = [
            {
                "resource": "pods",
                "name": name,
                "uid": self._create_pod(namespace, name, node, claim),
            }
            for namespace, name in pods
        ]
        result: Tree = {"request": "gpu", "driver": DRIVER, "pool": node, "device": device}
        if is_share:
            result |= {
                "shareID": str(uuid.uuid4()),
                "consumedCapacity": {"shares": "1", "memory": "0"},
            }
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": consumers}
        patch = {"status": status}
        stored = self.rest.patch("resourceclaims", claim, patch, namespace, "status")
        answer = self.machines[node].agent.prepare(stored)
        assert answer.error == "", answer.error
        self.held[claim] = Held(node, stored, tuple(pods))
        self.settled()

    def end(self, claim: str, *, is_seen: bool = True) -> None:
        """All pods of a claim end, and it is released."""
        held = self.held[claim]
        self._forget(held)
        error = self.machines[held.node].agent.unprepare(held.claim)
        assert error == "", error
        if is_seen:
            self.settled()

    def end_pod(self, claim: str, pod: tuple[str, str]) -> None:
        """One of the pods that share a claim ends; the control plane takes it out of the reservation."""
        held = self.held[claim]
        self.rest.delete("pods", pod[1], pod[0], gracePeriodSeconds=0)
        left = tuple(each for each in held.pods if each != pod)
        self.held[claim] = held._replace(pods=left)

        def reserved() -> int:
            tree = self.rest.read("resourceclaims", claim, pod[0])
            return len(tree["status"].get("reservedFor", []))

        wait_until(lambda: reserved() == len(left), f"{claim} without {pod}")
        self.settled()

    def load(self, node: str, gpu: int, percent: int, **pods: int) -> None:
        """How busy a GPU is, and the processes of which pods make it so."""
        hardware = self.machines[node].hardware
        hardware.set_utilisation(gpu, gpu_percent=percent)
        processes = [
            Process(pid=self._process(node, name), memory_bytes=1 << 30, sm_utilisation=share)
            for name, share in pods.items()
        ]
        hardware.set_processes(gpu, processes)

    def load_slices(self, node: str, gpu: int, shares: Mapping[int, int]) -> None:
        """How busy the MIG devices of a GPU are, by the first memory slice of each; others have no process."""
        hardware = self.machines[node].hardware
        processes = [
            Process(
                pid=1000 + instance.id,
                memory_bytes=1 << 30,
                sm_utilisation=shares[instance.start],
                gi=instance.id,
                ci=instance.compute_instances[0].id,
            )
            for instance in hardware.snapshot().gpus[gpu].gpu_instances
            if instance.start in shares
        ]
        hardware.set_processes(gpu, processes)

    def measured(
        self, expected: Mapping[str, float], *, nodes: Sequence[str], minutes: int = 5
    ) -> None:
        """So many minutes, scraped each; `expected` has busy shares by pod, once the agents see them."""
        assert self.scrapes is not None
        for pod, share in expected.items():
            wait_until(
                lambda pod=pod, share=share: self._shows(pod, share),
                f"{share} of {pod}",
                so_far=lambda: "\n".join(map(self._text, nodes)),
            )
        for _ in range(minutes):
            moment = self.clock.minute()
            self.scrapes.announce(moment)
            wait_until(
                lambda moment=moment: self._nodes_measured_at(moment) == set(nodes),
                f"scrapes of {nodes}",
                so_far=(self.folder / "prometheus.log").read_text,
            )
        self.scrapes.announce(None)

    # Time

    def at(self, hours: float) -> None:
        """It is so many hours since the week began, and the recorder knows."""
        self.clock.set(hours)
        self.watched()

    def watched(self) -> None:
        """Returns when everything until now is stored."""
        wait_until(
            lambda: self._stored_until() == self.clock.now,
            f"the recorder to reach {self.clock.now}",
            so_far=lambda: (self.folder / "recorder.log").read_text()[-4000:],
        )

    def fetched(self, moment: int) -> None:
        """Returns when the recorder has the measurements until then; minutes pass, as it may have to ask again."""

        def is_there() -> bool:
            self.clock.minute()
            return self._measured_until() == moment

        wait_until(is_there, "the last measurements", pause=0.5)

    def text(self, hours: float) -> str:
        """A time of the week as the command line has it."""
        moment = self.clock.start + round(hours * week_clock.HOUR)
        return timestamps.to_text(datetime.datetime.fromtimestamp(moment / 1000, datetime.UTC))

    def settled(self) -> None:
        """Returns when the store has open what is there: the GPUs of all nodes, and the pods that hold them."""
        pods = {pod for held in self.held.values() for pod in held.pods}
        there = {tree["metadata"]["name"] for tree in self.rest.list("nodes")}

        def is_so() -> bool:
            opened = self.opened()
            holders = {(each.owner.namespace, each.owner.pod) for each in opened.allocations}
            return holders == pods and {asset.node for asset in opened.assets} == there

        wait_until(
            is_so,
            f"{sorted(pods)} on {sorted(there)} in the store",
            so_far=lambda: str(self.opened()),
        )

    def opened(self) -> Records:
        """What the store has open."""
        with stores.open_store(self.store) as store:
            return store.open_records()

    def records(self) -> Records:
        """All of the week."""
        with stores.open_store(self.store) as store:
            return store.records(0, 1 << 50)

    def gaps(self) -> list[tuple[float, float]]:
        """Hours in which the API was not watched."""
        hour, start = week_clock.HOUR, self.clock.start
        return [
            ((gap.start - start) / hour, ((gap.end or 0) - start) / hour)
            for gap in self.records().gaps
            if gap.source is GapSource.API
        ]

    # Processes

    def start_recorder(self) -> None:
        """The recorder, again if it was killed."""
        module = "tests.e2e.cost_week.week_recorder"
        url = f"http://127.0.0.1:{self._prometheus_port}"
        own = [str(self.plane.kubeconfig), self.store, url, str(self.clock.file)]
        self._start("recorder", [sys.executable, "-m", module, *own])

    def start_prometheus(self) -> None:
        """Prometheus, again if it was killed; returns when it answers."""
        if self.scrapes is None:
            ports = {name: machine.port for name, machine in self.machines.items()}
            self.scrapes = dated_scrapes.DatedScrapes(ports)
        file = self.folder / "prometheus.yaml"
        file.write_bytes(msgspec.json.encode(self._prometheus_configuration()))
        command = [
            prometheus.binary("prometheus"),
            f"--config.file={file}",
            f"--storage.tsdb.path={self.folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{self._prometheus_port}",
            "--log.level=warn",
        ]
        self._start("prometheus", command)
        url = f"http://127.0.0.1:{self._prometheus_port}/-/ready"
        wait_until(
            lambda: _answers(url),
            "Prometheus",
            so_far=(self.folder / "prometheus.log").read_text,
        )

    def kill_api_server(self) -> None:
        """The API server and its etcd, as a power cut would; returns when the recorder has noticed."""
        self.plane.kill(kube_binaries.APISERVER)
        self.plane.kill_etcd()
        log = self.folder / "recorder.log"
        wait_until(
            lambda: "watch.interrupted" in log.read_text().rpartition("history.recording")[2],
            "the recorder to notice",
        )

    def start_api_server(self) -> None:
        """Again, with what etcd had stored; returns when the time without it is a gap."""
        before = len(self.gaps())
        self.plane.start_etcd()
        self.plane.start(kube_binaries.APISERVER)
        wait_until(
            lambda: len(self.gaps()) > before,
            "the gap",
            so_far=lambda: (self.folder / "recorder.log").read_text()[-4000:],
        )

    def kill(self, name: str) -> None:
        """A process, as a power cut would."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def close(self) -> None:
        """Ends everything but the control plane."""
        for name in list(self._processes):
            self.kill(name)
        for machine in self.machines.values():
            machine.agent.stop()
        if self.scrapes is not None:
            self.scrapes.close()
        self.rest.close()

    def _start(self, name: str, command: Sequence[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*live.TETHER, *command], stdout=log, stderr=log, cwd=live.ROOT
            )
        self._processes[name] = process

    def _prometheus_configuration(self) -> Tree:
        assert self.scrapes is not None
        targets = [
            {
                "targets": [self.scrapes.address],
                "labels": {"__metrics_path__": f"/{name}/metrics", "instance": name},
            }
            for name in self.machines
        ]
        job = {"job_name": "gpus", "honor_labels": True, "static_configs": targets}
        return {
            "global": {"scrape_interval": SCRAPE_INTERVAL, "scrape_timeout": SCRAPE_INTERVAL},
            "scrape_configs": [job],
            "storage": {"tsdb": {"out_of_order_time_window": OUT_OF_ORDER}},
        }

    # Pods

    def _create_pod(self, namespace: str, name: str, node: str, claim: str) -> str:
        container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
        spec = {
            "nodeName": node,
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
        }
        tree = self.rest.create("pods", {"metadata": {"name": name}, "spec": spec}, namespace)
        uid: str = tree["metadata"]["uid"]
        return uid

    def _forget(self, held: Held) -> None:
        """Deletes the objects of a claim and its pods."""
        for namespace, name in held.pods:
            self.rest.delete("pods", name, namespace, gracePeriodSeconds=0)
        metadata = held.claim["metadata"]
        self.rest.delete("resourceclaims", metadata["name"], metadata["namespace"])
        del self.held[metadata["name"]]

    def _process(self, node: str, pod: str) -> int:
        """A process in the cgroup of a pod, as the agent finds it."""
        (namespace,) = [
            namespace for held in self.held.values() for namespace, name in held.pods if name == pod
        ]
        uid = self.rest.read("pods", pod, namespace)["metadata"]["uid"]
        pid = self._pids.setdefault(uid, 2000 + len(self._pids))
        folder = self.machines[node].hardware.proc_root / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        scope = f"kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-abc.scope"
        (folder / "cgroup").write_text(f"0::/kubepods.slice/{scope}\n")
        return pid

    def _text(self, node: str) -> str:
        assert self.scrapes is not None
        try:
            return self.scrapes.text_of(node)
        except OSError:
            return ""

    def _shows(self, pod: str, share: float) -> bool:
        """Whether an agent shows this use of a pod, in whichever field the reader of use prefers."""
        for node in self.machines:
            lines = [line for line in self._text(node).splitlines() if f'pod="{pod}"' in line]
            for name, factor in (("DCGM_FI_PROF_SM_ACTIVE", 1), ("DCGM_FI_DEV_GPU_UTIL", 100)):
                values = [float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)]
                if values:
                    return values == [share * factor]
        return False

    def _nodes_measured_at(self, moment: int) -> set[str]:
        """The nodes of which Prometheus has samples of exactly this time."""
        query = {"query": "DCGM_FI_DEV_FB_USED[1s]", "time": str(moment // 1000)}
        url = f"http://127.0.0.1:{self._prometheus_port}/api/v1/query"
        with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(query)}", timeout=30) as reply:
            answer = msgspec.json.decode(reply.read())
        return {series["metric"]["Hostname"] for series in answer["data"]["result"]}

    def _measured_until(self) -> int | None:
        with stores.open_store(self.store) as store:
            return store.summary().usage_until

    def _stored_until(self) -> int | None:
        try:
            with stores.open_store(self.store) as store:
                return store.watched_until()
        except errors.NotFound:
            return None


@contextlib.contextmanager
def running(plane: control_plane.ControlPlane, folder: Path, start: int) -> Iterator[WeekLab]:
    """The parts of a week; nothing outlives the block."""
    lab = WeekLab(plane, folder, start)
    try:
        yield lab
    finally:
        lab.close()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
