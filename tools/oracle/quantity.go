package main

import (
	"encoding/json"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
)

// pairRequest asks about one string, or about two of them together.
type pairRequest struct {
	A *string `json:"a"`
	B *string `json:"b"`
}

func serveQuantity(request []byte) (answer, error) {
	var wanted pairRequest
	if err := json.Unmarshal(request, &wanted); err != nil {
		return nil, err
	}
	if wanted.A == nil {
		return nil, fmt.Errorf("a is missing")
	}
	if wanted.B != nil {
		return quantityPair(*wanted.A, *wanted.B)
	}
	return singleQuantity(*wanted.A), nil
}

// singleQuantity is every reading upstream offers of one quantity string.
func singleQuantity(text string) answer {
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return answer{"ok": false, "error": err.Error(), "celIsQuantity": celString("isQuantity(a)", text).value}
	}
	// Every read works on a copy: some of upstream's methods rewrite the quantity they are called on.
	fresh := func() *resource.Quantity { q := quantity.DeepCopy(); return &q }
	number, suffix := fresh().CanonicalizeBytes(nil)
	whole, isWhole := fresh().AsInt64()
	result := answer{
		"ok":            true,
		"string":        fresh().String(),
		"canonical":     string(number) + string(suffix),
		"format":        string(quantity.Format),
		"value":         strconv.FormatInt(fresh().Value(), 10),
		"milliValue":    strconv.FormatInt(fresh().MilliValue(), 10),
		"asInt64Ok":     isWhole,
		"exactDecimal":  fresh().AsDec().String(),
		"sign":          fresh().Sign(),
		"approxFloat":   floatText(fresh().AsApproximateFloat64()),
		"celIsQuantity": celString("isQuantity(a)", text).value,
	}
	if isWhole {
		result["asInt64"] = strconv.FormatInt(whole, 10)
	}
	result["celIsInteger"] = celString("quantity(a).isInteger()", text).value
	if integer := celString("quantity(a).asInteger()", text); integer.err != nil {
		result["celAsIntegerError"] = integer.err.Error()
	} else {
		result["celAsInteger"] = strconv.FormatInt(integer.value.(int64), 10)
	}
	if float := celString("quantity(a).asApproximateFloat()", text); float.err == nil {
		result["celAsApproximateFloat"] = floatText(float.value.(float64))
	}
	return result
}

func quantityPair(a, b string) (answer, error) {
	left, err := resource.ParseQuantity(a)
	if err != nil {
		return nil, fmt.Errorf("a: %w", err)
	}
	right, err := resource.ParseQuantity(b)
	if err != nil {
		return nil, fmt.Errorf("b: %w", err)
	}
	sum, difference := left.DeepCopy(), left.DeepCopy()
	sum.Add(right.DeepCopy())
	difference.Sub(right.DeepCopy())
	compared := left.DeepCopy()
	return answer{
		"cmp":      compared.Cmp(right.DeepCopy()),
		"celEqual": celString("quantity(a) == quantity(b)", a, b).value,
		"add":      sum.String(),
		"sub":      difference.String(),
	}, nil
}

// floatText is the shortest decimal text that reads back as the same float.
func floatText(value float64) string {
	return strconv.FormatFloat(value, 'g', -1, 64)
}
