"""The catalogue of NVIDIA data-centre GPUs: what each board is, can do, and how it can be partitioned.

Every figure carries its source and an unknown one is absent. Facts for simulation and planning:
on a real node the driver's own answers win.
"""

from dovetail.gpus.board_facts import NO_NVLINK, Engines, Gpu, Known, Mig, Placement, Profile
from dovetail.gpus.catalogue import (
    all_gpus,
    by_name,
    by_pci_id,
    by_product,
    is_fully_known,
    placements,
    profiles,
)
from dovetail.gpus.mig_names import profile_name

__all__ = [
    "NO_NVLINK",
    "Engines",
    "Gpu",
    "Known",
    "Mig",
    "Placement",
    "Profile",
    "all_gpus",
    "by_name",
    "by_pci_id",
    "by_product",
    "is_fully_known",
    "placements",
    "profile_name",
    "profiles",
]
