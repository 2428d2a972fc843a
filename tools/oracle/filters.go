package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// filtersRequest begins a cluster, changes the one that was begun before, or asks about a pod in it. What is
// given is done in this order; a request may do all of it.
type filtersRequest struct {
	Objects []json.RawMessage `json:"objects"` // a new cluster, instead of the last one
	Changed []json.RawMessage `json:"changed"`
	Gone    []json.RawMessage `json:"gone"`
	Pod     json.RawMessage   `json:"pod"`
	Scores  bool              `json:"scores"`
	Preempt bool              `json:"preempt"` // where no node takes the pod: who would have to go
}

// verdict is why a node cannot take a pod: the first plugin in the default profile's order that says so.
type verdict struct {
	Plugin  string   `json:"plugin"`
	Code    string   `json:"code"`
	Reasons []string `json:"reasons"`
}

// heldCluster is the cluster that the next request about filters goes on with.
var heldCluster *filterCluster

func serveFilters(request []byte) (answer, error) {
	var wanted filtersRequest
	if err := json.Unmarshal(request, &wanted); err != nil {
		return nil, err
	}
	if wanted.Objects != nil {
		if heldCluster != nil {
			heldCluster.close()
		}
		begun, err := newFilterCluster()
		if err != nil {
			return nil, err
		}
		heldCluster = begun
	}
	if heldCluster == nil {
		return nil, fmt.Errorf("no cluster: the first request has to bring objects")
	}
	for _, part := range [][]json.RawMessage{wanted.Objects, wanted.Changed} {
		if err := heldCluster.each(part, heldCluster.put); err != nil {
			return nil, err
		}
	}
	if err := heldCluster.each(wanted.Gone, heldCluster.drop); err != nil {
		return nil, err
	}
	if wanted.Pod == nil {
		return answer{}, nil
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(wanted.Pod, pod); err != nil {
		return nil, err
	}
	return heldCluster.judgePod(pod, wanted)
}

// judgePod asks every node, as the scheduling cycle does: PreFilter once, then Filter per node with the pods
// nominated to it. Nothing is chosen.
func (c *filterCluster) judgePod(pod *corev1.Pod, wanted filtersRequest) (answer, error) {
	if err := c.scheduler.Cache.UpdateSnapshot(logr.Discard(), c.snapshot); err != nil {
		return nil, err
	}
	nodes, err := c.snapshot.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	state := framework.NewCycleState()
	only, status, narrowing := c.profile.RunPreFilterPlugins(c.ctx, state, pod)
	accepted := []fwk.NodeInfo{}
	refused := map[string]verdict{}
	statuses := framework.NewDefaultNodeToStatus()
	for _, node := range nodes {
		name := node.Node().Name
		found := status
		if found.IsSuccess() {
			found = c.judgeNode(c.ctx, state, pod, node, only, narrowing)
		}
		if found.IsSuccess() {
			accepted = append(accepted, node)
			continue
		}
		refused[name] = verdictOf(found, narrowing)
		statuses.Set(name, found)
	}
	result := answer{"accepted": namesOf(accepted), "refused": refused}
	if wanted.Preempt && len(accepted) == 0 {
		if result["preemption"], err = c.preempt(state, pod, statuses); err != nil {
			return nil, err
		}
	}
	if wanted.Scores && len(accepted) > 0 {
		if result["scores"], err = c.scoresOf(state, pod, accepted); err != nil {
			return nil, err
		}
	}
	return result, nil
}

func (c *filterCluster) judgeNode(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo,
	only *fwk.PreFilterResult, narrowing sets.Set[string]) *fwk.Status {
	if !only.AllNodes() && !only.NodeNames.Has(node.Node().Name) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "not among the nodes the pod is narrowed to")
	}
	return c.profile.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
}

func verdictOf(status *fwk.Status, narrowing sets.Set[string]) verdict {
	plugin := status.Plugin()
	if plugin == "" && narrowing.Len() > 0 {
		plugin = sets.List(narrowing)[0]
	}
	return verdict{Plugin: plugin, Code: status.Code().String(), Reasons: status.Reasons()}
}

// scoresOf is what upstream's score plugins give each node, weighted; the higher the better.
func (c *filterCluster) scoresOf(state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (map[string]map[string]int64, error) {
	if status := c.profile.RunPreScorePlugins(c.ctx, state, pod, nodes); !status.IsSuccess() {
		return nil, status.AsError()
	}
	scored, status := c.profile.RunScorePlugins(c.ctx, state, pod, nodes)
	if !status.IsSuccess() {
		return nil, status.AsError()
	}
	result := map[string]map[string]int64{}
	for _, node := range scored {
		result[node.Name] = map[string]int64{}
		for _, score := range node.Scores {
			result[node.Name][score.Name] = score.Score
		}
	}
	return result, nil
}

func namesOf(nodes []fwk.NodeInfo) []string {
	names := make([]string, 0, len(nodes))
	for _, node := range nodes {
		names = append(names, node.Node().Name)
	}
	sort.Strings(names)
	return names
}

// quietContext ends with the cluster; upstream's own words about each step are of no use here.
func quietContext() (context.Context, context.CancelFunc) {
	return context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
}
