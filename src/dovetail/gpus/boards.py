"""The boards of the catalogue: identity, power, memory, links, number formats; each figure with its source.

NVLink bandwidth is both directions together. TDP is the power limit the driver shows, or the vendor's figure.
Number formats are those the source names for the tensor cores; one left out was not looked up, not denied.
"""

from dovetail.gpus import board_facts, mig_profiles
from dovetail.gpus.board_facts import Gpu, Known

MIB = 1024**2
GB = 10**9

_PCI = "PCI id table of NVIDIA/open-gpu-kernel-modules"
_SMI = "nvidia-smi captures (memory total, power limit)"
_GUIDE = "NVIDIA MIG user guide, supported GPUs"
_A100_SHEET = "NVIDIA A100 datasheet"
_A100_TABLE = "public A100 specification table (40 GB, PCIe and SXM)"
_H100_PAGE = "NVIDIA H100 specification table (SXM and NVL)"
_H100_BRIEF = "NVIDIA product brief PB-11133-001"
_H200_MLPERF = "MLPerf inference v4.1, NVIDIA system description of H200-SXM-141GB"
_H200_PAGES = "public H200 specification tables (SXM and NVL)"
_GH200_NEWS = "announcement of GH200 with HBM3e, comparing the 96 GB module"
_B200_HGX = "HGX B200 figures, divided by its 8 GPUs"
_BLACKWELL = "public B200 and GB200 specification tables"
_B300_TABLE = "public B300 specification table"
_GB200_MLPERF = "MLPerf inference v6.1, system description of GB200 NVL72"
_ADA_TABLE = "public L40 and L40S specification table"
_L4_TABLE = "public L4 specification table"
_T4_ROOFLINES = "peak figure used by public T4 benchmarks"
_CUTLASS = "CUTLASS documentation, tensor core generations"
_RTX_SHEET = "NVIDIA RTX PRO 6000 Blackwell Server Edition datasheet"

_AMPERE = ("FP64", "TF32", "BF16", "FP16", "INT8", "INT4")
_HOPPER = ("FP64", "TF32", "BF16", "FP16", "FP8", "INT8")
_BLACKWELL_FORMATS = ("FP64", "TF32", "BF16", "FP16", "FP8", "FP6", "FP4", "INT8")
_ADA = ("TF32", "BF16", "FP16", "FP8", "INT8", "INT4")


def all_boards() -> tuple[Gpu, ...]:
    """Every board, oldest architecture first."""
    ampere = (_a30(), _a100_sxm_40(), _a100_pcie_40(), _a100_sxm_80(), _a100_pcie_80())
    ada = (_l4(), _l40s())
    hopper = (
        _h100_sxm(),
        _h100_pcie(),
        _h100_nvl(),
        _h200_sxm(),
        _h200_nvl(),
        _gh200_96(),
        _gh200_144(),
    )
    blackwell = (_b200(), _gb200(), _b300(), _rtx_pro_6000())
    return (_t4(), *ampere, *ada, *hopper, *blackwell)


def _mib(mib: int) -> Known[int]:
    return Known(mib * MIB, _SMI)


def _gb_per_second(gigabytes: int, source: str) -> Known[int]:
    return Known(gigabytes * GB, source)


def _t4() -> Gpu:
    return Gpu(
        name="T4",
        product=Known("Tesla T4", _PCI),
        architecture=Known("Turing", _CUTLASS),
        compute_capability=Known("7.5", _CUTLASS),
        form_factor=Known("PCIe", "Lenovo ThinkSystem GPU rules"),
        tdp_watts=Known(70, _SMI),
        memory_bytes=_mib(15360),
        memory_bytes_per_second=_gb_per_second(320, _T4_ROOFLINES),
        number_formats=Known(("FP16", "INT8", "INT4"), _CUTLASS),
        pci_device_ids=Known(("1EB8",), _PCI),
    )


def _a30() -> Gpu:
    return Gpu(
        name="A30",
        product=Known("NVIDIA A30", _PCI),
        architecture=Known("Ampere", _GUIDE),
        compute_capability=Known("8.0", _GUIDE),
        form_factor=Known("PCIe", "Lenovo ThinkSystem GPU rules"),
        tdp_watts=Known(165, _SMI),
        memory_bytes=_mib(24576),
        memory_bytes_per_second=_gb_per_second(
            933, "nvbench device captures (3072 bit at 1215 MHz)"
        ),
        number_formats=Known(_AMPERE, _CUTLASS),
        pci_device_ids=Known(("20B7",), _PCI),
        mig=mig_profiles.a30(),
    )


