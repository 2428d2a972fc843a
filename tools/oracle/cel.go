package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	upstream "github.com/google/cel-go/cel"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
)

// celRequest asks what one expression says about one device, or about each of several.
type celRequest struct {
	Expression string      `json:"expression"`
	Device     *celDevice  `json:"device"`
	Devices    []celDevice `json:"devices"`
	celMode
}

// celMode chooses the environment an expression is compiled for.
type celMode struct {
	Env      string      `json:"env"` // "stored" (allocation) or "new" (validation)
	Features celFeatures `json:"features"`
	Derived  bool        `json:"derived"`
}

type celFeatures struct {
	ConsumableCapacity *bool `json:"consumableCapacity"`
	ListTypeAttributes *bool `json:"listTypeAttributes"`
}

// celDevice is the part of a ResourceSlice device that expressions can see, with its driver.
type celDevice struct {
	Driver                   string                                                    `json:"driver"`
	AllowMultipleAllocations *bool                                                     `json:"allowMultipleAllocations"`
	Attributes               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes"`
	Capacity                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity  `json:"capacity"`
}

// celCompiler is what this program needs of upstream's compiler, whose type has no public name.
type celCompiler interface {
	CompileCELExpression(expression string, options cel.Options) cel.CompilationResult
}

type programKey struct {
	expression string
	env        string
	features   cel.Features
	derived    bool
}

const maxPrograms = 20_000 // a long fuzz run must not eat the machine

var (
	compilers = map[cel.Features]celCompiler{}
	programs  = map[programKey]cel.CompilationResult{}
)

func serveCEL(request []byte) (answer, error) {
	var wanted celRequest
	if err := json.Unmarshal(request, &wanted); err != nil {
		return nil, err
	}
	program, err := compiled(wanted.Expression, wanted.celMode)
	if err != nil {
		return nil, err
	}
	if program.Error != nil {
		return answer{"compileError": program.Error.Detail}, nil
	}
	result := answer{
		"estimatedCost": strconv.FormatUint(program.MaxCost, 10),
		"outputType":    program.OutputType.String(),
	}
	if wanted.Device != nil {
		for key, value := range evaluate(program, *wanted.Device, wanted.Derived) {
			result[key] = value
		}
	}
	if wanted.Devices != nil {
		results := make([]answer, 0, len(wanted.Devices))
		for _, device := range wanted.Devices {
			results = append(results, evaluate(program, device, wanted.Derived))
		}
		result["results"] = results
	}
	return result, nil
}

// compiled returns the program of an expression, from the cache when it was asked for before.
func compiled(expression string, mode celMode) (cel.CompilationResult, error) {
	features := cel.Features{
		EnableConsumableCapacity: ptr.Deref(mode.Features.ConsumableCapacity, true),
		EnableListTypeAttributes: ptr.Deref(mode.Features.ListTypeAttributes, false),
	}
	key := programKey{expression, mode.Env, features, mode.Derived}
	if program, found := programs[key]; found {
		return program, nil
	}
	envType := environment.StoredExpressions
	switch mode.Env {
	case "", "stored":
	case "new":
		envType = environment.NewExpressions
	default:
		return cel.CompilationResult{}, fmt.Errorf("env %q is neither \"stored\" nor \"new\"", mode.Env)
	}
	program := compilerFor(features).CompileCELExpression(expression, cel.Options{
		EnvType:          &envType,
		DerivedAttribute: mode.Derived,
	})
	if len(programs) >= maxPrograms {
		clear(programs)
	}
	programs[key] = program
	return program, nil
}

// compilerFor keeps one compiler per feature set: upstream remembers only the last one.
func compilerFor(features cel.Features) celCompiler {
	if compilers[features] == nil {
		compilers[features] = cel.GetCompiler(features)
	}
	return compilers[features]
}

func evaluate(program cel.CompilationResult, device celDevice, derived bool) answer {
	if derived {
		attribute, details, err := program.EvaluateDerivedAttribute(context.Background(), cel.Device(device))
		return outcome(details, "attribute", attribute, err)
	}
	matches, details, err := program.DeviceMatches(context.Background(), cel.Device(device))
	return outcome(details, "match", matches, err)
}

// outcome is the value or the error of one evaluation, and its cost when the program ran at all.
func outcome(details *upstream.EvalDetails, name string, value any, err error) answer {
	result := answer{}
	if details != nil && details.ActualCost() != nil {
		result["actualCost"] = *details.ActualCost()
	}
	if err != nil {
		result["matchError"] = err.Error()
	} else {
		result[name] = value
	}
	return result
}
