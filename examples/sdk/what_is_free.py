"""What is free now: GPUs by type, and the nodes with the largest free blocks."""

from dovetail.sdk import Cluster

cluster = Cluster.connect()
print(cluster.usage(by="type"))
print()
print(cluster.gpus().filter(lambda node: node.free > 0).sorted_by("free", reverse=True)[:5])
