"""The image that the Containerfile makes: what is in it, and how it runs under a real kubelet and containerd."""
