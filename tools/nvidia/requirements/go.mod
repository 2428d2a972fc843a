// What NVIDIA's container toolkit decides about NVIDIA_REQUIRE_*; its path lies below the toolkit's, see main.go.
module github.com/NVIDIA/nvidia-container-toolkit/requirements

go 1.26.0

require github.com/NVIDIA/nvidia-container-toolkit v1.20.1

require (
	github.com/opencontainers/runtime-spec v1.3.0 // indirect
	github.com/sirupsen/logrus v1.9.4 // indirect
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	tags.cncf.io/container-device-interface v1.1.1 // indirect
)
