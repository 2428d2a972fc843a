"""The objects of NVIDIA's GPU Operator, with the fields that say which versions it is to install: nvidia.com.

ClusterPolicy v1, NVIDIADriver v1alpha1 and GPUCluster v1alpha1 as of 26.7; other fields stay in the document. Never
decides what is installed.
"""

import msgspec

from dovetail.kubetypes import meta


class WaitForCompletion(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Pods whose end the upgrade controller awaits."""

    pod_selector: str = ""
    timeout_seconds: int = 0  # 0: forever


class UpgradePolicy(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How the operator's upgrade controller goes from node to node. The defaults are those of the library."""

    auto_upgrade: bool = False
    max_parallel_upgrades: int = 1  # 0: no limit
    max_unavailable: int | str = "25%"  # of the nodes with a driver; a percentage is rounded up
    wait_for_completion: WaitForCompletion | None = None


class DriverPart(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The driver, as a ClusterPolicy has it."""

    enabled: bool | None = None
    use_nvidia_driver_crd: bool | None = msgspec.field(default=None, name="useNvidiaDriverCRD")
    use_precompiled: bool | None = None
    version: str = ""
    image: str = ""
    upgrade_policy: UpgradePolicy | None = None


class Part(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """Another part that the operator installs."""

    enabled: bool | None = None
    version: str = ""
    image: str = ""


class MigConfigMap(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The ConfigMap whose configurations the MIG manager knows."""

    name: str = ""  # empty: the operator's own


class MigManagerPart(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The program that partitions GPUs."""

    enabled: bool | None = None
    version: str = ""
    image: str = ""
    config: MigConfigMap | None = None


class Mig(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """How MIG devices are offered."""

    strategy: str = ""


class Cdi(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """Whether devices are injected by CDI."""

    enabled: bool | None = None


class ClusterPolicySpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What the operator installs on every GPU node."""

    driver: DriverPart = DriverPart()
    toolkit: Part = Part()
    device_plugin: Part = Part()
    mig_manager: MigManagerPart = MigManagerPart()
    mig: Mig = Mig()
    cdi: Cdi = Cdi()


class OperatorStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What the operator says about an object: ready, notReady, ignored, disabled."""

    state: str = ""


class ClusterPolicy(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The settings of the whole cluster."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: ClusterPolicySpec = ClusterPolicySpec()
    status: OperatorStatus = OperatorStatus()


class NVIDIADriverSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One driver for some nodes."""

    driver_type: str = ""
    use_precompiled: bool | None = None
    kernel_module_type: str = ""
    version: str = ""
    image: str = ""
    node_selector: dict[str, str] = {}
    is_default: bool | None = msgspec.field(default=None, name="default")
    upgrade_policy: UpgradePolicy | None = None


class NVIDIADriver(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A driver that the operator installs on the nodes that its selector matches."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: NVIDIADriverSpec = NVIDIADriverSpec()
    status: OperatorStatus = OperatorStatus()


class GPUClusterSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The parts of the stack that serves GPUs by claims alone."""

    dra_driver: Part = Part()


class GPUCluster(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The settings of a cluster that serves GPUs by claims alone."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: GPUClusterSpec = GPUClusterSpec()
    status: OperatorStatus = OperatorStatus()
