// Command nvidia_upgrade is the upgrade controller of NVIDIA's GPU Operator, made of NVIDIA's own upgrade library.
//
// It reads one JSON request per line on standard input, does what one reconcile of the operator does, BuildState and
// then ApplyState, against the API server of its kubeconfig, and writes one JSON answer per line. It decides nothing of
// its own but which pods use a GPU: the operator, not the library, states that. A request with nodes touches no server:
// it is answered with the number of nodes that the library would start.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/NVIDIA/k8s-operator-libs/api/upgrade/v1alpha1"
	"github.com/NVIDIA/k8s-operator-libs/pkg/upgrade"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
)

const (
	driverName      = "gpu"
	validator       = "app=nvidia-operator-validator"
	eventBuffer     = 10000
	readBufferBytes = 1 << 20
)

// request is one reconcile: where the driver's pods are, and the policy.
type request struct {
	ID        any                               `json:"id"`
	Namespace string                            `json:"namespace"`
	Labels    map[string]string                 `json:"labels"`
	Policy    *v1alpha1.DriverUpgradePolicySpec `json:"policy"`
	Nodes     []corev1.Node                     `json:"nodes"`
}

// answer is how the reconcile ended, and how many nodes it saw in each state before it acted.
type answer struct {
	ID     any            `json:"id"`
	Error  string         `json:"error,omitempty"`
	States map[string]int `json:"states"`
	Slots  int            `json:"slots"`
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of the kubeconfig")
	verbose := flag.Bool("verbose", false, "write the library's log to standard error")
	flag.Parse()
	if err := serve(*kubeconfig, logger(*verbose)); err != nil {
		fmt.Fprintln(os.Stderr, "nvidia_upgrade:", err)
		os.Exit(1)
	}
}

func serve(kubeconfig string, log logr.Logger) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = -1, -1 // tests must not wait for a limit of the client
	upgrade.SetDriverName(driverName)
	recorder := record.NewFakeRecorder(eventBuffer)
	go func() {
		for range recorder.Events {
		}
	}()
	manager, err := upgrade.NewClusterUpgradeStateManager(log, config, recorder, upgrade.StateOptions{})
	if err != nil {
		return err
	}
	manager = manager.WithPodDeletionEnabled(usesGPU).WithValidationEnabled(validator)

	// The library's drain helper prints to standard output: answers have it to themselves.
	answers := os.Stdout
	os.Stdout = os.Stderr
	encoder := json.NewEncoder(answers)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 0, readBufferBytes), readBufferBytes)
	for lines.Scan() {
		if err := encoder.Encode(reconciled(manager, lines.Bytes())); err != nil {
			return err
		}
	}
	return lines.Err()
}

func reconciled(manager upgrade.ClusterUpgradeStateManager, line []byte) answer {
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil {
		return answer{Error: err.Error()}
	}
	if asked.Nodes != nil {
		return slots(manager, &asked)
	}
	ctx := context.Background()
	state, err := manager.BuildState(ctx, asked.Namespace, asked.Labels)
	if err != nil {
		return answer{ID: asked.ID, Error: err.Error()}
	}
	result := answer{ID: asked.ID, States: map[string]int{}}
	for name, nodes := range state.NodeStates {
		result.States[name] = len(nodes)
	}
	if err := manager.ApplyState(ctx, state, asked.Policy); err != nil {
		result.Error = err.Error()
	}
	return result
}

// slots asks the library how many of these nodes it would start, as its own ProcessUpgradeRequiredNodes does.
func slots(manager upgrade.ClusterUpgradeStateManager, asked *request) answer {
	state := upgrade.NewClusterUpgradeState()
	for i := range asked.Nodes {
		node := &asked.Nodes[i]
		label := node.Labels[upgrade.GetUpgradeStateLabelKey()]
		state.NodeStates[label] = append(state.NodeStates[label], &upgrade.NodeUpgradeState{Node: node})
	}
	total := manager.GetTotalManagedNodes(&state)
	unavailable, err := intstr.GetScaledValueFromIntOrPercent(asked.Policy.MaxUnavailable, total, true)
	if err != nil {
		return answer{ID: asked.ID, Error: err.Error()}
	}
	free := manager.GetUpgradesAvailable(&state, asked.Policy.MaxParallelUpgrades, unavailable)
	return answer{ID: asked.ID, Slots: free}
}

// usesGPU says which pods the operator lets the library evict: those with a GPU or a partition of one in the resources
// of a container. Init containers are not looked at.
func usesGPU(pod corev1.Pod) bool {
	for i := range pod.Spec.Containers {
		resources := pod.Spec.Containers[i].Resources
		for _, list := range []corev1.ResourceList{resources.Limits, resources.Requests} {
			for name := range list {
				if strings.HasPrefix(string(name), "nvidia.com/gpu") ||
					strings.HasPrefix(string(name), "nvidia.com/mig-") {
					return true
				}
			}
		}
	}
	return false
}

func logger(verbose bool) logr.Logger {
	if !verbose {
		return logr.Discard()
	}
	return funcr.New(func(prefix, args string) { fmt.Fprintln(os.Stderr, prefix, args) }, funcr.Options{Verbosity: 1})
}
