package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/resource"
)

var jsonCodec = mustJSONCodec()

func mustJSONCodec() runtime.SerializerInfo {
	info, found := runtime.SerializerInfoForMediaType(legacyscheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !found {
		panic("the scheme knows no JSON")
	}
	return info
}

// decode reads an object as the API server does: defaults filled in, converted to the internal version.
// Unknown and repeated fields are reported apart, since they matter only under strict field validation.
func decode(text []byte) (object runtime.Object, kind *schema.GroupVersionKind, strictErr, err error) {
	decoder := legacyscheme.Codecs.DecoderToVersion(jsonCodec.StrictSerializer, resource.SchemeGroupVersion)
	object, kind, err = decoder.Decode(text, nil, nil)
	if runtime.IsStrictDecodingError(err) {
		return object, kind, err, nil
	}
	return object, kind, nil, err
}

// stored is the object in the version it came in, without what differs from one creation to the next
// and without an empty status.
func stored(object runtime.Object, kind schema.GroupVersionKind, line []byte) (map[string]any, error) {
	var text bytes.Buffer
	encoder := legacyscheme.Codecs.EncoderForVersion(jsonCodec.Serializer, kind.GroupVersion())
	if err := encoder.Encode(object, &text); err != nil {
		return nil, err
	}
	reader := json.NewDecoder(&text)
	reader.UseNumber()
	var plain map[string]any
	if err := reader.Decode(&plain); err != nil {
		return nil, err
	}
	if metadata, ok := plain["metadata"].(map[string]any); ok {
		for name, value := range metadata {
			if isGenerated(name, value, line) {
				delete(metadata, name)
			}
		}
	}
	if status, ok := plain["status"].(map[string]any); ok && len(status) == 0 {
		delete(plain, "status")
	}
	return withoutClock(plain, string(line)).(map[string]any), nil
}

// isGenerated tells metadata the server made up from metadata the request carried.
func isGenerated(name string, value any, line []byte) bool {
	switch name {
	case "uid", "creationTimestamp":
		text, _ := value.(string)
		return !bytes.Contains(line, []byte(text))
	}
	return false
}

// withoutClock puts "<now>" for every time that the request did not name.
func withoutClock(value any, line string) any {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			value[key] = withoutClock(inner, line)
		}
	case []any:
		for i, inner := range value {
			value[i] = withoutClock(inner, line)
		}
	case string:
		if _, err := time.Parse(time.RFC3339, value); err == nil && !strings.Contains(line, value) {
			return "<now>"
		}
	}
	return value
}
