package main

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
)

type capacities = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity
type amounts = map[resourceapi.QualifiedName]resource.Quantity

// predicatesRequest asks one small yes-or-no question of the allocator.
type predicatesRequest struct {
	Kind string `json:"kind"` // "toleration", "nodeSelector" or "capacity"

	Toleration resourceapi.DeviceToleration `json:"toleration"`
	Taint      resourceapi.DeviceTaint      `json:"taint"`

	NodeSelector *corev1.NodeSelector `json:"nodeSelector"`
	NodeName     string               `json:"nodeName"`
	Labels       map[string]string    `json:"labels"`

	Capacity                 capacities `json:"capacity"`
	AllowMultipleAllocations *bool      `json:"allowMultipleAllocations"`
	Requests                 amounts    `json:"requests"`
	AlreadyConsumed          amounts    `json:"alreadyConsumed"`
	FractionalCapacityRange  *bool      `json:"fractionalCapacityRange"`
}

func servePredicates(request []byte) (answer, error) {
	var wanted predicatesRequest
	if err := json.Unmarshal(request, &wanted); err != nil {
		return nil, err
	}
	switch wanted.Kind {
	case "toleration":
		return answer{"tolerates": resourceclaim.ToleratesTaint(wanted.Toleration, wanted.Taint)}, nil
	case "nodeSelector":
		return nodeMatches(wanted), nil
	case "capacity":
		return capacityFits(wanted)
	default:
		return nil, fmt.Errorf("kind %q is not toleration, nodeSelector or capacity", wanted.Kind)
	}
}

func nodeMatches(wanted predicatesRequest) answer {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: wanted.NodeName, Labels: wanted.Labels}}
	matches, err := structured.NodeMatches(defaultFeatures(), node, "", false, wanted.NodeSelector)
	result := answer{"matches": matches}
	if err != nil {
		result["error"] = err.Error()
	}
	return result
}

// capacityFits asks the allocator about a world of one device and one claim, since the arithmetic itself
// is internal to upstream.
func capacityFits(wanted predicatesRequest) (answer, error) {
	const name = "one"
	features := defaultFeatures()
	features.FractionalCapacityRange = ptr.Deref(wanted.FractionalCapacityRange, features.FractionalCapacityRange)
	start := world{InUse: &inUse{}}
	if wanted.AlreadyConsumed != nil {
		start.InUse.Capacity = map[string]amounts{name + "/" + name + "/" + name: wanted.AlreadyConsumed}
	}
	state, err := start.allocatedState()
	if err != nil {
		return nil, err
	}
	structured.EnableAllocators(defaultVariant)
	question := search{
		features: features,
		state:    state,
		classes:  classLister{{ObjectMeta: metav1.ObjectMeta{Name: name}}},
		slices:   []*resourceapi.ResourceSlice{sliceOfOne(name, wanted)},
		claims:   []*resourceapi.ResourceClaim{claimForOne(name, wanted.Requests)},
		cache:    celCacheFor(features),
		timeout:  defaultTimeoutSeconds * time.Second,
	}
	attempt, err := question.on(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil {
		return nil, err
	}
	return fitsFrom(attempt), nil
}

func sliceOfOne(name string, wanted predicatesRequest) *resourceapi.ResourceSlice {
	device := resourceapi.Device{
		Name:                     name,
		Capacity:                 wanted.Capacity,
		AllowMultipleAllocations: wanted.AllowMultipleAllocations,
	}
	return &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
		Driver:   name,
		Pool:     resourceapi.ResourcePool{Name: name, ResourceSliceCount: 1},
		AllNodes: ptr.To(true),
		Devices:  []resourceapi.Device{device},
	}}
}

func claimForOne(name string, requests amounts) *resourceapi.ResourceClaim {
	exactly := resourceapi.ExactDeviceRequest{
		DeviceClassName: name,
		AllocationMode:  resourceapi.DeviceAllocationModeExactCount,
		Count:           1,
	}
	if requests != nil {
		exactly.Capacity = &resourceapi.CapacityRequirements{Requests: requests}
	}
	claim := &resourceapi.ResourceClaim{}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: name, Exactly: &exactly}}
	return claim
}

func fitsFrom(attempt answer) answer {
	result := answer{"fits": attempt["outcome"] == "allocated"}
	if message, failed := attempt["message"]; failed {
		result["error"] = message
	}
	if results, ok := attempt["results"].([]resourceapi.AllocationResult); ok {
		if consumed := results[0].Devices.Results[0].ConsumedCapacity; consumed != nil {
			result["consumed"] = consumed
		}
	}
	return result
}
