package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/dynamic-resource-allocation/structured"
)

// placementRequest is an allocate request whose claims arrive one after the other, each for a pod of its own.
type placementRequest struct {
	allocateRequest
	Seconds float64 `json:"seconds"` // give up after this long; 0: never
	Rotate  bool    `json:"rotate"`  // begin each claim at the node after the one that took the last
}

// benchAllocate finds a node for each claim in turn: nodes in order, the first that fits. What a claim gets stays
// taken for those after it, and the allocated state grows in place, never rebuilt. As the scheduler does, every
// claim gets an allocator of its own over all slices.
func benchAllocate(request []byte) (answer, error) {
	var wanted placementRequest
	if err := json.Unmarshal(request, &wanted); err != nil {
		return nil, err
	}
	if len(wanted.Nodes) == 0 || len(wanted.Claims) == 0 {
		return nil, fmt.Errorf("bench allocate needs nodes and claims")
	}
	search, err := newSearch(wanted.allocateRequest)
	if err != nil {
		return nil, err
	}
	outcomes := map[string]int{}
	placed := []int{} // positions in the list of claims
	first, tries, count := 0, 0, 0
	began := time.Now()
	for i := range wanted.Claims {
		if wanted.Seconds > 0 && time.Since(began).Seconds() > wanted.Seconds {
			break
		}
		search.claims = wanted.Claims[i : i+1]
		at, tried, err := search.place(wanted.placesFrom(first), outcomes)
		if err != nil {
			return nil, err
		}
		count++
		tries += tried
		if at < 0 {
			continue
		}
		placed = append(placed, i)
		if wanted.Rotate {
			first = (first + at + 1) % len(wanted.Nodes)
		}
	}
	result := rate(count, time.Since(began))
	result["placed"], result["tries"], result["outcomes"] = placed, tries, outcomes
	return result, nil
}

// placesFrom is the order of the nodes when the first comes first.
func (r *placementRequest) placesFrom(first int) []int {
	order := make([]int, len(r.Nodes))
	for i := range order {
		order[i] = (first + i) % len(r.Nodes)
	}
	return order
}

// place tries the nodes at these positions of the list; which one of them took the claims, -1 for none, and how
// many were tried.
func (s *search) place(order []int, outcomes map[string]int) (int, int, error) {
	allocator, err := structured.NewAllocator(context.Background(), s.features, s.state, s.classes, s.slices, s.cache)
	if err != nil {
		return 0, 0, err
	}
	for i, at := range order {
		ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
		results, err := allocator.Allocate(ctx, s.nodes[at], s.claims)
		cancel()
		outcome := outcomeOf(results, err)
		outcomes[outcome]++
		if outcome != "allocated" {
			continue
		}
		for _, result := range results {
			for _, device := range result.Devices.Results {
				addResult(&s.state, device)
			}
		}
		return i, i + 1, nil
	}
	return -1, len(order), nil
}
