"""Is there room for 64 H100 at once, in 8 pods of 8? If not, what is in the way, and how many nodes would be enough?"""

from typing import Any

from dovetail.sdk import Changes, Cluster

SIZE = 8

cluster = Cluster.connect()
capacity = cluster.capacity(gpus=8, type="h100", gang=SIZE)
shape = capacity.shapes[0]
print(f"{shape.shape}: {shape.now} more pods start now, {shape.after_moving} if other work moves")

blockers = capacity.blockers
if blockers is not None and not blockers.starts:
    print(f"a gang of {SIZE} waits: {blockers.why}")
elif blockers is not None and blockers.work:
    print(f"a gang of {SIZE} starts if {len(blockers.work)} others give way")

devices = {
    "requests": [{"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 8}}]
}
template: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "eight-gpus"},
    "spec": {"spec": {"devices": devices}},
}
pods: list[dict[str, Any]] = [
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"large-{number}",
            "labels": {"dovetail.dev/gang": "large", "dovetail.dev/gang-min": str(SIZE)},
        },
        "spec": {
            "containers": [
                {"name": "main", "image": "training", "resources": {"claims": [{"name": "gpus"}]}}
            ],
            "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "eight-gpus"}],
        },
    }
    for number in range(SIZE)
]
gang = Changes().work([template, *pods])
for nodes in (4, 6, 8):
    answer = cluster.what_if([("add", f"{nodes}xh100"), *gang])
    (job,) = answer.difference.new_work
    print(f"with {nodes} more nodes: {'starts now' if job.nodes else 'waits'}")
