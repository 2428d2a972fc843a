"""A bound pod that does not run: kubelet, devices, sandbox, image, CUDA."""

from __future__ import annotations

import pytest

from dovetail.answer.why.cause_codes import CauseClass, CauseCode
from tests.answer.evidence import objects
from tests.answer.evidence.objects import Tree

ALLOCATE = "Allocate failed due to {}, which is unexpected"
PREPARE = "Failed to prepare dynamic resources: prepare dynamic resources: {}"


def refused(reason: str, message: str, **status: object) -> Tree:
    return objects.bound(status={"phase": "Failed", "reason": reason, "message": message, **status})


@pytest.mark.parametrize(
    ("reason", "message", "code", "words"),
    [
        (
            "UnexpectedAdmissionError",
            ALLOCATE.format(
                "requested number of devices unavailable for nvidia.com/gpu. Requested: 4, Available: 2"
            ),
            CauseCode.KUBELET_REFUSED,
            "node gpu-1 had 2 of the 4 nvidia.com/gpu",
        ),
        (
            "UnexpectedAdmissionError",
            ALLOCATE.format(
                "no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu"
            ),
            CauseCode.KUBELET_REFUSED,
            "every nvidia.com/gpu of node gpu-1 is unhealthy",
        ),
        (
            "UnexpectedAdmissionError",
            ALLOCATE.format("cannot allocate unregistered device nvidia.com/gpu"),
            CauseCode.KUBELET_REFUSED,
            "not registered with the kubelet of node gpu-1",
        ),
        (
            "UnexpectedAdmissionError",
            ALLOCATE.format(
                "rpc error: code = Unknown desc = request for 'nvidia.com/gpu: 2' too large: "
                "maximum request size for shared resources is 1"
            ),
            CauseCode.SHARED_REQUEST,
            "ask for 1",
        ),
        (
            "UnexpectedAdmissionError",
            ALLOCATE.format(
                "invalid request: maximum request size for shared resources is 1; found 2"
            ),
            CauseCode.SHARED_REQUEST,
            "ask for 1",
        ),
        (
            "TopologyAffinityError",
            "Pod was rejected: Resources cannot be allocated with Topology locality",
            CauseCode.KUBELET_REFUSED,
            "NUMA",
        ),
        (
            "OutOfnvidia.com/gpu",
            "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 8, "
            "used: 4, capacity: 8",
            CauseCode.KUBELET_REFUSED,
            "no room for 8 nvidia.com/gpu",
        ),
        (
            "EmptyPodSharedPoolError",
            "Pod was rejected: something that is not known",
            CauseCode.KUBELET_REFUSED,
            "something that is not known",
        ),
    ],
)
def test_a_kubelet_refuses_a_pod(reason: str, message: str, code: CauseCode, words: str) -> None:
    pod = refused(reason, message)
    answer = objects.seen(pod, objects.event(pod, reason, message))
    assert answer.cause.code is code
    assert words in answer.cause.sentence
    assert answer.overrides
    assert any(line.startswith("Pod team/train-0, event") for line in answer.evidence)


def test_a_pod_that_ran_and_failed_was_not_refused() -> None:
    message = ALLOCATE.format("cannot allocate unregistered device nvidia.com/gpu")
    terminated = {"name": "main", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    pod = refused("UnexpectedAdmissionError", message, containerStatuses=[terminated])
    assert objects.observe(pod) is None
    assert objects.observe(refused("Evicted", "The node was low on resource: memory")) is None


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (
            "DRA driver gpu.nvidia.com is not registered",
            "driver gpu.nvidia.com does not run on node",
        ),
        (
            "NodePrepareResources failed for ResourceClaim train-0-gpu-x: error preparing devices: MIG",
            "could not prepare claim train-0-gpu-x: error preparing devices: MIG",
        ),
        (
            "pod train-0 (1) is not allowed to use ResourceClaim shared (2)",
            "refuses claim shared: it is not reserved for this pod",
        ),
        ("ResourceClaim shared is being unprepared", "claim shared is still being released"),
        (
            "old ResourceClaim with same name shared and different UID 7 still exists "
            "(previous pod force-deleted?!)",
            "an earlier claim called shared is still prepared",
        ),
        (
            "NodePrepareResources: rpc error: code = DeadlineExceeded desc = context deadline exceeded",
            "did not answer when asked to prepare",
        ),
        ("words of a later kubelet", "words of a later kubelet"),
    ],
)
def test_devices_that_could_not_be_prepared(problem: str, words: str) -> None:
    pod = objects.bound(status={"containerStatuses": [objects.waiting("ContainerCreating")]})
    event = objects.event(
        pod, "FailedPrepareDynamicResources", PREPARE.format(problem), count=14, core=True
    )
    answer = objects.seen(pod, event)
    assert answer.cause.code is CauseCode.PREPARE_FAILED
    assert words in answer.cause.sentence
    assert answer.overrides
    assert "(14 times)" in answer.evidence[0]


