"""Stories on a real node: kubelet, containerd, containers."""
