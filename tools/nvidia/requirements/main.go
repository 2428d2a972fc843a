// Answers, line by line, what NVIDIA's container toolkit says of the environment of a container on a host.
//
// Given one JSON object per line: env (name to value), and the host's cuda, arch, driver, brand. Prints one JSON
// object per line. The packages that decide are unmodified; this module's path lies below theirs because Go lets only
// such modules import them.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"

	"github.com/NVIDIA/nvidia-container-toolkit/internal/config/image"
	"github.com/NVIDIA/nvidia-container-toolkit/internal/logger"
	"github.com/NVIDIA/nvidia-container-toolkit/internal/requirements"
)

type question struct {
	Env    map[string]string `json:"env"`
	Cuda   string            `json:"cuda"`
	Arch   string            `json:"arch"`
	Driver string            `json:"driver"`
	Brand  string            `json:"brand"`
}

type reply struct {
	Met     bool   `json:"met"`
	Invalid bool   `json:"invalid"`
	Problem string `json:"problem"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<24)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		if err := out.Encode(answer(asked)); err != nil {
			panic(err)
		}
	}
}

func answer(asked question) reply {
	cuda, err := image.New(image.WithEnvMap(asked.Env))
	if err != nil {
		return reply{Invalid: true, Problem: err.Error()}
	}
	texts, err := cuda.GetRequirements()
	if err != nil {
		return reply{Invalid: true, Problem: err.Error()}
	}
	host := requirements.New(&logger.NullLogger{}, texts)
	host.AddVersionProperty(requirements.CUDA, asked.Cuda)
	host.AddVersionProperty(requirements.ARCH, asked.Arch)
	host.AddVersionProperty(requirements.DRIVER, asked.Driver)
	host.AddStringProperty(requirements.BRAND, asked.Brand)
	if err := host.Assert(); err != nil {
		// The toolkit spells it this way where it cannot read a version.
		unreadable := strings.HasPrefix(err.Error(), "invalid constraint") ||
			strings.HasPrefix(err.Error(), "invailid value")
		return reply{Invalid: unreadable, Problem: err.Error()}
	}
	return reply{Met: true}
}