def _a100_sxm_40() -> Gpu:
    return Gpu(
        name="A100-SXM4-40GB",
        product=Known("NVIDIA A100-SXM4-40GB", _PCI),
        architecture=Known("Ampere", _GUIDE),
        compute_capability=Known("8.0", _GUIDE),
        form_factor=Known("SXM", _GUIDE),
        tdp_watts=Known(400, _SMI),
        memory_bytes=_mib(40960),
        memory_bytes_per_second=_gb_per_second(1555, _A100_TABLE),
        nvlink_generation=Known(3, _A100_TABLE),
        nvlink_bytes_per_second=_gb_per_second(600, _A100_TABLE),
        number_formats=Known(_AMPERE, _A100_SHEET),
        pci_device_ids=Known(("20B0",), _PCI),
        mig=mig_profiles.a100_40(),
    )


def _a100_pcie_40() -> Gpu:
    return Gpu(
        name="A100-PCIE-40GB",
        product=Known("NVIDIA A100-PCIE-40GB", _PCI),
        architecture=Known("Ampere", _GUIDE),
        compute_capability=Known("8.0", _GUIDE),
        form_factor=Known("PCIe", _GUIDE),
        tdp_watts=Known(250, _SMI),
        memory_bytes=_mib(40960),
        memory_bytes_per_second=_gb_per_second(1555, _A100_TABLE),
        number_formats=Known(_AMPERE, _A100_SHEET),
        pci_device_ids=Known(("20F1", "20B1"), _PCI),
        mig=mig_profiles.a100_40(),
    )


def _a100_sxm_80() -> Gpu:
    return Gpu(
        name="A100-SXM4-80GB",
        product=Known("NVIDIA A100-SXM4-80GB", _PCI),
        architecture=Known("Ampere", _GUIDE),
        compute_capability=Known("8.0", _GUIDE),
        form_factor=Known("SXM", _GUIDE),
        tdp_watts=Known(400, _A100_SHEET),
        memory_bytes=_mib(81920),
        memory_bytes_per_second=_gb_per_second(2039, _A100_SHEET),
        nvlink_generation=Known(3, _A100_TABLE),
        nvlink_bytes_per_second=_gb_per_second(600, _A100_SHEET),
        number_formats=Known(_AMPERE, _A100_SHEET),
        pci_device_ids=Known(
            ("20B2",), _PCI
        ),  # 20F3 and 20F5 are A800 boards in NVIDIA's own table
        mig=mig_profiles.a100_80(),
    )


def _a100_pcie_80() -> Gpu:
    return Gpu(
        name="A100-PCIE-80GB",
        product=Known("NVIDIA A100 80GB PCIe", _PCI),
        other_products=Known(("NVIDIA A100-PCIE-80GB",), _PCI + ", 2022"),
        architecture=Known("Ampere", _GUIDE),
        compute_capability=Known("8.0", _GUIDE),
        form_factor=Known("PCIe", _GUIDE),
        tdp_watts=Known(300, _A100_SHEET),
        memory_bytes=_mib(81920),
        memory_bytes_per_second=_gb_per_second(1935, _A100_SHEET),
        nvlink_generation=Known(3, _A100_TABLE),
        nvlink_bytes_per_second=_gb_per_second(600, _A100_SHEET + ", bridge for two cards"),
        number_formats=Known(_AMPERE, _A100_SHEET),
        pci_device_ids=Known(("20B5",), _PCI),
        mig=mig_profiles.a100_80(),
    )


def _l4() -> Gpu:
    return Gpu(
        name="L4",
        product=Known("NVIDIA L4", _PCI),
        architecture=Known("Ada Lovelace", _L4_TABLE),
        compute_capability=Known("8.9", "architecture-wide: Ada Lovelace"),
        form_factor=Known("PCIe", _L4_TABLE),
        tdp_watts=Known(72, _SMI),
        memory_bytes=_mib(23034),
        memory_bytes_per_second=_gb_per_second(300, _L4_TABLE),
        number_formats=Known(("TF32", "FP16", "FP8", "INT8"), _L4_TABLE),
        pci_device_ids=Known(("27B8",), _PCI),
    )


def _l40s() -> Gpu:
    return Gpu(
        name="L40S",
        product=Known("NVIDIA L40S", _SMI),
        architecture=Known("Ada Lovelace", _ADA_TABLE),
        compute_capability=Known("8.9", "architecture-wide: Ada Lovelace"),
        form_factor=Known("PCIe", _ADA_TABLE),
        tdp_watts=Known(350, _SMI),
        memory_bytes=_mib(46068),
        memory_bytes_per_second=_gb_per_second(864, _ADA_TABLE),
        nvlink_generation=Known(board_facts.NO_NVLINK, _ADA_TABLE),
        number_formats=Known(_ADA, _ADA_TABLE),
        pci_device_ids=Known(("26B9",), "public table of NVIDIA data-centre PCI ids"),
    )


