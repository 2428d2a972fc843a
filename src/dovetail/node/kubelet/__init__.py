"""gRPC with the kubelet: plugin registration, DRAPlugin, the health stream."""
