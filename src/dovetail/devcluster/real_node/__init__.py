"""A real node on this machine: kubelet and containerd in namespaces of their own, registered with a dev cluster."""
