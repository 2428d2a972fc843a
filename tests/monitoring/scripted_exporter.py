"""A small fleet as Prometheus sees it: the metrics of scheduler, node agents and exporter, under their real names.

Two nodes with two GPUs each, one of them in slices, three queues, two gangs. Counters grow with every scrape. A test
may give a GPU an XID. The same server is the webhook of an Alertmanager, and keeps what it was sent.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.monitoring.stories import selector

MODEL = "NVIDIA H100 80GB HBM3"
DRIVER = {"driver": "gpu.nvidia.com"}


class Exporter:
    """Serves /metrics and takes POSTs of Alertmanager; loopback only."""

    def __init__(self) -> None:
        self.scrapes = 0
        self.xid = 0  # of gpu-0 of node n1
        self.notices: list[tuple[str, dict[str, Any]]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def __enter__(self) -> Exporter:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def text(self) -> str:
        """The metrics of this scrape."""
        self.scrapes += 1
        figures = {
            **devices(self.scrapes, self.xid),
            **objects(),
            **queues(),
            **scheduler(self.scrapes),
            **agents(self.scrapes),
            **upgrades(),
        }
        return "".join(f"{series} {value}\n" for series, value in figures.items())

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(exporter.text().encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                exporter.notices.append((self.path, json.loads(body)))
                self._answer(b"")

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *values: object) -> None:
                """Nothing."""

        return Handler


def devices(scrapes: int, xid: int) -> dict[str, float]:
    """As the node agent and DCGM's exporter write them."""
    figures: dict[str, float] = {}
    codes = {("n1", "0"): xid, ("n2", "1"): 63, ("n1", "1"): 63}  # 63: nothing to do
    for node in ("n1", "n2"):
        for gpu in ("0", "1"):
            labels = {
                "gpu": gpu,
                "UUID": f"GPU-{node}-{gpu}",
                "device": f"nvidia{gpu}",
                "modelName": MODEL,
                "Hostname": node,
                "DCGM_FI_DRIVER_VERSION": "580.65.06",
            }
            holder = {"namespace": "train", "pod": f"llama-{node}"} if gpu == "0" else {}
            idle_holder = (
                {"namespace": "lab", "pod": "notebook"} if (node, gpu) == ("n2", "1") else {}
            )
            whole = {**labels, **holder, **idle_holder}
            slices = [whole]
            if (node, gpu) == ("n1", "1"):
                slices = [
                    {**labels, "GPU_I_PROFILE": "1g.10gb", "GPU_I_ID": number, **of_pod}
                    for number, of_pod in (("1", {"namespace": "lab", "pod": "eval"}), ("2", {}))
                ]
            busy = 0.0 if idle_holder else 0.75
            for part in slices:
                figures |= {
                    selector("DCGM_FI_PROF_GR_ENGINE_ACTIVE", **part): busy,
                    selector("DCGM_FI_PROF_SM_ACTIVE", **part): busy / 2,
                    selector("DCGM_FI_DEV_FB_USED", **part): 30_000,
                    selector("DCGM_FI_DEV_FB_FREE", **part): 50_000,
                }
            if len(slices) == 1:
                figures[selector("DCGM_FI_DEV_GPU_UTIL", **whole)] = busy * 100
            figures |= {
                selector("DCGM_FI_DEV_POWER_USAGE", **whole): 400,
                selector("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", **whole): 400_000 * scrapes,
                selector("DCGM_FI_DEV_GPU_TEMP", **whole): 60,
                selector("DCGM_FI_DEV_SM_CLOCK", **whole): 1_980,
                selector("DCGM_FI_DEV_MEM_CLOCK", **whole): 2_619,
                selector("DCGM_FI_DEV_XID_ERRORS", **whole): codes.get((node, gpu), 0),
            }
    # An application's fault, as DCGM counts them.
    fault = {"gpu": "0", "UUID": "GPU-n2-0", "modelName": MODEL, "Hostname": "n2"}
    of_pod = {"namespace": "train", "pod": "llama-n2", "xid": "31"}
    figures[selector("DCGM_EXP_XID_ERRORS_COUNT", **fault, **of_pod)] = 1
    return figures


