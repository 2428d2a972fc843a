package main

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// celReading is the native value of a CEL expression over plain strings, or why there is none.
type celReading struct {
	value any
	err   error
}

var (
	stringPrograms = map[string]cel.Program{}
	stringEnv      = mustStringEnv()
)

// celString evaluates one of this program's own expressions over the strings a and b with the
// Kubernetes CEL libraries.
func celString(expression string, inputs ...string) celReading {
	program, found := stringPrograms[expression]
	if !found {
		var err error
		if program, err = stringProgram(expression); err != nil {
			return celReading{err: err}
		}
		stringPrograms[expression] = program
	}
	variables := map[string]any{"a": inputs[0], "b": ""}
	if len(inputs) > 1 {
		variables["b"] = inputs[1]
	}
	result, _, err := program.Eval(variables)
	if err != nil {
		return celReading{err: err}
	}
	return celReading{value: result.Value()}
}

func stringProgram(expression string) (cel.Program, error) {
	ast, issues := stringEnv.Compile(expression)
	if issues.Err() != nil {
		return nil, fmt.Errorf("own expression %q: %w", expression, issues.Err())
	}
	return stringEnv.Program(ast)
}

func mustStringEnv() *cel.Env {
	base, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Env(environment.StoredExpressions)
	if err != nil {
		panic(err)
	}
	env, err := base.Extend(cel.Variable("a", cel.StringType), cel.Variable("b", cel.StringType))
	if err != nil {
		panic(err)
	}
	return env
}
