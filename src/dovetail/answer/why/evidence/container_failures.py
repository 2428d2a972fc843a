"""Why the containers of a bound pod do not run: sandbox and runtime, image, or CUDA that the driver is too old for.

Given the container states, which hold now, and events, which count only while no container has started and nothing
later happened. A program that fails for its own reasons is none of these. Never reads logs.
"""

from __future__ import annotations

import re
from typing import Final

from dovetail.answer.replica.replica import Replica
from dovetail.answer.why.cause_codes import CauseClass, CauseCode
from dovetail.answer.why.evidence import observation
from dovetail.answer.why.evidence.gpu_platform import cuda_versions
from dovetail.answer.why.evidence.observation import Observed
from dovetail.answer.why.evidence.sources import fields, quoting
from dovetail.answer.why.evidence.sources.pod_state import Container, PodState
from dovetail.kubetypes import object_set, registry
from dovetail.kubetypes.core import nodes

_SANDBOX: Final = "FailedCreatePodSandBox"
_AFTER_SANDBOX: Final = ("Pulling", "Pulled", "Created", "Started", "SandboxChanged")
_IMAGE: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
_START: Final = frozenset(
    {
        "RunContainerError",
        "CreateContainerError",
        "CreateContainerConfigError",
        "ContainerCannotRun",
        "StartError",
    }
)
_CONFIG: Final = frozenset({"CreateContainerConfigError", "InvalidImageName", "ErrImageNeverPull"})
_NO_RUNTIME: Final = re.compile(r'no runtime for "(?P<handler>[^"]+)" is configured')
_CUDA_SIGNS: Final = re.compile(
    r"unsatisfied condition: cuda ?>= ?(?P<cuda>[\d.]+)"
    r"|CUDA driver version is insufficient for CUDA runtime version"
    r"|unsupported display driver / cuda driver combination"
    r"|forward compatibility was attempted on non supported HW"
    r"|(?:CUDA_ERROR_|cudaError)(?:SYSTEM_DRIVER_MISMATCH|SystemDriverMismatch|InsufficientDriver)"
    r"|the provided PTX was compiled with an unsupported toolchain"
    r"|CUDA(?:_ERROR| error)?:? (?:code )?(?:803|804|35)\b"
)
_DRIVER_SIGNS: Final = (
    (re.compile(r"[Dd]river/library version mismatch"), "its driver was replaced and not reloaded"),
    (
        re.compile(
            r"driver not loaded|nvml error: driver not loaded|couldn't communicate with the NVIDIA driver"
        ),
        "no NVIDIA driver is loaded there",
    ),
    (re.compile(r"unresolvable CDI devices?"), "its CDI specification does not hold the device"),
    (
        re.compile(r"libnvidia-ml\.so\.1: cannot open shared object"),
        "the driver's libraries are not there",
    ),
    (
        re.compile(
            r"nvidia-container-cli: (?:device error|initialization error|detection error|ldcache error|mount error)"
        ),
        "the NVIDIA container toolkit could not set up the GPU",
    ),
    (re.compile(r"no CUDA-capable device is detected"), "the container sees no GPU"),
    (re.compile(r"nvidia-container-(?:runtime|cli)"), "the NVIDIA container runtime failed"),
)


def failed(replica: Replica, state: PodState) -> Observed | None:
    """Why containers do not run; None where they do, or where only the program itself fails."""
    if not state.node:
        return None
    for container in state.containers:
        if container.state == "running" or container.reason == "Completed":
            continue
        if container.reason in _IMAGE:
            return _image(state, container)
        text = container.message if container.reason in _START else container.last_message
        if container.reason in _START or _is_crashing(container):
            seen = _gpu_failure(replica, state, container, text or container.message)
            if seen is not None:
                return seen
        if container.reason in _START:
            return _start(state, container)
    return _sandbox(replica, state)


def _is_crashing(container: Container) -> bool:
    return container.reason == "CrashLoopBackOff" or container.state == "terminated"


