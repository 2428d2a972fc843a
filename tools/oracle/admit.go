package main

import (
	"bytes"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	podregistry "k8s.io/kubernetes/pkg/registry/core/pod"
)

// admitRequest asks what the API server would store of pods that are created.
type admitRequest struct {
	Pods []json.RawMessage `json:"pods"`
}

// serveAdmit decodes with defaults, prepares and validates as the pods endpoint does. Admission plugins, which
// an administrator chooses, are left out. The answers are the specs, or why there is none.
func serveAdmit(line []byte) (answer, error) {
	var wanted admitRequest
	if err := json.Unmarshal(line, &wanted); err != nil {
		return nil, err
	}
	specs := make([]json.RawMessage, len(wanted.Pods))
	refused := map[int][]answer{}
	for place, text := range wanted.Pods {
		spec, problem, err := admittedSpec(text)
		if err != nil {
			return nil, err
		}
		specs[place] = spec
		if problem != nil {
			refused[place] = causes(problem)
		}
	}
	return answer{"specs": specs, "refused": refused}, nil
}

func admittedSpec(text []byte) (spec json.RawMessage, problem, err error) {
	pod := &core.Pod{}
	decoder := legacyscheme.Codecs.UniversalDecoder(corev1.SchemeGroupVersion)
	versioned, _, err := decoder.Decode(text, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	if err := legacyscheme.Scheme.Convert(versioned, pod, nil); err != nil {
		return nil, nil, err
	}
	rest.FillObjectMetaSystemFields(pod)
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	ctx := request.WithNamespace(requestContext(endpoint{resource: "pods"}, kind, "create", ""), pod.Namespace)
	if problem := rest.BeforeCreate(podregistry.Strategy, ctx, pod); problem != nil {
		return json.RawMessage("null"), problem, nil
	}
	var stored bytes.Buffer
	encoder := legacyscheme.Codecs.EncoderForVersion(jsonCodec.Serializer, corev1.SchemeGroupVersion)
	if err := encoder.Encode(runtime.Object(pod), &stored); err != nil {
		return nil, nil, err
	}
	var parts struct {
		Spec json.RawMessage `json:"spec"`
	}
	err = json.Unmarshal(stored.Bytes(), &parts)
	return parts.Spec, nil, err
}
