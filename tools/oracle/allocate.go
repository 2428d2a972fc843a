package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
)

// allocateRequest asks where all of the claims fit: one world, and one node or several.
type allocateRequest struct {
	world
	Node           *corev1.Node                 `json:"node"`
	Nodes          []*corev1.Node               `json:"nodes"`
	Claims         []*resourceapi.ResourceClaim `json:"claims"`
	TimeoutSeconds *float64                     `json:"timeoutSeconds"`
	Variant        string                       `json:"variant"`
	FeatureNames   *[]string                    `json:"features"` // absent: the gates that are on by default
}

const (
	defaultVariant        = "incubating"
	defaultTimeoutSeconds = 2.0
	celCacheEntries       = 1000
	// Share IDs are random upstream; a fixed one keeps answers comparable.
	fixedShareID = types.UID("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa")
)

var celCaches = map[cel.Features]*cel.Cache{}

func serveAllocate(request []byte) (answer, error) {
	var wanted allocateRequest
	if err := json.Unmarshal(request, &wanted); err != nil {
		return nil, err
	}
	search, err := newSearch(wanted)
	if err != nil {
		return nil, err
	}
	if wanted.Node != nil {
		return search.on(wanted.Node)
	}
	if len(wanted.Nodes) == 0 {
		return nil, fmt.Errorf("neither node nor nodes is given")
	}
	answers := answer{}
	for _, node := range wanted.Nodes {
		if answers[node.Name], err = search.on(node); err != nil {
			return nil, err
		}
	}
	return answer{"answers": answers}, nil
}

// search is one prepared question, asked again for every node.
type search struct {
	features structured.Features
	state    structured.AllocatedState
	classes  classLister
	slices   []*resourceapi.ResourceSlice
	claims   []*resourceapi.ResourceClaim
	nodes    []*corev1.Node
	cache    *cel.Cache
	timeout  time.Duration
}

func newSearch(wanted allocateRequest) (*search, error) {
	features := defaultFeatures()
	if wanted.FeatureNames != nil {
		var err error
		if features, err = namedFeatures(*wanted.FeatureNames); err != nil {
			return nil, err
		}
	}
	variant := wanted.Variant
	if variant == "" {
		variant = defaultVariant
	}
	structured.EnableAllocators(variant)
	state, err := wanted.allocatedState()
	if err != nil {
		return nil, err
	}
	slices, err := wanted.patchedSlices(features)
	if err != nil {
		return nil, err
	}
	seconds := ptr.Deref(wanted.TimeoutSeconds, defaultTimeoutSeconds)
	return &search{
		features: features,
		state:    state,
		classes:  classLister(wanted.DeviceClasses),
		slices:   slices,
		claims:   wanted.Claims,
		nodes:    wanted.Nodes,
		cache:    celCacheFor(features),
		timeout:  time.Duration(seconds * float64(time.Second)),
	}, nil
}

func celCacheFor(features structured.Features) *cel.Cache {
	wanted := cel.Features{
		EnableConsumableCapacity: features.ConsumableCapacity,
		EnableListTypeAttributes: features.ListTypeAttributes,
	}
	if celCaches[wanted] == nil {
		celCaches[wanted] = cel.NewCache(celCacheEntries, wanted)
	}
	return celCaches[wanted]
}

// on tries one node with an allocator of its own, so that its call count starts at zero. The error means
// that the variant does not exist or lacks a wanted feature.
func (s *search) on(node *corev1.Node) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	allocator, err := structured.NewAllocator(ctx, s.features, s.state, s.classes, s.slices, s.cache)
	if err != nil {
		return nil, err
	}
	results, err := allocator.Allocate(ctx, node, s.claims)
	result := answer{"outcome": outcomeOf(results, err)}
	if result["outcome"] == "timeout" {
		return result, nil
	}
	if err != nil {
		result["message"] = err.Error()
	}
	if calls, known := callsOf(allocator); known {
		result["calls"] = calls
	}
	if result["outcome"] == "allocated" {
		result["results"] = withFixedShareIDs(results)
	}
	return result, nil
}

func outcomeOf(results []resourceapi.AllocationResult, err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		return "node-error"
	case err != nil:
		return "error"
	case results == nil:
		return "none"
	default:
		return "allocated"
	}
}

// callsOf reads the search effort. The type it comes in is internal to upstream, hence the reflection.
func callsOf(allocator structured.Allocator) (int64, bool) {
	method := reflect.ValueOf(allocator).MethodByName("GetStats")
	if !method.IsValid() {
		return 0, false
	}
	return method.Call(nil)[0].FieldByName("NumAllocateOneInvocations").Int(), true
}

func withFixedShareIDs(results []resourceapi.AllocationResult) []resourceapi.AllocationResult {
	for _, result := range results {
		for i := range result.Devices.Results {
			if result.Devices.Results[i].ShareID != nil {
				result.Devices.Results[i].ShareID = ptr.To(fixedShareID)
			}
		}
	}
	return results
}
