// The one program of the container image that real nodes run: the entry point of test pods, and the pause
// container of every pod sandbox.
//
//	container             prints what it sees as one line of JSON, then waits for SIGTERM
//	container pause       waits for SIGTERM
//	container exit CODE   prints what it sees and ends with this exit code
package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
)

// device is one node under /dev. Open is "ok" or the kernel's reason: a device that the container's
// device cgroup does not allow answers "operation not permitted", one without a driver "no such device".
type device struct {
	Path  string `json:"path"`
	Kind  string `json:"kind"`
	Major uint32 `json:"major"`
	Minor uint32 `json:"minor"`
	Open  string `json:"open"`
}

type view struct {
	Arguments   []string          `json:"arguments"`
	Environment map[string]string `json:"environment"`
	Devices     []device          `json:"devices"`
	Mounts      []string          `json:"mounts"`
}

func main() {
	command := "view"
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	switch {
	case command == "pause":
		waitForEnd()
	case command == "exit" && len(os.Args) == 3:
		printView()
		code, err := strconv.Atoi(os.Args[2])
		if err != nil {
			fail(err)
		}
		os.Exit(code)
	case command == "view":
		printView()
		waitForEnd()
	default:
		fail(fmt.Errorf("unknown arguments: %s", strings.Join(os.Args[1:], " ")))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}

func waitForEnd() {
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM, syscall.SIGINT)
	<-ends
}

func printView() {
	seen := view{
		Arguments:   os.Args[1:],
		Environment: environment(),
		Devices:     devices("/dev"),
		Mounts:      mounts("/proc/self/mountinfo"),
	}
	if err := json.NewEncoder(os.Stdout).Encode(seen); err != nil {
		fail(err)
	}
}

func environment() map[string]string {
	values := map[string]string{}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = value
	}
	return values
}

// devices lists the device nodes below a directory. What cannot be read is left out.
func devices(root string) []device {
	nodes := []device{}
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeDevice == 0 {
			return nil
		}
		var status syscall.Stat_t
		if syscall.Lstat(path, &status) != nil {
			return nil
		}
		kind := "block"
		if entry.Type()&fs.ModeCharDevice != 0 {
			kind = "char"
		}
		nodes = append(nodes, device{
			Path:  path,
			Kind:  kind,
			Major: uint32(status.Rdev>>8&0xfff | status.Rdev>>32&0xfffff000),
			Minor: uint32(status.Rdev&0xff | status.Rdev>>12&0xffffff00),
			Open:  opened(path),
		})
		return nil
	})
	return nodes
}

// opened tries to open a device without ever waiting for it.
func opened(path string) string {
	handle, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err.Error()
	}
	_ = syscall.Close(handle)
	return "ok"
}

// mounts are the mount points of this process, sorted.
func mounts(table string) []string {
	points := []string{}
	text, err := os.ReadFile(table)
	if err != nil {
		return points
	}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if fields := strings.Fields(line); len(fields) > 4 {
			points = append(points, fields[4])
		}
	}
	sort.Strings(points)
	return points
}
