"""What NVIDIA's programs that run once find on fake hardware: node labels, and the CDI specification of a whole node.

Given hardware, starts GPU Feature Discovery or nvidia-ctk, waits for its end and returns what it wrote.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.nvidia import programs

Tree = dict[str, Any]


def labels_by_gfd(
    hardware: Any,
    *,
    mig_strategy: str = "none",
    config: Tree | None = None,
) -> dict[str, str]:
    """The node labels of GPU Feature Discovery, without its timestamp."""
    programs.require_mounts()
    with tempfile.TemporaryDirectory(prefix="gfd-") as scratch:
        output = Path(scratch) / "labels"
        words: list[str | Path] = [
            programs.program("gpu-feature-discovery"),
            "--oneshot",
            "--no-timestamp",
            "--use-node-feature-api=false",
            f"--mig-strategy={mig_strategy}",
            f"--container-driver-root={hardware.driver_root}",
            f"--output-file={output}",
        ]
        if config is not None:
            path = Path(scratch) / "config.yaml"
            path.write_text(yaml.safe_dump({"version": "v1", **config}), encoding="utf-8")
            words.append(f"--config-file={path}")
        programs.finished(_wrapped(words, hardware))
        lines = output.read_text(encoding="utf-8").splitlines()
    pairs = [line.partition("=") for line in lines if line]
    return {name: value for name, _, value in pairs}


def name_server(hardware: Any, product: str) -> None:
    """Gives the machine a product name, as its firmware would state it."""
    folder = hardware.sysfs_root / "class" / "dmi" / "id"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "product_name").write_text(product + "\n", encoding="utf-8")


def cdi_by_ctk(hardware: Any, *, mode: str = "nvml") -> Tree:
    """The CDI specification that nvidia-ctk makes of the whole node."""
    programs.require_mounts()
    words: list[str | Path] = [
        programs.program("nvidia-ctk"),
        "cdi",
        "generate",
        f"--mode={mode}",
        "--format=yaml",
        f"--driver-root={hardware.driver_root}",
        f"--dev-root={hardware.driver_root}",
        f"--nvidia-cdi-hook-path={programs.HOOK}",
    ]
    tree: Tree = yaml.safe_load(programs.finished(_wrapped(words, hardware)))
    return tree


def _wrapped(words: list[str | Path], hardware: Any) -> list[str]:
    return programs.wrapped(
        words,
        mounts=programs.hardware_mounts(hardware),
        environment=programs.hardware_environment(hardware),
    )
