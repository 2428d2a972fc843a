"""ResourceClaim and ResourceClaimTemplate of resource.k8s.io/v1: what is asked for and what was allocated.

Every field of Kubernetes 1.37, alpha included. Given wire data, holds it frozen. Never fills in defaults.
"""

import msgspec

from dovetail.kubetypes import meta, node_selectors
from dovetail.kubetypes.resource import device_classes
from dovetail.quantity import quantity

MAX_REQUESTS = 32  # DeviceRequestsMaxSize, resource.k8s.io/v1
MAX_CONSTRAINTS = 32  # DeviceConstraintsMaxSize
MAX_FIRST_AVAILABLE = 8  # FirstAvailableDeviceRequestMaxSize
MAX_DERIVED_ATTRIBUTES = 32  # DeviceDerivedAttributesMaxSize
MAX_RESULTS = 32  # AllocationResultsMaxSize
MAX_RESERVED_FOR = 256  # ResourceClaimReservedForMaxSize
MAX_DEVICE_CONDITIONS = 8  # AllocatedDeviceStatusMaxConditions
MAX_DEVICE_DATA_BYTES = 10 * 1024  # AllocatedDeviceStatusDataMaxLength
MAX_NETWORK_IPS = 16  # NetworkDeviceDataMaxIPs
MAX_INTERFACE_NAME_BYTES = 256  # NetworkDeviceDataInterfaceNameMaxLength
MAX_HARDWARE_ADDRESS_BYTES = 128  # NetworkDeviceDataHardwareAddressMaxLength

MODE_EXACT_COUNT = "ExactCount"
MODE_ALL = "All"
ADMIN_NAMESPACE_LABEL = (
    "resource.kubernetes.io/admin-access"  # must be "true" where admin access is asked for
)
DELETE_PROTECTION_FINALIZER = "resource.kubernetes.io/delete-protection"


class CapacityRequirements(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """How much of each capacity of a device is wanted."""

    requests: dict[str, quantity.Quantity] = {}


class DeviceDerivedAttribute(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """An attribute computed by CEL while devices are compared. Alpha."""

    name: str = ""
    expression: str = ""


class ExactDeviceRequest(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One kind of device and how many of it."""

    device_class_name: str = ""
    selectors: tuple[device_classes.DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: meta.Int64 = 0
    admin_access: bool | None = None
    tolerations: tuple[node_selectors.DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DeviceDerivedAttribute, ...] = ()


class DeviceSubRequest(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One alternative of a request, tried in order."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[device_classes.DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: meta.Int64 = 0
    tolerations: tuple[node_selectors.DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DeviceDerivedAttribute, ...] = ()


class DeviceRequest(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A named wish: exactly one thing, or the first available of several."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What the devices of several requests must have in common, or must not."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Configuration for the devices of the named requests, or of all."""

    requests: tuple[str, ...] = ()
    opaque: device_classes.OpaqueDeviceConfiguration | None = None


class DeviceClaim(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Everything a claim asks of devices."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What is claimed. Immutable once created."""

    devices: DeviceClaim = DeviceClaim()


class DeviceRequestAllocationResult(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One device given to one request."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[node_selectors.DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, quantity.Quantity] = {}
    skip_node_operations: tuple[str, ...] = ()


class DeviceAllocationConfiguration(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Configuration copied from the class or the claim when devices were allocated."""

    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: device_classes.OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The devices a claim holds."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What was allocated and the nodes it can be used on."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: node_selectors.NodeSelector | None = None
    allocation_timestamp: meta.Time | None = None


class ResourceClaimConsumerReference(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One user of a claim, usually a pod."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class NetworkDeviceData(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What a driver reports about a network device."""

    interface_name: str = ""
    ips: tuple[str, ...] = ()
    hardware_address: str = ""


class AllocatedDeviceStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What a driver reports about one allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[meta.Condition, ...] = ()
    data: msgspec.Raw = meta.NO_RAW
    network_data: NetworkDeviceData | None = None


class ResourceClaimStatus(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Allocation, users and device reports. The only truth about what is in use."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A wish for devices and its fulfilment, namespaced."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplateSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The claim to make for each pod."""

    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A mould for claims, namespaced."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()