def test_a_preparation_that_failed_and_then_succeeded_is_no_cause() -> None:
    pod = objects.bound(status={"containerStatuses": [objects.waiting("ContainerCreating")]})
    failed = objects.event(pod, "FailedPrepareDynamicResources", PREPARE.format("x"), ago=9)
    pulling = objects.event(pod, "Pulling", 'Pulling image "x"', ago=8, type_="Normal")
    assert objects.observe(pod, failed, pulling) is None

    running = objects.bound(
        status={"containerStatuses": [{"name": "main", "state": {"running": {}}, "ready": True}]}
    )
    failed = objects.event(running, "FailedPrepareDynamicResources", PREPARE.format("x"))
    assert objects.observe(running, failed) is None


def test_an_event_about_an_earlier_pod_of_the_name_is_no_cause() -> None:
    pod = objects.bound(status={"containerStatuses": [objects.waiting("ContainerCreating")]})
    event = objects.event(pod, "FailedPrepareDynamicResources", PREPARE.format("x"))
    event["regarding"]["uid"] = "the one before"
    assert objects.observe(pod, event) is None


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            'Failed to create pod sandbox: rpc error: code = Unknown desc = no runtime for "nvidia" '
            "is configured",
            'has no handler "nvidia"',
        ),
        (
            "Failed to create pod sandbox: nvidia-container-cli: initialization error: nvml error: "
            "driver not loaded",
            "no NVIDIA driver is loaded there",
        ),
        (
            "Failed to create pod sandbox: failed to initialize NVML: Driver/library version mismatch",
            "its driver was replaced and not reloaded",
        ),
        (
            "Failed to create pod sandbox: rpc error: code = Unknown desc = plugin type=cni failed",
            "plugin type=cni failed",
        ),
    ],
)
def test_a_sandbox_that_cannot_be_made(message: str, words: str) -> None:
    pod = objects.bound(status={"containerStatuses": [objects.waiting("ContainerCreating")]})
    event = objects.event(pod, "FailedCreatePodSandBox", message)
    answer = objects.seen(pod, event)
    assert answer.cause.code is CauseCode.RUNTIME_FAILED
    assert words in answer.cause.sentence
    started = objects.event(pod, "Started", "Started container main", ago=1, type_="Normal")
    assert objects.observe(pod, event, started) is None


def test_an_image_that_cannot_be_pulled() -> None:
    pod = objects.bound(
        status={
            "containerStatuses": [
                objects.waiting("ImagePullBackOff", "Back-off pulling image", image="example/x:9")
            ]
        }
    )
    event = objects.event(pod, "Failed", "Failed to pull image: manifest unknown")
    answer = objects.seen(pod, event)
    assert answer.cause.code is CauseCode.IMAGE
    assert "example/x:9" in answer.cause.sentence
    assert "manifest unknown" in answer.cause.sentence


