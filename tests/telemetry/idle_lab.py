"""A pod that holds a GPU in a queue that minds idle work, measured by a source that a test scripts."""

from __future__ import annotations

from typing import Any, Protocol

from dovetail.kubetypes.core import pods
from dovetail.kubetypes.custom import queues
from dovetail.live.report import idle_watch
from dovetail.model.idle import Device, IdleStage
from dovetail.telemetry import metrics
from tests.batch import stories
from tests.batch.test_history import Watch
from tests.schedule import build

POLICY = queues.IdlePolicy(threshold_percent=5, window_seconds=600, grace_seconds=300)
DEVICE = Device(build.DRIVER, "n0", "gpu-0")
LABELS = {
    "UUID": "GPU-a",
    "gpu": "0",
    "Hostname": "n0",
    "dra_driver_name": build.DRIVER,
    "dra_pool_name": "n0",
    "dra_device_name": "gpu-0",
    "job": "dcgm",
}


class Exporter(Protocol):
    """What a script says about the GPU, and whether it can be asked."""

    failure: tuple[int, str] | None  # status and body of every answer

    def add(self, name: str, value: float, **labels: str) -> None:
        """A value from now on."""
        ...


class Lab:
    """A pod with a GPU in a queue that minds idle work, and an exporter that is read every half minute."""

    def __init__(self, exporter: Exporter, watch: Watch, source: Any) -> None:
        self.exporter = exporter
        self.watch = watch
        queue = stories.queue("lab", gpu=2, idle=POLICY)
        self.world = stories.world(build.node("n0"), build.gpu_slice("n0", 1), queue)
        stories.runs(self.world, "notebook", "lab", ("n0", "gpu-0"), since=60)
        self.meter = metrics.Metrics(is_strict=True)
        self.events: list[str] = []
        self.idle = idle_watch.IdleWatch(
            self.world, source, clock=watch, record_event=self._record, meter_=self.meter
        )
        self.energy = 1000.0
        self.exports = True
        self.is_frozen = False

    def _record(self, pod: pods.Pod, *, reason: str, note: str, kind: str = "Normal") -> None:
        self.events.append(reason)

    async def minutes(self, count: float, *, percent: float = 0.0) -> None:
        """Time goes by, with the GPU this busy."""
        until = self.watch.seconds + count * 60
        while self.watch.seconds < until:
            if self.exports:
                self.scrape(percent)
            await self.idle.measure()
            await self.watch.sleep(30)

    def scrape(self, percent: float) -> None:
        if not self.is_frozen:
            self.energy += 9000
        self.exporter.add("DCGM_FI_DEV_GPU_UTIL", percent, **LABELS)
        self.exporter.add("DCGM_FI_DEV_POWER_USAGE", 300, **LABELS)
        self.exporter.add("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", self.energy, **LABELS)

    @property
    def stage(self) -> IdleStage | None:
        state = self.world.idle.get("uid-of-notebook")
        return None if state is None else state.stage
