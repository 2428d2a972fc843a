package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

// schedulerName is the only profile of a scheduler without configuration.
const schedulerName = corev1.DefaultSchedulerName

// filterCluster is a scheduler as upstream puts it together, with its default profile, that nobody starts: its
// caches are filled by hand, at once and in order, instead of by watches.
type filterCluster struct {
	ctx       context.Context
	close     context.CancelFunc
	informers informers.SharedInformerFactory
	scheduler *scheduler.Scheduler
	profile   framework.Framework
	snapshot  *internalcache.Snapshot
	nodes     map[string]*corev1.Node
	pods      map[string]*corev1.Pod // by namespace and name
}

func newFilterCluster() (*filterCluster, error) {
	// The client is never used: nothing is started, nothing is bound.
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://localhost:1"})
	if err != nil {
		return nil, err
	}
	ctx, cancel := quietContext()
	factory := scheduler.NewInformerFactory(client, 0, nil)
	snapshot := internalcache.NewEmptySnapshot()
	recorders := profile.NewRecorderFactory(events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()}))
	made, err := scheduler.New(ctx, client, factory, nil, recorders, scheduler.WithNodeInfoSnapshot(snapshot))
	if err != nil {
		cancel()
		return nil, err
	}
	return &filterCluster{
		ctx:       ctx,
		close:     cancel,
		informers: factory,
		scheduler: made,
		profile:   made.Profiles[schedulerName],
		snapshot:  snapshot,
		nodes:     map[string]*corev1.Node{},
		pods:      map[string]*corev1.Pod{},
	}, nil
}

// each reads objects of the kinds a cluster has and hands them on.
func (c *filterCluster) each(texts []json.RawMessage, take func(runtime.Object) error) error {
	decoder := clientscheme.Codecs.UniversalDeserializer()
	for _, text := range texts {
		object, _, err := decoder.Decode(text, nil, nil)
		if err != nil {
			return err
		}
		if err := take(object); err != nil {
			return err
		}
	}
	return nil
}

// put adds an object, or changes the one of the same name.
func (c *filterCluster) put(object runtime.Object) error {
	switch object := object.(type) {
	case *corev1.Node:
		if old, known := c.nodes[object.Name]; known {
			c.scheduler.Cache.UpdateNode(logr.Discard(), old, object)
		} else {
			c.scheduler.Cache.AddNode(logr.Discard(), object)
		}
		c.nodes[object.Name] = object
	case *corev1.Pod:
		return c.putPod(object)
	}
	store, err := c.storeOf(object)
	if err != nil {
		return err
	}
	return store.Add(object)
}

// putPod counts a pod on its node, or among the nominated ones. The scheduler's watch leaves finished pods out.
func (c *filterCluster) putPod(pod *corev1.Pod) error {
	if err := c.dropPod(pod); err != nil {
		return err
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	c.pods[pod.Namespace+"/"+pod.Name] = pod
	if err := c.informers.Core().V1().Pods().Informer().GetIndexer().Add(pod); err != nil {
		return err
	}
	if pod.Spec.NodeName != "" {
		return c.scheduler.Cache.AddPod(logr.Discard(), pod)
	}
	if pod.Status.NominatedNodeName != "" {
		c.scheduler.SchedulingQueue.Add(c.ctx, pod) // where the nominator looks for what it needs; nobody takes it out
	}
	return nil
}

func (c *filterCluster) dropPod(pod *corev1.Pod) error {
	key := pod.Namespace + "/" + pod.Name
	old, known := c.pods[key]
	if !known {
		return nil
	}
	delete(c.pods, key)
	c.scheduler.SchedulingQueue.Delete(logr.Discard(), old)
	if err := c.informers.Core().V1().Pods().Informer().GetIndexer().Delete(old); err != nil {
		return err
	}
	if old.Spec.NodeName == "" {
		return nil
	}
	return c.scheduler.Cache.RemovePod(logr.Discard(), old)
}

// drop takes an object away.
func (c *filterCluster) drop(object runtime.Object) error {
	switch object := object.(type) {
	case *corev1.Node:
		if old, known := c.nodes[object.Name]; known {
			delete(c.nodes, object.Name)
			if err := c.scheduler.Cache.RemoveNode(logr.Discard(), old); err != nil {
				return err
			}
		}
	case *corev1.Pod:
		return c.dropPod(object)
	}
	store, err := c.storeOf(object)
	if err != nil {
		return err
	}
	return store.Delete(object)
}

// storeOf is where the plugins' listers look for objects of a kind.
func (c *filterCluster) storeOf(object runtime.Object) (cache.Store, error) {
	core, storage, resource := c.informers.Core().V1(), c.informers.Storage().V1(), c.informers.Resource().V1()
	switch object.(type) {
	case *corev1.Node:
		return core.Nodes().Informer().GetIndexer(), nil
	case *corev1.Namespace:
		return core.Namespaces().Informer().GetIndexer(), nil
	case *corev1.PersistentVolume:
		return core.PersistentVolumes().Informer().GetIndexer(), nil
	case *corev1.PersistentVolumeClaim:
		return core.PersistentVolumeClaims().Informer().GetIndexer(), nil
	case *corev1.Service:
		return core.Services().Informer().GetIndexer(), nil
	case *storagev1.StorageClass:
		return storage.StorageClasses().Informer().GetIndexer(), nil
	case *storagev1.CSINode:
		return storage.CSINodes().Informer().GetIndexer(), nil
	case *storagev1.CSIDriver:
		return storage.CSIDrivers().Informer().GetIndexer(), nil
	case *storagev1.CSIStorageCapacity:
		return storage.CSIStorageCapacities().Informer().GetIndexer(), nil
	case *storagev1.VolumeAttachment:
		return storage.VolumeAttachments().Informer().GetIndexer(), nil
	case *policyv1.PodDisruptionBudget:
		return c.informers.Policy().V1().PodDisruptionBudgets().Informer().GetIndexer(), nil
	case *resourceapi.DeviceClass:
		return resource.DeviceClasses().Informer().GetIndexer(), nil
	default:
		return nil, fmt.Errorf("no place for objects of type %T", object)
	}
}