@pytest.mark.parametrize(
    ("image", "env", "source"),
    [
        ("example/cuda:12.8.1-devel-ubuntu22.04", {}, "its tag"),
        ("example/pytorch:2.7.0-cuda12.8-cudnn9", {}, "its tag"),
        ("example/pytorch:2.7.0-cu128", {}, "its tag"),
        ("example/train:1", {"CUDA_VERSION": "12.8.1"}, "CUDA_VERSION"),
        (
            "example/train:1",
            {"NVIDIA_REQUIRE_CUDA": "cuda>=12.8 brand=tesla,driver>=470,driver<471"},
            "NVIDIA_REQUIRE_CUDA",
        ),
    ],
)
@pytest.mark.parametrize(
    "message",
    [
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update",
        "RuntimeError: CUDA driver version is insufficient for CUDA runtime version",
        "cudaGetDeviceCount() failed: CUDA error 803",
        "system has unsupported display driver / cuda driver combination",
    ],
)
def test_an_image_of_a_newer_cuda_than_the_driver_offers(
    image: str, env: dict[str, str], source: str, message: str
) -> None:
    labels = {
        "nvidia.com/cuda.driver-version.full": "550.90.07",
        "nvidia.com/cuda.runtime-version.major": "12",
        "nvidia.com/cuda.runtime-version.minor": "4",
    }
    status = objects.waiting(
        "CrashLoopBackOff",
        "back-off 5m0s",
        restartCount=6,
        lastState={"terminated": {"exitCode": 1, "message": message}},
    )
    pod = objects.bound(image=image, env=env, status={"containerStatuses": [status]})
    answer = objects.seen(pod, objects.node(labels=labels))
    assert answer.cause.code is CauseCode.CUDA
    needs = f"the image needs CUDA 12.8 ({source}), driver 550.90.07 offers 12.4"
    assert needs in answer.cause.sentence


def test_a_program_that_fails_by_itself_is_no_cause_of_ours() -> None:
    status = objects.waiting(
        "CrashLoopBackOff", restartCount=3, lastState={"terminated": {"message": "KeyError: 'x'"}}
    )
    assert objects.observe(objects.bound(status={"containerStatuses": [status]})) is None


def test_a_container_that_cannot_be_started() -> None:
    status = objects.waiting("CreateContainerConfigError", 'secret "token" not found')
    answer = objects.seen(objects.bound(status={"containerStatuses": [status]}))
    assert answer.cause.code is CauseCode.RUNTIME_FAILED
    assert answer.cause.class_ is CauseClass.CONFIG
    assert 'secret "token" not found' in answer.cause.sentence

    status = objects.waiting("RunContainerError", "unresolvable CDI devices k8s.gpu.nvidia.com/x")
    answer = objects.seen(objects.bound(status={"containerStatuses": [status]}))
    assert "CDI specification does not hold the device" in answer.cause.sentence


@pytest.mark.parametrize(
    ("message", "code", "words"),
    [
        (
            'MountVolume.SetUp failed for volume "config" : configmap "train-config" not found',
            CauseCode.VOLUME_MISSING,
            "volume config needs ConfigMap train-config",
        ),
        (
            'MountVolume.SetUp failed for volume "token" : secret "hub" not found',
            CauseCode.VOLUME_MISSING,
            "volume token needs Secret hub",
        ),
        (
            'MountVolume.SetUp failed for volume "c" : references non-existent config key: a.yaml',
            CauseCode.VOLUME_MISSING,
            "config key a.yaml",
        ),
        (
            'Multi-Attach error for volume "pvc-1" Volume is already exclusively attached to one node',
            CauseCode.VOLUME_IN_USE,
            "volume pvc-1 is attached to another node",
        ),
        (
            'MountVolume.MountDevice failed for volume "d" : kubernetes.io/csi: driver name ebs.example '
            "not found in the list of registered CSI drivers",
            CauseCode.VOLUME_DRIVER,
            "CSI driver ebs.example of volume d does not run",
        ),
        ("Unable to attach or mount volumes: timed out", CauseCode.RUNTIME_FAILED, "timed out"),
    ],
)
def test_a_volume_that_cannot_be_mounted(message: str, code: CauseCode, words: str) -> None:
    pod = objects.bound(status={"containerStatuses": [objects.waiting("ContainerCreating")]})
    event = objects.event(pod, "FailedMount", message)
    answer = objects.seen(pod, event)
    assert answer.cause.code is code
    assert words in answer.cause.sentence
    pulling = objects.event(pod, "Pulling", "Pulling image", ago=1, type_="Normal")
    assert objects.observe(pod, event, pulling) is None