def _image(state: PodState, container: Container) -> Observed:
    event = state.newest("Failed", "BackOff", "InspectFailed", "ErrImageNeverPull")
    message = container.message
    if container.reason == "ImagePullBackOff" and event is not None and event.reason == "Failed":
        message = event.message  # the back-off itself does not say why
    image = quoting.words(container.image, 120)
    sentence = f"image {image} cannot be pulled ({container.reason}): {quoting.words(message)}"
    class_ = CauseClass.CONFIG if container.reason in _CONFIG else None
    lines = [_line(state, container, container.message)]
    if event is not None:
        lines.append(event.line)
    return observation.observed_cause(CauseCode.IMAGE, sentence, *lines, class_=class_)


def _start(state: PodState, container: Container) -> Observed:
    name = quoting.words(container.name, 63)
    sentence = f"container {name} cannot be started ({container.reason}): {quoting.words(container.message)}"
    class_ = CauseClass.CONFIG if container.reason in _CONFIG else None
    line = _line(state, container, container.message)
    return observation.observed_cause(CauseCode.RUNTIME_FAILED, sentence, line, class_=class_)


def _gpu_failure(
    replica: Replica, state: PodState, container: Container, text: str
) -> Observed | None:
    """A failure that names the GPU stack."""
    line = _line(state, container, text)
    name = quoting.words(container.name, 63)
    if _CUDA_SIGNS.search(text[:8_192]):
        comparison = _comparison(replica, state, container.name)
        numbers = f" ({comparison})" if comparison else ""
        sentence = (
            f"the driver of node {quoting.words(state.node, 63)} is too old for container {name}{numbers}; "
            "use an older image or a node with a newer driver"
        )
        return observation.observed_cause(CauseCode.CUDA, sentence, line)
    for pattern, meaning in _DRIVER_SIGNS:
        if pattern.search(text[:8_192]):
            node = quoting.words(state.node, 63)
            sentence = f"container {name} cannot use the GPU of node {node}: {meaning}"
            return observation.observed_cause(CauseCode.RUNTIME_FAILED, sentence, line)
    return None


def _sandbox(replica: Replica, state: PodState) -> Observed | None:
    event = state.newest(_SANDBOX)
    if event is None or state.has_started or state.is_over(event, *_AFTER_SANDBOX):
        return None
    node = quoting.words(state.node, 63)
    if match := _NO_RUNTIME.search(event.message[:8_192]):
        handler = quoting.words(match["handler"], 63)
        sentence = (
            f'the container runtime of node {node} has no handler "{handler}", which the pod\'s '
            "RuntimeClass asks for: the NVIDIA container toolkit is not set up there"
        )
        return observation.observed_cause(CauseCode.RUNTIME_FAILED, sentence, event.line)
    for pattern, meaning in _DRIVER_SIGNS:
        if pattern.search(event.message[:8_192]):
            sentence = f"node {node} cannot start the pod's sandbox: {meaning}"
            return observation.observed_cause(CauseCode.RUNTIME_FAILED, sentence, event.line)
    said = re.sub(r"^Failed to create pod sandbox: (?:rpc error: )?", "", event.message[:8_192])
    sentence = f"node {node} cannot start the pod's sandbox: {quoting.words(said)}"
    return observation.observed_cause(CauseCode.RUNTIME_FAILED, sentence, event.line)


def _comparison(replica: Replica, state: PodState, container_name: str) -> str:
    need = None
    for part in ("containers", "initContainers"):
        for container in fields.trees_at(state.tree, "spec", part):
            if fields.text_at(container, "name") == container_name:
                need = cuda_versions.needed(container)
    stored = replica.get(object_set.Key(registry.NODE.unique_name, "", state.node))
    labels = (
        stored.struct.metadata.labels if stored and isinstance(stored.struct, nodes.Node) else {}
    )
    return cuda_versions.compared(need, cuda_versions.offered(labels))


def _line(state: PodState, container: Container, text: str) -> str:
    restarts = f", {quoting.counted(container.restarts, 'restart')}" if container.restarts else ""
    source = f"Pod {state.id}, container {container.name} {container.reason}{restarts}"
    return quoting.line(source, None, text)
