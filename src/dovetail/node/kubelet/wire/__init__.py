"""Messages of the kubelet's gRPC interfaces, generated from the .proto files of this folder when Dovetail is installed.

The .proto files hold what the agent uses, with the numbers and names of k8s.io/kubelet. The generated modules are not
versioned: `hatch_build.py` writes them. Never adds behaviour to a message.
"""

from dovetail import errors

try:
    from dovetail.node.kubelet.wire import (
        device_plugin_v1beta1_pb2,
        dra_v1_pb2,
        dra_v1beta1_pb2,
        health_v1_pb2,
        health_v1alpha1_pb2,
        registration_v1_pb2,
    )
except ImportError as error:
    if error.name != __name__:  # something that a generated module needs
        raise
    raise errors.DovetailError(
        "the messages of the kubelet's interfaces are not generated; install Dovetail again: "
        "`make .venv/run.stamp` in a checkout, else `pip install --force-reinstall dovetail`"
    ) from error

__all__ = [
    "device_plugin_v1beta1_pb2",
    "dra_v1_pb2",
    "dra_v1beta1_pb2",
    "health_v1_pb2",
    "health_v1alpha1_pb2",
    "registration_v1_pb2",
]
