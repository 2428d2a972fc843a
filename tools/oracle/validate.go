package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// validateRequest asks whether the API server would take an object.
type validateRequest struct {
	Object                 json.RawMessage `json:"object"`
	OldObject              json.RawMessage `json:"oldObject"`
	Operation              string          `json:"operation"` // "create" (default), "update" or "updateStatus"
	NamespaceHasAdminLabel bool            `json:"namespaceHasAdminLabel"`
}

const defaultNamespace = "default" // of namespaced objects that name none, as in a URL

func serveValidate(line []byte) (answer, error) {
	var wanted validateRequest
	if err := json.Unmarshal(line, &wanted); err != nil {
		return nil, err
	}
	result := answer{"valid": false, "errors": []answer{}}
	object, kind, strictErr, err := decode(wanted.Object)
	if err != nil {
		result["decodeError"] = err.Error()
		return result, nil
	}
	if strictErr != nil {
		result["strictDecodeError"] = strictErr.Error()
	}
	problem, err := judge(object, *kind, wanted)
	if err != nil {
		return nil, err
	}
	if problem != nil {
		result["errors"] = causes(problem)
		return result, nil
	}
	result["valid"] = true
	result["stored"], err = stored(object, *kind, line)
	return result, err
}

// judge runs an object through the strategy of its endpoint, which changes it to what would be stored.
// The first result is the refusal, the second a request that makes no sense.
func judge(object runtime.Object, kind schema.GroupVersionKind, wanted validateRequest) (problem, err error) {
	place, err := endpointFor(kind.Kind, wanted.NamespaceHasAdminLabel)
	if err != nil {
		return nil, err
	}
	switch wanted.Operation {
	case "", "create":
		return create(place, object, kind)
	case "update":
		return update(place.main, object, wanted.OldObject, requestContext(place, kind, "update", ""))
	case "updateStatus":
		if place.status == nil {
			return nil, fmt.Errorf("kind %s has no status endpoint", kind.Kind)
		}
		return update(place.status, object, wanted.OldObject, requestContext(place, kind, "update", "status"))
	default:
		return nil, fmt.Errorf("operation %q is not create, update or updateStatus", wanted.Operation)
	}
}

func create(place endpoint, object runtime.Object, kind schema.GroupVersionKind) (problem, err error) {
	metadata, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	rest.FillObjectMetaSystemFields(metadata)
	if metadata.GetName() == "" && metadata.GetGenerateName() != "" {
		metadata.SetName(place.main.GenerateName(metadata.GetGenerateName()))
	}
	ctx := inNamespaceOf(requestContext(place, kind, "create", ""), metadata, place.main)
	problem = rest.BeforeCreate(place.main, ctx, object)
	metadata.SetGeneration(0) // every object begins at the same one
	return problem, nil
}

func update(strategy rest.RESTUpdateStrategy, object runtime.Object, old json.RawMessage, ctx context.Context) (problem, err error) {
	oldObject, _, _, err := decode(old)
	if err != nil {
		return nil, fmt.Errorf("oldObject: %w", err)
	}
	metadata, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	return rest.BeforeUpdate(strategy, inNamespaceOf(ctx, metadata, strategy), object, oldObject), nil
}

// requestContext carries what the strategies read of the HTTP request.
func requestContext(place endpoint, kind schema.GroupVersionKind, verb, subresource string) context.Context {
	ctx := request.WithUser(context.Background(), &user.DefaultInfo{Name: "oracle"})
	return request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true,
		Verb:              verb,
		APIGroup:          kind.Group,
		APIVersion:        kind.Version,
		Resource:          place.resource,
		Subresource:       subresource,
	})
}

func inNamespaceOf(ctx context.Context, metadata metav1.Object, strategy interface{ NamespaceScoped() bool }) context.Context {
	if !strategy.NamespaceScoped() {
		return request.WithNamespace(ctx, metav1.NamespaceNone)
	}
	if metadata.GetNamespace() == "" {
		return request.WithNamespace(ctx, defaultNamespace)
	}
	return request.WithNamespace(ctx, metadata.GetNamespace())
}

// causes lists every reason of a refusal as the API server would report it.
func causes(problem error) []answer {
	var status apierrors.APIStatus
	if !errors.As(problem, &status) {
		return []answer{{"type": "InternalError", "field": "", "message": problem.Error()}}
	}
	details := status.Status().Details
	if details == nil || len(details.Causes) == 0 {
		return []answer{{"type": string(status.Status().Reason), "field": "", "message": status.Status().Message}}
	}
	var listed []answer
	for _, cause := range details.Causes {
		listed = append(listed, answer{"type": string(cause.Type), "field": cause.Field, "message": cause.Message})
	}
	return listed
}
