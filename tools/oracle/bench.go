package main

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/dynamic-resource-allocation/cel"
)

// benchRequest asks how fast upstream does one thing on one thread.
type benchRequest struct {
	What        string            `json:"what"` // "cel", "decode", "validate" or "allocate"
	Expression  string            `json:"expression"`
	Expressions []string          `json:"expressions"`
	Devices     []celDevice       `json:"devices"`
	Seconds     float64           `json:"seconds"`
	Slices      json.RawMessage   `json:"slices"` // a ResourceSliceList, or its text as a string
	Objects     []json.RawMessage `json:"objects"`
	Repeat      int               `json:"repeat"`
	celMode
}

func serveBench(request []byte) (answer, error) {
	var wanted benchRequest
	if err := json.Unmarshal(request, &wanted); err != nil {
		return nil, err
	}
	// One thread for everything, the garbage collector included.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	runtime.GC()
	switch wanted.What {
	case "cel":
		return benchCEL(wanted)
	case "decode":
		return benchDecode(wanted)
	case "validate":
		return benchValidate(wanted)
	case "allocate":
		return benchAllocate(request)
	default:
		return nil, fmt.Errorf("what %q is not cel, decode, validate or allocate", wanted.What)
	}
}

// rate is a count, the time it took and the quotient.
func rate(count int, took time.Duration) answer {
	return answer{"count": count, "seconds": took.Seconds(), "perSecond": float64(count) / took.Seconds()}
}

// benchCEL evaluates every expression on every device, round after round, until the time is up.
func benchCEL(wanted benchRequest) (answer, error) {
	expressions := wanted.Expressions
	if wanted.Expression != "" {
		expressions = append(expressions, wanted.Expression)
	}
	if len(expressions) == 0 || len(wanted.Devices) == 0 || wanted.Seconds <= 0 {
		return nil, fmt.Errorf("bench cel needs expression(s), devices and seconds")
	}
	var compiledOnce []cel.CompilationResult
	for _, expression := range expressions {
		program, err := compiled(expression, wanted.celMode)
		if err != nil {
			return nil, err
		}
		if program.Error != nil {
			return nil, fmt.Errorf("%q: %s", expression, program.Error.Detail)
		}
		compiledOnce = append(compiledOnce, program)
	}
	count, matches, failures := 0, 0, 0
	began := time.Now()
	for time.Since(began).Seconds() < wanted.Seconds {
		for _, program := range compiledOnce {
			for _, device := range wanted.Devices {
				match, _, err := program.DeviceMatches(context.Background(), cel.Device(device))
				count++
				if err != nil {
					failures++
				} else if match {
					matches++
				}
			}
		}
	}
	result := rate(count, time.Since(began))
	result["matches"], result["errors"] = matches, failures
	return result, nil
}

// benchDecode reads a list of slices the way a client does: JSON into typed objects, no conversion.
func benchDecode(wanted benchRequest) (answer, error) {
	text := []byte(wanted.Slices)
	var quoted string
	if json.Unmarshal(text, &quoted) == nil {
		text = []byte(quoted)
	}
	codecs := scheme.Codecs.WithoutConversion()
	info, found := k8sruntime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), k8sruntime.ContentTypeJSON)
	if !found {
		return nil, fmt.Errorf("the client's scheme knows no JSON")
	}
	decoder := codecs.DecoderToVersion(info.Serializer, resourceapi.SchemeGroupVersion)
	count := 0
	began := time.Now()
	for range max(wanted.Repeat, 1) {
		list := &resourceapi.ResourceSliceList{}
		if _, _, err := decoder.Decode(text, nil, list); err != nil {
			return nil, err
		}
		count += len(list.Items)
	}
	return rate(count, time.Since(began)), nil
}

// benchValidate times create validation alone, then once more with decoding and defaulting before it.
func benchValidate(wanted benchRequest) (answer, error) {
	repeat := max(wanted.Repeat, 1)
	var decoded []k8sruntime.Object
	var kinds []schema.GroupVersionKind
	for _, text := range wanted.Objects {
		object, kind, _, err := decode(text)
		if err != nil {
			return nil, err
		}
		decoded, kinds = append(decoded, object), append(kinds, *kind)
	}
	validateAll := func(objectAt func(int) (k8sruntime.Object, error)) (time.Duration, int, error) {
		refused := 0
		began := time.Now()
		for i := range repeat * len(decoded) {
			object, err := objectAt(i % len(decoded))
			if err != nil {
				return 0, 0, err
			}
			problem, err := judge(object, kinds[i%len(decoded)], validateRequest{})
			if err != nil {
				return 0, 0, err
			}
			if problem != nil {
				refused++
			}
		}
		return time.Since(began), refused, nil
	}
	took, refused, err := validateAll(func(i int) (k8sruntime.Object, error) { return decoded[i].DeepCopyObject(), nil })
	if err != nil {
		return nil, err
	}
	tookWhole, _, err := validateAll(func(i int) (k8sruntime.Object, error) {
		object, _, _, err := decode(wanted.Objects[i])
		return object, err
	})
	if err != nil {
		return nil, err
	}
	result := rate(repeat*len(decoded), took)
	result["refused"] = refused
	result["withDecodingPerSecond"] = float64(repeat*len(decoded)) / tookWhole.Seconds()
	return result, nil
}
