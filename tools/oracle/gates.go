package main

import (
	"fmt"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/kubernetes/pkg/features"
)

// gatesOnWithoutRollback are on by default in 1.37 once a cluster gives up compatibility with 1.36. A stock
// binary does not give it up; the recorded conformance data does, and so does this program.
var gatesOnWithoutRollback = map[string]bool{string(features.DRAFractionalCapacityRange): true}

func init() {
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gatesOnWithoutRollback); err != nil {
		panic(err)
	}
}

// defaultFeatures is what the scheduler would hand to the allocator with the gates as this release ships them.
func defaultFeatures() structured.Features {
	on := utilfeature.DefaultFeatureGate.Enabled
	return structured.Features{
		AdminAccess:             on(features.DRAAdminAccess),
		CompatibilityGroups:     on(features.DRADeviceCompatibilityGroups),
		ConsumableCapacity:      on(features.DRAConsumableCapacity),
		DerivedAttributes:       on(features.DRADerivedAttributes),
		DeviceBindingAndStatus:  on(features.DRADeviceBindingConditions) && on(features.DRAResourceClaimDeviceStatus),
		DeviceTaints:            on(features.DRADeviceTaints),
		FractionalCapacityRange: on(features.DRAFractionalCapacityRange),
		ListTypeAttributes:      on(features.DRAListTypeAttributes),
		OptionalNodeOperations:  on(features.DRAOptionalNodeOperations),
		PartitionableDevices:    on(features.DRAPartitionableDevices),
		PrioritizedList:         on(features.DRAPrioritizedList),
	}
}

// namedFeatures turns on exactly the named features, with the names upstream's Features.Set uses.
func namedFeatures(names []string) (structured.Features, error) {
	var chosen structured.Features
	switches := map[string]*bool{
		"DRAAdminAccess":               &chosen.AdminAccess,
		"DRADeviceCompatibilityGroups": &chosen.CompatibilityGroups,
		"DRAConsumableCapacity":        &chosen.ConsumableCapacity,
		"DRADerivedAttributes":         &chosen.DerivedAttributes,
		"DRADeviceBindingConditions+DRAResourceClaimDeviceStatus": &chosen.DeviceBindingAndStatus,
		"DRADeviceTaints":            &chosen.DeviceTaints,
		"DRAFractionalCapacityRange": &chosen.FractionalCapacityRange,
		"DRAListTypeAttributes":      &chosen.ListTypeAttributes,
		"DRAOptionalNodeOperations":  &chosen.OptionalNodeOperations,
		"DRAPartitionableDevices":    &chosen.PartitionableDevices,
		"DRAPrioritizedList":         &chosen.PrioritizedList,
	}
	for _, name := range names {
		on, known := switches[name]
		if !known {
			return chosen, fmt.Errorf("unknown allocator feature %q", name)
		}
		*on = true
	}
	return chosen, nil
}
