package main

import (
	"sort"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
)

// Upstream's defaults: of how many nodes victims are looked for.
const (
	leastCandidatePercentage = 10
	leastCandidates          = 100
)

// preemption is what upstream's plugin would do for a pod that no node takes as it is.
type preemption struct {
	Node       string   `json:"node"` // empty where it would do nothing
	Victims    []string `json:"victims"`
	Violations int64    `json:"violations"` // disruption budgets that would be exceeded
	Why        string   `json:"why"`
}

// preempt looks for victims as the plugin's PostFilter does, with all nodes as candidates that it would look at
// and from the first of them on, so that the same question has the same answer. Nobody is evicted.
func (c *filterCluster) preempt(state fwk.CycleState, pod *corev1.Pod, statuses *framework.NodeToStatus) (*preemption, error) {
	arguments := &config.DefaultPreemptionArgs{
		MinCandidateNodesPercentage: leastCandidatePercentage,
		MinCandidateNodesAbsolute:   leastCandidates,
	}
	gates := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	plugin, err := defaultpreemption.New(c.ctx, arguments, c.profile, gates)
	if err != nil {
		return nil, err
	}
	may, why := plugin.PodEligibleToPreemptOthers(c.ctx, pod, statuses.Get(pod.Status.NominatedNodeName))
	if !may {
		return &preemption{Why: why, Victims: []string{}}, nil
	}
	nodes, err := statuses.NodesForStatusCode(c.snapshot.NodeInfos(), fwk.Unschedulable)
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return &preemption{Why: "no node would do without others", Victims: []string{}}, nil
	}
	budgets, err := plugin.Evaluator.PdbLister.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	candidates, _, err := plugin.Evaluator.DryRunPreemption(c.ctx, state, pod, nodes, budgets, 0, int32(len(nodes)))
	if err != nil {
		return nil, err
	}
	best := plugin.Evaluator.SelectCandidate(c.ctx, candidates)
	if best == nil {
		return &preemption{Why: "no victims found", Victims: []string{}}, nil
	}
	victims := []string{}
	for _, victim := range best.Victims().Pods {
		victims = append(victims, victim.Namespace+"/"+victim.Name)
	}
	sort.Strings(victims)
	return &preemption{Node: best.Name(), Victims: victims, Violations: best.Victims().NumPDBViolations}, nil
}
