"""MIG figures per board, in the order of the geometry's shapes.

Memory is the MiB behind the GiB that nvidia-smi prints with two digits (always a multiple of 64 MiB). Figures
move between driver branches: they serve simulation and planning, a live reading replaces them. The guide's
engine column for B200 disagrees with captures (one decoder on every profile), so it is used nowhere.
"""

from dovetail.gpus import board_facts, mig_geometry
from dovetail.gpus.mig_geometry import column

_GO_NVML = "go-nvml A100 tables"
_GUIDE = "NVIDIA MIG user guide, supported profiles"
_MIG_80 = ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
_A100_CAPTURE = "nvidia-smi mig -lgip captures of A100 80GB"
_H100_CAPTURE = "nvidia-smi mig -lgip captures of H100 SXM, drivers 560 to 570"
_H100_PCIE_CAPTURE = "nvidia-smi mig -lgip capture of H100 PCIe, driver 570.169"
_NVL_CAPTURE = "capture in NVIDIA/gpu-operator PR 900 and NVIDIA/mig-parted PR 101"
_NVL_INFERRED = "taken over from H100 SXM, the same chip; the capture shows the outer rows"
_H200_CAPTURE = "capture in NVIDIA/mig-parted issue 120"
_GH200_CAPTURE = "nvidia-smi mig -lgip capture of a 96 GB Hopper (GH200 class)"
_GH200_144_CAPTURE = "capture in NVIDIA/mig-parted PR 139"
_B200_CAPTURE = "captures in NVIDIA/gpu-operator PR 1242 and PR 1351"
_B200_LIVE = "live devices in NVIDIA/gpu-operator issue 2155"
_GB200_CAPTURE = "capture in NVIDIA/mig-parted issue 227"
_OPERATOR_NAMES = "MIG configuration of NVIDIA/gpu-operator"
_B300_THREAD = "kubernetes-sigs/dra-driver-nvidia-gpu issue 1454"
_A30_CAPTURE = "nvidia-smi mig -lgip capture of A30"
_RTX_CAPTURE = "capture in cubecos issue 312"

_NO_ENCODERS = (0, 0, 0, 0, 0, 0, 0)
_ONE_OFA = (0, 1, 0, 0, 0, 0, 1)
_UNKNOWN = (None, None, None, None, None, None, None)
_HOPPER_COPY = (1, 1, 1, 2, 3, 4, 8)
_HOPPER_DECODE = (1, 1, 1, 2, 3, 4, 7)


def _seven(cut: mig_geometry.Cut, minimum_driver: str | None) -> board_facts.Mig:
    return mig_geometry.mig(
        mig_geometry.SEVEN_SLICE, cut, slices=(7, 8), minimum_driver=minimum_driver
    )


