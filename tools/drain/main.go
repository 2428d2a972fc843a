// Command drain says what kubectl drain would do to the pods of a node, with kubectl's own package.
//
// It reads one JSON request per line on standard input and writes one JSON answer per line on standard output, in the
// same order. The pods and DaemonSets of a request are served by an in-memory API server, in the order in which a real
// one lists them. It decides nothing of its own. A request that cannot be served is answered with "failure".
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/testing"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/drain"
)

const readBufferBytes = 1 << 20

// request is the pods of a cluster, the node to drain and the options of kubectl drain.
type request struct {
	ID         any          `json:"id"`
	Node       string       `json:"node"`
	Pods       []corev1.Pod `json:"pods"`
	DaemonSets []string     `json:"daemonSets"` // namespace/name
	Options    struct {
		Force              bool   `json:"force"`
		IgnoreDaemonSets   bool   `json:"ignoreDaemonSets"`
		DeleteEmptyDirData bool   `json:"deleteEmptyDirData"`
		DisableEviction    bool   `json:"disableEviction"`
		GracePeriodSeconds int    `json:"gracePeriodSeconds"`
		SkipDeletedSeconds int    `json:"skipDeletedSeconds"`
		PodSelector        string `json:"podSelector"`
	} `json:"options"`
}

// call is one request that the drain sends for a pod.
type call struct {
	Verb  string `json:"verb"`
	Pod   string `json:"pod"`
	Grace *int64 `json:"grace"`
}

// answer is what GetPodsForDeletion and DeleteOrEvictPods did.
type answer struct {
	ID       any      `json:"id"`
	Failure  string   `json:"failure,omitempty"`
	Leaving  []string `json:"leaving"` // in order
	Warnings []string `json:"warnings"`
	Errors   []string `json:"errors"`
	Calls    []call   `json:"calls"` // evictions are sent at once: these are sorted
}

func main() {
	reader := bufio.NewReaderSize(os.Stdin, readBufferBytes)
	writer := bufio.NewWriterSize(os.Stdout, readBufferBytes)
	encoder := json.NewEncoder(writer)
	encoder.SetEscapeHTML(false)
	for {
		line, err := reader.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			if err := encoder.Encode(reply(line)); err != nil {
				fmt.Fprintln(os.Stderr, "drain:", err)
				os.Exit(1)
			}
		}
		if reader.Buffered() == 0 || err != nil {
			writer.Flush()
		}
		if err != nil {
			return
		}
	}
}

func reply(line []byte) (result answer) {
	var asked request
	defer func() {
		if problem := recover(); problem != nil {
			result = answer{Failure: fmt.Sprintf("panic: %v", problem)}
		}
		result.ID = asked.ID
	}()
	if err := json.Unmarshal(line, &asked); err != nil {
		return answer{Failure: err.Error()}
	}
	return drained(&asked)
}

func drained(asked *request) answer {
	var mutex sync.Mutex
	calls := []call{}
	client := served(asked, func(sent call) {
		mutex.Lock()
		defer mutex.Unlock()
		calls = append(calls, sent)
	})
	helper := &drain.Helper{
		Ctx:                             context.Background(),
		Client:                          client,
		Force:                           asked.Options.Force,
		GracePeriodSeconds:              asked.Options.GracePeriodSeconds,
		IgnoreAllDaemonSets:             asked.Options.IgnoreDaemonSets,
		DeleteEmptyDirData:              asked.Options.DeleteEmptyDirData,
		DisableEviction:                 asked.Options.DisableEviction,
		SkipWaitForDeleteTimeoutSeconds: asked.Options.SkipDeletedSeconds,
		PodSelector:                     asked.Options.PodSelector,
		Out:                             io.Discard,
		ErrOut:                          io.Discard,
		DryRunStrategy:                  cmdutil.DryRunServer, // sends the requests, does not wait for the ends
	}
	list, errs := helper.GetPodsForDeletion(asked.Node)
	result := answer{Leaving: []string{}, Warnings: []string{}, Errors: []string{}, Calls: []call{}}
	for _, err := range errs {
		result.Errors = append(result.Errors, err.Error())
	}
	sort.Strings(result.Errors)
	if list == nil {
		return result
	}
	for _, pod := range list.Pods() {
		result.Leaving = append(result.Leaving, pod.Namespace+"/"+pod.Name)
	}
	if warnings := list.Warnings(); warnings != "" {
		result.Warnings = append(result.Warnings, warnings)
	}
	if len(errs) > 0 {
		return result // kubectl drain stops here
	}
	if err := helper.DeleteOrEvictPods(list.Pods()); err != nil {
		result.Errors = append(result.Errors, err.Error())
	}
	if !asked.Options.DisableEviction {
		sort.Slice(calls, func(i, j int) bool { return calls[i].Pod < calls[j].Pod })
	}
	result.Calls = calls
	return result
}

// served is an API server with these objects, which reports every request to end a pod.
func served(asked *request, report func(call)) *fake.Clientset {
	objects := []runtime.Object{}
	for _, name := range asked.DaemonSets {
		daemonSet := &appsv1.DaemonSet{}
		for i := range name {
			if name[i] == '/' {
				daemonSet.Namespace, daemonSet.Name = name[:i], name[i+1:]
			}
		}
		objects = append(objects, daemonSet)
	}
	client := fake.NewClientset(objects...)
	client.Resources = []*metav1.APIResourceList{{
		GroupVersion: "v1",
		APIResources: []metav1.APIResource{
			{Name: drain.EvictionSubresource, Kind: drain.EvictionKind, Group: "policy", Version: "v1"},
		},
	}}
	client.PrependReactor("list", "pods", func(action testing.Action) (bool, runtime.Object, error) {
		restrictions := action.(testing.ListAction).GetListRestrictions()
		node, _ := restrictions.Fields.RequiresExactMatch("spec.nodeName")
		listed := &corev1.PodList{}
		for _, pod := range asked.Pods {
			if pod.Spec.NodeName == node && restrictions.Labels.Matches(labels.Set(pod.Labels)) {
				listed.Items = append(listed.Items, pod)
			}
		}
		// The order of an API server: that of the keys in etcd.
		sort.Slice(listed.Items, func(i, j int) bool { return key(&listed.Items[i]) < key(&listed.Items[j]) })
		return true, listed, nil
	})
	client.PrependReactor("create", "pods", func(action testing.Action) (bool, runtime.Object, error) {
		eviction := action.(testing.CreateAction).GetObject().(*policyv1.Eviction)
		report(call{"evict", eviction.Namespace + "/" + eviction.Name, eviction.DeleteOptions.GracePeriodSeconds})
		return true, nil, nil
	})
	client.PrependReactor("delete", "pods", func(action testing.Action) (bool, runtime.Object, error) {
		deleted := action.(testing.DeleteActionImpl)
		report(call{"delete", deleted.Namespace + "/" + deleted.Name, deleted.DeleteOptions.GracePeriodSeconds})
		return true, nil, nil
	})
	return client
}

func key(pod *corev1.Pod) string {
	return "/registry/pods/" + pod.Namespace + "/" + pod.Name
}
