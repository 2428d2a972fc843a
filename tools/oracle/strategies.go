package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/kubernetes/pkg/apis/resource"
	_ "k8s.io/kubernetes/pkg/apis/resource/install" // teaches the scheme the resource.k8s.io kinds
	"k8s.io/kubernetes/pkg/registry/resource/deviceclass"
	"k8s.io/kubernetes/pkg/registry/resource/devicetaintrule"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaim"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaimtemplate"
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"
)

// endpoint is how the API server treats one kind.
type endpoint struct {
	resource string
	main     strategy
	status   rest.RESTUpdateStrategy // nil for kinds without a status endpoint
}

type strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

// endpointFor is the endpoint of a kind in a namespace with or without the admin label.
func endpointFor(kind string, adminNamespace bool) (endpoint, error) {
	namespaces := labelledNamespaces{admin: adminNamespace}
	switch kind {
	case "ResourceClaim":
		claims := resourceclaim.NewStrategy(namespaces, allowEverything{})
		return endpoint{"resourceclaims", claims, resourceclaim.NewStatusStrategy(claims)}, nil
	case "ResourceClaimTemplate":
		return endpoint{"resourceclaimtemplates", resourceclaimtemplate.NewStrategy(namespaces), nil}, nil
	case "ResourceSlice":
		return endpoint{"resourceslices", resourceslice.Strategy, nil}, nil
	case "DeviceClass":
		return endpoint{"deviceclasses", deviceclass.Strategy, nil}, nil
	case "DeviceTaintRule":
		return endpoint{"devicetaintrules", devicetaintrule.Strategy, devicetaintrule.StatusStrategy}, nil
	default:
		return endpoint{}, fmt.Errorf("kind %q has no validation here", kind)
	}
}

// labelledNamespaces answers for every namespace alike; only Get is ever called by the strategies.
type labelledNamespaces struct {
	corev1client.NamespaceInterface
	admin bool
}

func (n labelledNamespaces) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if n.admin {
		namespace.Labels = map[string]string{resource.DRAAdminNamespaceLabelKey: "true"}
	}
	return namespace, nil
}

// allowEverything is an authorizer for a question that is about the object, not about who sends it.
type allowEverything struct{}

func (allowEverything) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}
