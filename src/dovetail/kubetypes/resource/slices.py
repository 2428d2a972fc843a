"""ResourceSlice of resource.k8s.io/v1: the devices a driver publishes, with every field of Kubernetes 1.37.

Alpha fields included; wire names are Kubernetes'. Lists whose absence means something are `meta.NO_ITEMS`.
Never checks a value: that is validation's work.
"""

import msgspec

from dovetail.kubetypes import meta, node_selectors
from dovetail.kubetypes.resource import capacity as capacities
from dovetail.quantity import quantity

MAX_DEVICES = 128  # ResourceSliceMaxDevices, resource.k8s.io/v1
MAX_DEVICES_WITH_ADVANCED_FEATURES = 64  # with taints, counters or list attributes
MAX_COUNTER_SETS = 8
MAX_COUNTERS_PER_SET = 32
MAX_COUNTER_CONSUMPTIONS_PER_DEVICE = 2
MAX_COUNTERS_PER_CONSUMPTION = 32
MAX_COMPATIBILITY_GROUPS = 2
MAX_ATTRIBUTES_AND_CAPACITIES = 32  # per device
MAX_ATTRIBUTE_VALUES = 48  # per device, list items counted one by one
MAX_ATTRIBUTE_VALUE_BYTES = 64
MAX_TAINTS = 16
MAX_BINDING_CONDITIONS = 4
MAX_DOMAIN_LENGTH = 63
MAX_ID_LENGTH = 32
MAX_VALID_VALUES = 10  # CapacityRequestPolicyDiscreteMaxOptions


class DeviceAttribute(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One value of exactly one type. The list types are alpha."""

    int_value: meta.Int64 | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string_value: str | None = msgspec.field(default=None, name="string")
    version_value: str | None = msgspec.field(default=None, name="version")
    int_values: tuple[meta.Int64, ...] | None = msgspec.field(default=None, name="ints")
    bool_values: tuple[bool, ...] | None = msgspec.field(default=None, name="bools")
    string_values: tuple[str, ...] | None = msgspec.field(default=None, name="strings")
    version_values: tuple[str, ...] | None = msgspec.field(default=None, name="versions")


class Counter(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """An amount of something devices share or use up."""

    value: quantity.Quantity = quantity.ZERO


class CounterSet(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Named amounts that the devices of a pool draw on."""

    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What a device takes from one counter set while it is in use."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}
    compatibility_groups: tuple[str, ...] = ()


class NodeAllocatableMapping(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How much of a node resource a device stands for."""

    capacity_key: str | None = None
    capacity_multiplier: quantity.Quantity | None = None
    device_multiplier: quantity.Quantity | None = None


class NodeAllocatableOverhead(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Node resources the use of a device costs on top."""

    per_pod: quantity.Quantity | None = None
    per_container: quantity.Quantity | None = None


class NodeAllocatableResource(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One node resource a device maps to or costs."""

    mapping: NodeAllocatableMapping | None = None
    overhead: NodeAllocatableOverhead | None = None


class Device(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One device of a pool."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, capacities.DeviceCapacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: node_selectors.NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[node_selectors.DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: dict[str, NodeAllocatableResource] = {}


class ResourcePool(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The pool a slice is part of, and how many slices make it complete."""

    name: str = ""
    generation: meta.Int64 = 0
    resource_slice_count: meta.Int64 = 0


class ResourceSliceSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Devices or shared counters of one driver, and the nodes that reach them."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: node_selectors.NodeSelector | None = None
    all_nodes: bool | None = None
    devices: tuple[Device, ...] = meta.NO_ITEMS
    per_device_node_selection: bool | None = None
    shared_counters: tuple[CounterSet, ...] = meta.NO_ITEMS
    partition_type_attribute: str | None = None
    skip_node_operations: tuple[str, ...] = ()


class ResourceSlice(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What one driver offers, cluster-scoped."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()