def _h100_sxm() -> Gpu:
    return Gpu(
        name="H100-SXM5-80GB",
        product=Known("NVIDIA H100 80GB HBM3", _PCI),
        architecture=Known("Hopper", _GUIDE),
        compute_capability=Known("9.0", _GUIDE),
        form_factor=Known("SXM", _GUIDE),
        tdp_watts=Known(700, _SMI),
        memory_bytes=_mib(81559),
        memory_bytes_per_second=_gb_per_second(3350, _H100_PAGE),
        nvlink_generation=Known(4, "NVIDIA blog on NVLink: 18 fourth-generation links"),
        nvlink_bytes_per_second=_gb_per_second(900, _H100_PAGE),
        number_formats=Known(_HOPPER, _H100_PAGE),
        pci_device_ids=Known(("2330",), _PCI),
        mig=mig_profiles.h100_80_sxm(),
    )


def _h100_pcie() -> Gpu:
    return Gpu(
        name="H100-PCIE-80GB",
        product=Known("NVIDIA H100 PCIe", _PCI),
        architecture=Known("Hopper", _GUIDE),
        compute_capability=Known("9.0", _GUIDE),
        form_factor=Known("PCIe", _H100_BRIEF),
        tdp_watts=Known(350, _H100_BRIEF),
        memory_bytes=_mib(81559),
        memory_bytes_per_second=_gb_per_second(2000, _H100_BRIEF + ": greater than"),
        number_formats=Known(_HOPPER, _H100_PAGE),
        pci_device_ids=Known(("2331",), _PCI),
        mig=mig_profiles.h100_80_pcie(),
    )


def _h100_nvl() -> Gpu:
    return Gpu(
        name="H100-NVL-94GB",
        product=Known("NVIDIA H100 NVL", _PCI),
        architecture=Known("Hopper", _GUIDE),
        compute_capability=Known("9.0", _GUIDE),
        form_factor=Known("PCIe", _H100_PAGE),
        tdp_watts=Known(400, _SMI),
        memory_bytes=_mib(95830),
        memory_bytes_per_second=_gb_per_second(3900, _H100_PAGE),
        nvlink_bytes_per_second=_gb_per_second(600, _H100_PAGE),
        number_formats=Known(_HOPPER, _H100_PAGE),
        pci_device_ids=Known(("2321",), _PCI),
        mig=mig_profiles.h100_nvl(),
    )


def _h200_sxm() -> Gpu:
    return Gpu(
        name="H200-SXM-141GB",
        product=Known("NVIDIA H200", _PCI),
        architecture=Known("Hopper", _GUIDE),
        compute_capability=Known("9.0", _GUIDE),
        form_factor=Known("SXM", _GUIDE),
        tdp_watts=Known(700, _H200_MLPERF),
        memory_bytes=_mib(143771),
        memory_bytes_per_second=_gb_per_second(4800, _H200_PAGES),
        nvlink_generation=Known(4, _H200_MLPERF),
        nvlink_bytes_per_second=_gb_per_second(900, _H200_MLPERF),
        number_formats=Known(("TF32", "BF16", "FP16", "FP8", "INT8"), _H200_PAGES),
        pci_device_ids=Known(("2335",), _PCI),
        mig=mig_profiles.h200(),
    )


def _h200_nvl() -> Gpu:
    return Gpu(
        name="H200-NVL-141GB",
        product=Known("NVIDIA H200 NVL", _PCI),
        architecture=Known("Hopper", _GUIDE),
        compute_capability=Known("9.0", _GUIDE),
        form_factor=Known("PCIe", _H200_PAGES),
        tdp_watts=Known(600, _H200_PAGES),
        memory_bytes_per_second=_gb_per_second(4800, _H200_PAGES),
        number_formats=Known(("TF32", "BF16", "FP16", "FP8", "INT8"), _H200_PAGES),
        pci_device_ids=Known(("233B",), _PCI),
        mig=mig_profiles.h200(),
    )


