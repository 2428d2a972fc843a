"""DeviceClass of resource.k8s.io/v1, and the selectors and driver configuration it shares with claims.

Given wire data, holds it frozen. Never compiles an expression, never reads a driver's parameters.
"""

import msgspec

from dovetail.kubetypes import meta

MAX_SELECTORS = 32  # DeviceSelectorsMaxSize, resource.k8s.io/v1
MAX_CONFIGS = 32  # DeviceConfigMaxSize
MAX_EXPRESSION_BYTES = 10 * 1024  # CELSelectorExpressionMaxLength
MAX_PARAMETERS_BYTES = 10 * 1024  # OpaqueParametersMaxLength


class CELDeviceSelector(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A CEL expression that must hold for a device."""

    expression: str = ""


class DeviceSelector(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """One way to choose devices; CEL is the only one so far."""

    cel: CELDeviceSelector | None = None


class OpaqueDeviceConfiguration(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Parameters only the named driver understands, kept as the JSON they came in."""

    driver: str = ""
    parameters: msgspec.Raw = meta.NO_RAW


class DeviceClassConfiguration(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Configuration every device of the class is prepared with."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """Which devices belong to the class and how they are prepared."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A kind of device that requests name, cluster-scoped."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()
