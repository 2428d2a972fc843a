package main

import (
	"context"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/dynamic-resource-allocation/structured"
)

const trackerSyncTimeout = 10 * time.Second

// patchedSlices is the slices as the scheduler sees them: with the taints of the rules added by
// upstream's own tracker, fed from an in-memory API server.
func (w *world) patchedSlices(features structured.Features) ([]*resourceapi.ResourceSlice, error) {
	if len(w.DeviceTaintRules) == 0 {
		return w.ResourceSlices, nil
	}
	var objects []runtime.Object
	for _, slice := range w.ResourceSlices {
		objects = append(objects, slice)
	}
	for _, rule := range w.DeviceTaintRules {
		objects = append(objects, rule)
	}
	ctx, cancel := context.WithTimeout(context.Background(), trackerSyncTimeout)
	defer cancel()
	client := fake.NewSimpleClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	defer factory.Shutdown()
	defer cancel()
	tracked, err := tracker.StartTracker(ctx, tracker.Options{
		EnableDeviceTaintRules:   true,
		EnableConsumableCapacity: features.ConsumableCapacity,
		SliceInformer:            factory.Resource().V1().ResourceSlices(),
		TaintInformer:            factory.Resource().V1().DeviceTaintRules(),
		KubeClient:               client,
	})
	if err != nil {
		return nil, fmt.Errorf("device taint rules: %w", err)
	}
	defer tracked.Stop()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), tracked.HasSynced) {
		return nil, fmt.Errorf("device taint rules: upstream's tracker did not settle in %s", trackerSyncTimeout)
	}
	return tracked.ListPatchedResourceSlices()
}