def objects() -> dict[str, float]:
    """Claims, slices and devices, as `dovetail exporter` writes them."""
    figures: dict[str, float] = {}
    for node in ("n1", "n2"):
        slice_labels = {
            "resourceslice": f"{node}-a",
            "pool_name": node,
            "node_name": node,
            **DRIVER,
        }
        figures[selector("kube_resourceslice_info", **slice_labels, all_nodes="false")] = 1
        figures[selector("kube_resourceslice_devices_total", **slice_labels)] = 27
        for gpu in ("0", "1"):
            device = {**DRIVER, "pool": node, "device": f"gpu-{gpu}"}
            uuid = f"GPU-{node}-{gpu}"
            info = selector("dovetail_device_info", **device, node=node, uuid=uuid, product=MODEL)
            figures[info] = 1

    held = {
        "llama-n1": ("n1", "gpu-0"),
        "eval": ("n1", "gpu-1-mig-1g10gb-19-0"),
        "llama-n2": ("n2", "gpu-0"),
    }
    for claim, (pool, device_name) in held.items():
        allocation = {"namespace": "train", "resourceclaim": claim, "request": "gpu", **DRIVER}
        name = "kube_resourceclaim_allocation_device_info"
        figures[selector(name, **allocation, pool=pool, device=device_name)] = 1
    figures[selector("dovetail_claim_unused", namespace="train", resourceclaim="forgotten")] = 1
    taint = {**DRIVER, "pool": "n1", "device": "gpu-1", "key": "gpu.nvidia.com/xid"}
    figures[selector("dovetail_device_unhealthy", **taint, effect="NoSchedule")] = 1
    for kind in ("Pod", "ResourceClaim", "ResourceSlice", "Queue"):
        figures[selector("dovetail_exporter_synced", kind=kind)] = 1
    return figures


def queues() -> dict[str, float]:
    """Three queues, one above the other two; one gang that waits and one that runs in part."""
    figures: dict[str, float] = {}
    for queue, parent, charged in (("all", "", 3), ("train", "all", 2), ("lab", "all", 1)):
        figures[selector("dovetail_queue_info", queue=queue, parent=parent)] = 1
        figures[selector("dovetail_queue_ready", queue=queue)] = 1
        figures[selector("dovetail_queue_pending_pods", queue=queue)] = 4
        figures[selector("dovetail_queue_running_pods", queue=queue)] = charged
        for name, value in (
            ("charged", charged),
            ("charged_non_preemptible", 1),
            ("requested", charged + 4),
            ("fair_share", 2),
            ("quota", 2),
        ):
            figures[selector(f"dovetail_queue_{name}", queue=queue, resource="gpu")] = value
    for gang, running, pending in (("waits", 0, 8), ("in-part", 3, 5)):
        labels = {"namespace": "train", "gang": gang}
        figures[selector("dovetail_gang_pods", **labels, state="running")] = running
        figures[selector("dovetail_gang_pods", **labels, state="pending")] = pending
        figures[selector("dovetail_gang_min_pods", **labels)] = 8
        figures[selector("dovetail_gang_created_timestamp_seconds", **labels)] = 1_700_000_000
    return figures


def scheduler(scrapes: int) -> dict[str, float]:
    """The scheduler's own metrics, with histograms as far as queries need them."""
    figures: dict[str, float] = {
        "dovetail_leader": 1,
        selector(
            "scheduler_schedule_attempts_total", result="scheduled", profile="dovetail"
        ): scrapes,
        selector("dovetail_writes_total", what="binding", result="ok"): 2 * scrapes,
        selector("dovetail_evictions_total", rule="reclaim", result="evicted"): scrapes,
    }
    for queue in ("active", "backoff", "unschedulable", "gated"):
        figures[selector("scheduler_pending_pods", queue=queue)] = 2
    for bound, share in (("0.1", 3), ("1", 4), ("+Inf", 4)):
        name = "scheduler_pod_scheduling_sli_duration_seconds_bucket"
        figures[selector(name, attempts="1", le=bound)] = share * scrapes
    return figures


def agents(scrapes: int) -> dict[str, float]:
    """The node agent's own metrics."""
    figures: dict[str, float] = {
        selector("dovetail_node_claims_total", operation="prepare", result="ok"): scrapes,
        selector("dovetail_node_device_readings_total", result="ok"): scrapes,
        selector("dovetail_node_gpus", state="read"): 2,
        selector("dovetail_node_gpus", state="unread"): 0,
    }
    for bound in ("0.1", "+Inf"):
        figures[selector("dovetail_node_claim_seconds_bucket", operation="prepare", le=bound)] = (
            scrapes
        )
    return figures


def upgrades() -> dict[str, float]:
    """`dovetail lifecycle` with an upgrade of which one node drains."""
    node = {"upgrade": "roll", "node": "n1", "phase": "Draining"}
    return {
        selector("dovetail_lifecycle_nodes", upgrade="roll", phase="Draining"): 1,
        selector("dovetail_lifecycle_nodes", upgrade="roll", phase="Done"): 1,
        selector("dovetail_lifecycle_node_phase_seconds", **node): 90,
        selector("dovetail_lifecycle_node_phase_limit_seconds", **node): 3600,
    }