def a100_40() -> board_facts.Mig:
    """A100 with 40 GB, SXM or PCIe. A newer driver shows 9984 and 40320 MiB for 2g and 7g."""
    cut = mig_geometry.Cut(
        names=("1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
        names_source=_GUIDE,
        shapes_source=_GUIDE,
        placements_source=mig_geometry.GUIDE_PLACEMENTS,
        memory_mib=column(_GO_NVML, 4864, 4864, 9856, 9856, 19968, 19968, 40192),
        multiprocessors=column(_GO_NVML, 14, 14, 14, 28, 42, 56, 98),
        copy_engines=column(_GO_NVML, 1, 1, 1, 2, 3, 4, 7),
        decoders=column(_GO_NVML, 0, 1, 1, 1, 2, 2, 5),
        encoders=column(_GO_NVML, *_NO_ENCODERS),
        jpeg_engines=column(_GO_NVML, *_ONE_OFA),
        ofa_engines=column(_GO_NVML, *_ONE_OFA),
    )
    return _seven(cut, "450.80.02")


def a100_80() -> board_facts.Mig:
    """A100 with 80 GB. Decoders are the captured ones: go-nvml gives each 1g one, more than the board has."""
    cut = mig_geometry.Cut(
        names=_MIG_80,
        names_source=_GUIDE,
        shapes_source=_GUIDE,
        placements_source=mig_geometry.GUIDE_PLACEMENTS,
        memory_mib=column(_GO_NVML, 9856, 9856, 19968, 19968, 40192, 40192, 80384),
        multiprocessors=column(_A100_CAPTURE, 14, 14, 14, 28, 42, 56, 98),
        copy_engines=column(_A100_CAPTURE, 1, 1, 1, 2, 3, 4, 7),
        decoders=column(_A100_CAPTURE, 0, 1, 1, 1, 2, 2, 5),
        encoders=column(_A100_CAPTURE, *_NO_ENCODERS),
        jpeg_engines=column(_A100_CAPTURE, *_ONE_OFA),
        ofa_engines=column(_A100_CAPTURE, *_ONE_OFA),
    )
    return _seven(cut, "450.80.02")


def h100_80_sxm() -> board_facts.Mig:
    """H100 SXM with 80 GB."""
    return _h100_80(_H100_CAPTURE, mig_geometry.CAPTURED_PLACEMENTS, (16, 16, 26, 32, 60, 64, 132))


def h100_80_pcie() -> board_facts.Mig:
    """H100 PCIe with 80 GB: fewer multiprocessors, all else as SXM."""
    return _h100_80(_H100_PCIE_CAPTURE, mig_geometry.TRANSCRIBED, (14, 14, 14, 30, 46, 62, 114))


def _h100_80(source: str, placements: str, multiprocessors: tuple[int, ...]) -> board_facts.Mig:
    cut = mig_geometry.Cut(
        names=_MIG_80,
        names_source=source,
        shapes_source=source,
        placements_source=placements,
        memory_mib=column(source, 9984, 9984, 20096, 20096, 40448, 40448, 81152),
        multiprocessors=column(source, *multiprocessors),
        copy_engines=column(source, *_HOPPER_COPY),
        decoders=column(source, *_HOPPER_DECODE),
        encoders=column(source, *_NO_ENCODERS),
        jpeg_engines=column(source, *_HOPPER_DECODE),
        ofa_engines=column(source, *_ONE_OFA),
    )
    return _seven(cut, "525.85.12")


def h100_nvl() -> board_facts.Mig:
    """H100 NVL with 94 GB."""
    middle = dict.fromkeys(range(2, 6), _NVL_INFERRED)
    cut = mig_geometry.Cut(
        names=("1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"),
        names_source=_NVL_CAPTURE,
        shapes_source=_NVL_CAPTURE,
        placements_source=mig_geometry.CAPTURED_PLACEMENTS,
        memory_mib=column(_NVL_CAPTURE, 11008, 11008, 22144, 22144, 47488, 47488, 95360),
        multiprocessors=column(_NVL_CAPTURE, 16, 16, 26, 32, 60, 64, 132, other=middle),
        copy_engines=column(_NVL_CAPTURE, *_HOPPER_COPY, other=middle),
        decoders=column(_NVL_CAPTURE, *_HOPPER_DECODE, other=middle),
        encoders=column(_NVL_CAPTURE, *_NO_ENCODERS, other=middle),
        jpeg_engines=column(_NVL_CAPTURE, *_HOPPER_DECODE, other=middle),
        ofa_engines=column(_NVL_CAPTURE, *_ONE_OFA, other=middle),
    )
    return _seven(cut, "525.85.12")


def h200() -> board_facts.Mig:
    """H200 with 141 GB, SXM or NVL."""
    cut = mig_geometry.Cut(
        names=("1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
        names_source=_H200_CAPTURE,
        shapes_source=_H200_CAPTURE,
        placements_source=mig_geometry.TRANSCRIBED,
        memory_mib=column(_H200_CAPTURE, 16384, 16384, 33024, 33024, 71168, 71168, 143104),
        multiprocessors=column(_H200_CAPTURE, 16, 16, 26, 32, 60, 64, 132),
        copy_engines=column(_H200_CAPTURE, *_HOPPER_COPY),
        decoders=column(_H200_CAPTURE, *_HOPPER_DECODE),
        encoders=column(_H200_CAPTURE, *_NO_ENCODERS),
        jpeg_engines=column(_H200_CAPTURE, *_HOPPER_DECODE),
        ofa_engines=column(_H200_CAPTURE, *_ONE_OFA),
    )
    return _seven(cut, "550.90.07")


def gh200_96() -> board_facts.Mig:
    """GH200 with 96 GB of HBM3. The MIG guide names no minimum driver for it."""
    cut = mig_geometry.Cut(
        names=("1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"),
        names_source=_GH200_CAPTURE,
        shapes_source=_GH200_CAPTURE,
        placements_source=mig_geometry.TRANSCRIBED,
        memory_mib=column(_GH200_CAPTURE, 11264, 11264, 23552, 23552, 47616, 47616, 95232),
        multiprocessors=column(_GH200_CAPTURE, 16, 16, 26, 32, 60, 64, 132),
        copy_engines=column(_GH200_CAPTURE, *_HOPPER_COPY),
        decoders=column(_GH200_CAPTURE, *_HOPPER_DECODE),
        encoders=column(_GH200_CAPTURE, *_NO_ENCODERS),
        jpeg_engines=column(_GH200_CAPTURE, *_HOPPER_DECODE),
        ofa_engines=column(_GH200_CAPTURE, *_ONE_OFA),
    )
    return _seven(cut, None)


def gh200_144() -> board_facts.Mig:
    """GH200 with 144 GB of HBM3e: the capture ends after 2g."""
    cut = mig_geometry.Cut(
        names=("1g.18gb", "1g.18gb+me", "1g.36gb", "2g.36gb", "3g.72gb", "4g.72gb", "7g.144gb"),
        names_source=_GH200_144_CAPTURE,
        shapes_source=mig_geometry.TRANSCRIBED,
        placements_source=mig_geometry.TRANSCRIBED,
        memory_mib=column(_GH200_144_CAPTURE, 17920, 17920, 36096, 36096, None, None, None),
        multiprocessors=column(_GH200_144_CAPTURE, 16, 16, 26, 32, None, None, None),
        copy_engines=column(_GH200_144_CAPTURE, 1, 1, 1, 2, None, None, None),
        decoders=column(_GH200_144_CAPTURE, 1, 1, 1, 2, None, None, None),
        encoders=column(_GH200_144_CAPTURE, 0, 0, 0, 0, None, None, None),
        jpeg_engines=column(_GH200_144_CAPTURE, 1, 1, 1, 2, None, None, None),
        ofa_engines=column(_GH200_144_CAPTURE, 0, 1, 0, None, None, None, None),
    )
    return _seven(cut, None)


def b200() -> board_facts.Mig:
    """B200 with 180 GB: 3g and above were not captured. An older listing shows 22528 MiB for 1g."""
    cut = mig_geometry.Cut(
        names=("1g.23gb", "1g.23gb+me", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
        names_source=_OPERATOR_NAMES,
        shapes_source="GI ids 19, 20, 15, 14: "
        + _B200_CAPTURE
        + "; the rest "
        + mig_geometry.TRANSCRIBED,
        placements_source=mig_geometry.TRANSCRIBED,
        memory_mib=column(_B200_LIVE, 20992, 20992, 45312, 45312, None, None, None),
        multiprocessors=column(_B200_CAPTURE, 18, 18, 30, 36, None, None, None),
        copy_engines=column(_B200_CAPTURE, 2, 2, 2, 4, None, None, None),
        decoders=column(_B200_CAPTURE, 1, 1, 1, 2, None, None, None),
        encoders=column(_B200_CAPTURE, 0, 0, 0, 0, None, None, None),
        jpeg_engines=column(_B200_CAPTURE, 1, 1, 1, 2, None, None, None),
        ofa_engines=column(_B200_CAPTURE, *_ONE_OFA),
    )
    return _seven(cut, "570.133.20")


def gb200() -> board_facts.Mig:
    """GB200 with 186 GB: 3g and above were not captured."""
    cut = mig_geometry.Cut(
        names=("1g.23gb", "1g.23gb+me", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb"),
        names_source=_OPERATOR_NAMES,
        shapes_source="GI ids 19, 20, 15, 14: "
        + _GB200_CAPTURE
        + "; the rest "
        + mig_geometry.TRANSCRIBED,
        placements_source=mig_geometry.TRANSCRIBED,
        memory_mib=column(_GB200_CAPTURE, 22528, 22528, 46592, 46592, None, None, None),
        multiprocessors=column(_GB200_CAPTURE, 18, 18, 32, 38, None, None, None),
        copy_engines=column(_GB200_CAPTURE, 2, 2, 2, 4, None, None, None),
        decoders=column(_GB200_CAPTURE, 1, 1, 1, 2, None, None, None),
        encoders=column(_GB200_CAPTURE, 0, 0, 0, 0, None, None, None),
        jpeg_engines=column(_GB200_CAPTURE, 1, 1, 1, 2, None, None, None),
        ofa_engines=column(_GB200_CAPTURE, *_ONE_OFA),
    )
    return _seven(cut, "570.133.20")


def b300() -> board_facts.Mig:
    """B300: names, and the multiprocessors of the two instances someone measured."""
    cut = mig_geometry.Cut(
        names=("1g.34gb", "1g.34gb+me", "1g.67gb", "2g.67gb", "3g.135gb", "4g.135gb", "7g.269gb"),
        names_source=_OPERATOR_NAMES,
        shapes_source=mig_geometry.TRANSCRIBED,
        placements_source=mig_geometry.TRANSCRIBED,
        memory_mib=column(_OPERATOR_NAMES, *_UNKNOWN),
        multiprocessors=column(_B300_THREAD, 18, None, 30, None, None, None, None),
        copy_engines=column(_B300_THREAD, *_UNKNOWN),
        decoders=column(_B300_THREAD, *_UNKNOWN),
        encoders=column(_B300_THREAD, *_UNKNOWN),
        jpeg_engines=column(_B300_THREAD, *_UNKNOWN),
        ofa_engines=column(_B300_THREAD, *_UNKNOWN),
    )
    return _seven(cut, "580.82.07")


def a30() -> board_facts.Mig:
    """A30: four slices. The guide gives 1g no decoder, the capture one."""
    cut = mig_geometry.Cut(
        names=("1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb"),
        names_source=_A30_CAPTURE,
        shapes_source=_A30_CAPTURE,
        placements_source=mig_geometry.CAPTURED_PLACEMENTS,
        memory_mib=column(_A30_CAPTURE, 5952, 5952, 11968, 11968, 24000),
        multiprocessors=column(_A30_CAPTURE, 14, 14, 28, 28, 56),
        copy_engines=column(_A30_CAPTURE, 1, 1, 2, 2, 4),
        decoders=column(_A30_CAPTURE, 1, 1, 2, 2, 4),
        encoders=column(_A30_CAPTURE, 0, 0, 0, 0, 0),
        jpeg_engines=column(_A30_CAPTURE, 0, 1, 0, 1, 1),
        ofa_engines=column(_A30_CAPTURE, 0, 1, 0, 1, 1),
    )
    return mig_geometry.mig(mig_geometry.A30, cut, slices=(4, 4), minimum_driver="460.73.01")


def rtx_pro_6000() -> board_facts.Mig:
    """RTX PRO 6000 Blackwell Server Edition: four slices, mostly known by name and number only."""
    unknown = (None,) * 10
    cut = mig_geometry.Cut(
        names=(
            "1g.24gb", "1g.24gb+me", "1g.24gb+gfx", "1g.24gb+me.all", "1g.24gb-me",
            "2g.48gb", "2g.48gb+gfx", "2g.48gb+me.all", "2g.48gb-me", "4g.96gb", "4g.96gb+gfx",
        ),
        names_source=_GUIDE,
        shapes_source=_RTX_CAPTURE + " for the four ids; " + _GUIDE + " for the numbers",
        placements_source=_GUIDE,
        memory_mib=column(_RTX_CAPTURE, 23680, *unknown),
        multiprocessors=column(_RTX_CAPTURE, 46, *unknown),
        copy_engines=column(_RTX_CAPTURE, None, *unknown),
        decoders=column(_RTX_CAPTURE, 1, *unknown),
        encoders=column(_RTX_CAPTURE, 1, *unknown),
        jpeg_engines=column(_RTX_CAPTURE, 1, *unknown),
        ofa_engines=column(_RTX_CAPTURE, None, *unknown),
    )  # fmt: skip
    return mig_geometry.mig(
        mig_geometry.RTX_PRO_6000, cut, slices=(4, 4), minimum_driver="575.51.03"
    )
