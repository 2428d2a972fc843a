// The one program of the container image that real nodes run.
module dovetail.dev/tools/node/container

go 1.26.0