def _gh200_96() -> Gpu:
    return Gpu(
        name="GH200-96GB",
        product=Known("NVIDIA GH200 480GB", _PCI),
        other_products=Known(("NVIDIA GH200 120GB", "GH200 120GB"), _SMI),
        architecture=Known("Hopper", _GUIDE),
        compute_capability=Known("9.0", _GUIDE),
        form_factor=Known("superchip", _GUIDE),
        memory_bytes=_mib(
            97871
        ),  # power is programmed for CPU and GPU together, so no TDP of its own
        memory_bytes_per_second=_gb_per_second(4000, _GH200_NEWS),
        number_formats=Known(_HOPPER, _H100_PAGE),
        pci_device_ids=Known(("2342",), _PCI),
        mig=mig_profiles.gh200_96(),
    )


def _gh200_144() -> Gpu:
    return Gpu(
        name="GH200-144GB",
        product=Known("NVIDIA GH200 144G HBM3e", _PCI),
        architecture=Known("Hopper", _GUIDE),
        compute_capability=Known("9.0", "SM90 in public cluster inventories"),
        form_factor=Known("superchip", "NVLink-C2C in public cluster inventories"),
        number_formats=Known(_HOPPER, _H100_PAGE),
        pci_device_ids=Known(("2348",), _PCI),
        mig=mig_profiles.gh200_144(),
    )


def _b200() -> Gpu:
    return Gpu(
        name="B200",
        product=Known("NVIDIA B200", _PCI),
        architecture=Known("Blackwell", _GUIDE),
        compute_capability=Known("10.0", _GUIDE),
        form_factor=Known("SXM", _B200_HGX),
        tdp_watts=Known(1000, _SMI),
        memory_bytes=_mib(183359),
        memory_bytes_per_second=_gb_per_second(8000, _B200_HGX),
        nvlink_generation=Known(5, _BLACKWELL),
        nvlink_bytes_per_second=_gb_per_second(1800, _BLACKWELL),
        number_formats=Known(_BLACKWELL_FORMATS, _BLACKWELL),
        minimum_driver=Known("570.133.20", "NVIDIA/cloud-native-docs PR 184"),
        pci_device_ids=Known(("2901", "2909"), _PCI),
        mig=mig_profiles.b200(),
    )


def _gb200() -> Gpu:
    return Gpu(
        name="GB200",
        product=Known("NVIDIA GB200", _PCI),
        architecture=Known("Blackwell", _GUIDE),
        compute_capability=Known("10.0", _GUIDE),
        form_factor=Known("superchip", _GB200_MLPERF),
        tdp_watts=Known(1200, _SMI),
        memory_bytes=_mib(189471),
        memory_bytes_per_second=_gb_per_second(8000, _BLACKWELL),
        nvlink_generation=Known(5, _GB200_MLPERF),
        nvlink_bytes_per_second=_gb_per_second(1800, _BLACKWELL),
        number_formats=Known(_BLACKWELL_FORMATS, _BLACKWELL),
        pci_device_ids=Known(("2941",), _PCI),
        mig=mig_profiles.gb200(),
    )


def _b300() -> Gpu:
    return Gpu(
        name="B300",
        product=Known("NVIDIA B300 SXM6 AC", _PCI),
        architecture=Known("Blackwell", _B300_TABLE),
        compute_capability=Known("10.3", "device captures of B300 SXM6 AC"),
        form_factor=Known("SXM", _PCI),
        tdp_watts=Known(1100, _SMI),
        memory_bytes=_mib(275040),
        memory_bytes_per_second=_gb_per_second(8000, _B300_TABLE + ": at most"),
        nvlink_generation=Known(5, _B300_TABLE),
        nvlink_bytes_per_second=_gb_per_second(1800, _B300_TABLE),
        number_formats=Known(_BLACKWELL_FORMATS, _B300_TABLE),
        pci_device_ids=Known(("3182",), _PCI),
        mig=mig_profiles.b300(),
    )


def _rtx_pro_6000() -> Gpu:
    return Gpu(
        name="RTX-PRO-6000-SE",
        product=Known("NVIDIA RTX PRO 6000 Blackwell Server Edition", _PCI),
        architecture=Known("Blackwell", _GUIDE),
        compute_capability=Known("12.0", _GUIDE),
        form_factor=Known("PCIe", _RTX_SHEET),
        tdp_watts=Known(600, _RTX_SHEET),
        memory_bytes=_mib(97887),
        memory_bytes_per_second=_gb_per_second(1597, _RTX_SHEET),
        number_formats=Known(
            ("FP8", "FP6", "FP4"), "fifth-generation tensor cores, public summaries"
        ),
        pci_device_ids=Known(("2BB5",), _PCI),
        mig=mig_profiles.rtx_pro_6000(),
    )
