package main

import (
	"encoding/json"
	"fmt"

	"github.com/blang/semver/v4"
)

func serveSemver(request []byte) (answer, error) {
	var wanted pairRequest
	if err := json.Unmarshal(request, &wanted); err != nil {
		return nil, err
	}
	if wanted.A == nil {
		return nil, fmt.Errorf("a is missing")
	}
	if wanted.B != nil {
		return semverPair(*wanted.A, *wanted.B)
	}
	return singleSemver(*wanted.A), nil
}

// singleSemver reads one version strictly and with CEL's normalisation.
func singleSemver(text string) answer {
	result := answer{
		"celIsSemver":           celString("isSemver(a)", text).value,
		"celIsSemverNormalized": celString("isSemver(a, true)", text).value,
	}
	version, err := semver.Parse(text)
	result["strictOk"] = err == nil
	if err != nil {
		result["strictError"] = err.Error()
	} else {
		result["canonical"] = version.String()
	}
	addParts(result, text, map[string]string{
		"major": "semver(a).major()", "minor": "semver(a).minor()", "patch": "semver(a).patch()",
	})
	addParts(result, text, map[string]string{
		"normalizedMajor": "semver(a, true).major()",
		"normalizedMinor": "semver(a, true).minor()",
		"normalizedPatch": "semver(a, true).patch()",
	})
	if normalized := celString("semver(a, true)", text); normalized.err != nil {
		result["normalizedError"] = normalized.err.Error()
	}
	return result
}

// addParts adds those numbers of a version that CEL can read.
func addParts(result answer, text string, expressions map[string]string) {
	for name, expression := range expressions {
		if part := celString(expression, text); part.err == nil {
			result[name] = part.value
		}
	}
}

func semverPair(a, b string) (answer, error) {
	result := answer{}
	for name, expression := range map[string]string{
		"compareTo":     "semver(a).compareTo(semver(b))",
		"isLessThan":    "semver(a).isLessThan(semver(b))",
		"isGreaterThan": "semver(a).isGreaterThan(semver(b))",
		"celEqual":      "semver(a) == semver(b)",
	} {
		reading := celString(expression, a, b)
		if reading.err != nil {
			return nil, reading.err
		}
		result[name] = reading.value
	}
	return result, nil
}
