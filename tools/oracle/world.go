package main

import (
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
)

// world is the cluster state an allocation starts from.
type world struct {
	DeviceClasses    []*resourceapi.DeviceClass     `json:"deviceClasses"`
	ResourceSlices   []*resourceapi.ResourceSlice   `json:"resourceSlices"`
	AllocatedClaims  []*resourceapi.ResourceClaim   `json:"allocatedClaims"`
	InUse            *inUse                         `json:"inUse"`
	DeviceTaintRules []*resourceapi.DeviceTaintRule `json:"deviceTaintRules"`
}

// inUse is the short form of allocatedClaims; where both are given it wins.
type inUse struct {
	Devices  []string                                                   `json:"devices"`
	Shared   []string                                                   `json:"shared"`
	Capacity map[string]map[resourceapi.QualifiedName]resource.Quantity `json:"capacity"`
}

func (w *world) allocatedState() (structured.AllocatedState, error) {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	if w.InUse != nil {
		return state, w.InUse.addTo(&state)
	}
	for _, claim := range w.AllocatedClaims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			addResult(&state, result)
		}
	}
	return state, nil
}

// addResult counts one allocated device the way the scheduler does: admin access occupies nothing.
func addResult(state *structured.AllocatedState, result resourceapi.DeviceRequestAllocationResult) {
	if ptr.Deref(result.AdminAccess, false) {
		return
	}
	device := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
	if result.ShareID == nil {
		state.AllocatedDevices.Insert(device)
		return
	}
	state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(device, result.ShareID))
	if result.ConsumedCapacity != nil {
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(device, result.ConsumedCapacity))
	}
}

func (u *inUse) addTo(state *structured.AllocatedState) error {
	for _, text := range u.Devices {
		device, _, err := parseDevice(text, false)
		if err != nil {
			return err
		}
		state.AllocatedDevices.Insert(device)
	}
	for _, text := range u.Shared {
		device, share, err := parseDevice(text, true)
		if err != nil {
			return err
		}
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(device, &share))
	}
	for text, consumed := range u.Capacity {
		device, _, err := parseDevice(text, false)
		if err != nil {
			return err
		}
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(device, consumed))
	}
	return nil
}

// parseDevice reads "driver/pool/device" or "driver/pool/device/share". Pool names may hold slashes.
func parseDevice(text string, shared bool) (structured.DeviceID, types.UID, error) {
	rest, share := text, ""
	if shared {
		cut := strings.LastIndex(text, "/")
		if cut < 0 {
			return structured.DeviceID{}, "", fmt.Errorf("inUse: %q is not driver/pool/device/share", text)
		}
		rest, share = text[:cut], text[cut+1:]
	}
	first, last := strings.Index(rest, "/"), strings.LastIndex(rest, "/")
	if first < 0 || first == last {
		return structured.DeviceID{}, "", fmt.Errorf("inUse: %q is not driver/pool/device", text)
	}
	return structured.MakeDeviceID(rest[:first], rest[first+1:last], rest[last+1:]), types.UID(share), nil
}

// classLister serves the device classes of one request.
type classLister []*resourceapi.DeviceClass

func (c classLister) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

func (c classLister) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclasses"), name)
}
