"""DaemonSet of apps/v1 with the fields that say what it runs where: the template's images, arguments, node
selector and tolerations.

Other fields Kubernetes knows stay in the document. Never decides which nodes it runs on.
"""

import msgspec

from dovetail.kubetypes import meta
from dovetail.kubetypes.core import pods


class TemplateContainer(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A container of the template."""

    name: str = ""
    image: str = ""
    args: tuple[str, ...] = ()


class TemplateSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What the pods of the set run, and on which nodes."""

    containers: tuple[TemplateContainer, ...] = ()
    init_containers: tuple[TemplateContainer, ...] = ()
    node_selector: dict[str, str] = {}
    tolerations: tuple[pods.Toleration, ...] = ()


class Template(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """The pods of the set."""

    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: TemplateSpec = TemplateSpec()


class DaemonSetSpec(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """What the set creates."""

    template: Template = Template()


class DaemonSet(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True
):
    """A pod on every node that its selector matches."""

    api_version: str = ""
    kind: str = ""
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: DaemonSetSpec = DaemonSetSpec()
