"""NVIDIA's DRA driver as an oracle: the unmodified program on fake hardware and a real API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dovetail.devcluster import control_plane
from tests.nvidia import dra_node, programs

DYNAMIC_MIG: Final = "DynamicMIG"
CONSUMABLE_SHARES: Final = "ConsumableShares"
HEALTH: Final = "NVMLDeviceHealthCheck"
TIME_SLICING: Final = "TimeSlicingSettings"


class DraOracle(dra_node.DraNode):
    """NVIDIA's driver for one node. `shares` is disabled, memory, unlimited or a number."""

    def __init__(
        self,
        hardware: Any,
        cluster: control_plane.ControlPlane,
        node: str,
        *,
        feature_gates: Mapping[str, bool] | None = None,
        shares: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        programs.require_mounts()
        gates = dict(feature_gates or {})
        if shares:
            gates[CONSUMABLE_SHARES] = True
        listed = ",".join(f"{name}={str(is_on).lower()}" for name, is_on in gates.items())

        def command(home: dra_node.Home) -> list[str]:
            words = [
                str(programs.program("gpu-kubelet-plugin")),
                f"--node-name={node}",
                f"--kubeconfig={cluster.kubeconfig}",
                "--image-name=none",
                f"--nvidia-driver-root={hardware.driver_root}",
                f"--container-driver-root={hardware.driver_root}",
                f"--nvidia-cdi-hook-path={programs.HOOK}",
                f"--cdi-root={home.cdi}",
                f"--kubelet-registrar-directory-path={home.registry}",
                f"--kubelet-plugins-directory-path={home.plugins}",
                f"--feature-gates={listed}",
                *([f"--consumable-shares={shares}"] if shares else []),
                "--v=6",
            ]
            return programs.wrapped(
                words,
                mounts=programs.hardware_mounts(hardware),
                environment={**programs.hardware_environment(hardware), **(environment or {})},
            )

        super().__init__(cluster, node, command)
