"""The live scheduler: informers, scheduling queue, cycle, binding, eviction, reports and leader election."""
