// Package clients has programs that use a cluster as their authors would: with client-go and controller-runtime.
// KUBECONFIG names the cluster. Every test works in a namespace of its own and removes it.
package clients

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
)

const protobuf = "application/vnd.kubernetes.protobuf"

func config(t *testing.T, contentType string) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatalf("KUBECONFIG: %v", err)
	}
	config.ContentType = contentType
	config.QPS = 200
	config.Burst = 200
	return config
}

// namespace makes a namespace for one test, which goes away with it.
func namespace(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	made, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "clients-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("namespace: %v", err)
	}
	t.Cleanup(func() {
		if err := client.CoreV1().Namespaces().Delete(context.Background(), made.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("namespace %s stays: %v", made.Name, err)
		}
	})
	return made.Name
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value}}
}

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("not within 20 s: %s", what)
}

// TestInformers follows a collection with a shared informer in both encodings: what was there, what comes, changes and goes.
func TestInformers(t *testing.T) {
	for _, contentType := range []string{"application/json", protobuf} {
		t.Run(contentType, func(t *testing.T) {
			client := kubernetes.NewForConfigOrDie(config(t, contentType))
			ns := namespace(t, client)
			maps := client.CoreV1().ConfigMaps(ns)
			if _, err := maps.Create(t.Context(), configMap("before", "1"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(ns))
			informer := factory.Core().V1().ConfigMaps()
			deleted := make(chan string, 10)
			_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
				DeleteFunc: func(object any) { deleted <- object.(*corev1.ConfigMap).Name },
			})
			if err != nil {
				t.Fatal(err)
			}
			factory.StartWithContext(t.Context())
			if !cache.WaitForCacheSync(t.Context().Done(), informer.Informer().HasSynced) {
				t.Fatal("the informer does not sync")
			}
			lister := informer.Lister().ConfigMaps(ns)
			if before, err := lister.Get("before"); err != nil || before.Data["value"] != "1" {
				t.Fatalf("after the sync: %v, %v", before, err)
			}
			made, err := maps.Create(t.Context(), configMap("after", "1"), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			made.Data["value"] = "2"
			if _, err := maps.Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the changed object is in the informer's store", func() bool {
				seen, err := lister.Get("after")
				return err == nil && seen.Data["value"] == "2"
			})
			if err := maps.Delete(t.Context(), "after", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			select {
			case name := <-deleted:
				if name != "after" {
					t.Fatalf("%s was reported as deleted", name)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the deletion is not reported")
			}
		})
	}
}

// TestConflict lets several writers count in one object, each with retry on conflict: no increment may be lost.
func TestConflict(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(config(t, protobuf))
	maps := client.CoreV1().ConfigMaps(namespace(t, client))
	if _, err := maps.Create(t.Context(), configMap("counter", ""), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const writers, rounds = 4, 5
	results := make(chan error, writers)
	for range writers {
		go func() {
			var failed error
			for range rounds {
				backoff := retry.DefaultBackoff
				backoff.Steps = 30
				failed = retry.RetryOnConflict(backoff, func() error {
					current, err := maps.Get(t.Context(), "counter", metav1.GetOptions{})
					if err != nil {
						return err
					}
					current.Data["value"] += "x"
					_, err = maps.Update(t.Context(), current, metav1.UpdateOptions{})
					return err
				})
				if failed != nil {
					break
				}
			}
			results <- failed
		}()
	}
	for range writers {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	counter, err := maps.Get(t.Context(), "counter", metav1.GetOptions{})
	if err != nil || len(counter.Data["value"]) != writers*rounds {
		t.Fatalf("%d increments are left of %d (%v)", len(counter.Data["value"]), writers*rounds, err)
	}
}

// TestDynamic goes through a resource's life without its Go type, with a watch beside it.
func TestDynamic(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(config(t, protobuf))
	ns := namespace(t, client)
	deployments := dynamic.NewForConfigOrDie(config(t, "")).
		Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).Namespace(ns)
	labels := map[string]any{"app": "web"}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "web", "labels": labels},
		"spec": map[string]any{
			"replicas": int64(0), "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "web", "image": "web:1"}}},
			},
		},
	}}
	events, err := deployments.Watch(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	made, err := deployments.Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if strategy, _, _ := unstructured.NestedString(made.Object, "spec", "strategy", "type"); strategy != "RollingUpdate" {
		t.Errorf("no default for the strategy: %q", strategy)
	}
	patched, err := deployments.Patch(t.Context(), "web", "application/merge-patch+json", []byte(`{"spec":{"paused":true}}`), metav1.PatchOptions{})
	if err != nil || patched.GetGeneration() != 2 {
		t.Fatalf("generation %d after the patch (%v)", patched.GetGeneration(), err)
	}
	if err := deployments.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	timeout := time.After(20 * time.Second)
	for want := watch.Added; ; {
		select {
		case event := <-events.ResultChan():
			if event.Type == watch.Deleted {
				return
			}
			if want == watch.Added && event.Type != want {
				t.Fatalf("%s comes before ADDED", event.Type)
			}
			want = watch.Modified
		case <-timeout:
			t.Fatal("the watch does not report the deletion")
		}
	}
}

// TestApply owns fields by server-side apply: a second manager is refused, then forces its way.
func TestApply(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(config(t, ""))
	ns := namespace(t, client)
	maps := client.CoreV1().ConfigMaps(ns)
	wanted := func(value string) *applycore.ConfigMapApplyConfiguration {
		return applycore.ConfigMap("applied", ns).WithData(map[string]string{"value": value})
	}
	if _, err := maps.Apply(t.Context(), wanted("one"), metav1.ApplyOptions{FieldManager: "one"}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Apply(t.Context(), wanted("two"), metav1.ApplyOptions{FieldManager: "two"}); err == nil {
		t.Fatal("a second manager takes a field without force")
	}
	forced, err := maps.Apply(t.Context(), wanted("two"), metav1.ApplyOptions{FieldManager: "two", Force: true})
	if err != nil || forced.Data["value"] != "two" {
		t.Fatalf("forced: %v, %v", forced, err)
	}
}

// TestLeaderElection lets three candidates run for one lease: one leads, and when it steps down another does.
func TestLeaderElection(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(config(t, protobuf))
	ns := namespace(t, client)
	leading := make(chan string, 10)
	stop := map[string]context.CancelFunc{}
	for i := range 3 {
		name := fmt.Sprintf("candidate-%d", i)
		ctx, cancel := context.WithCancel(t.Context())
		stop[name] = cancel
		lock := &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Name: "leader", Namespace: ns}, Client: client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name},
		}
		go leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock, ReleaseOnCancel: true, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) { leading <- name; <-ctx.Done() },
				OnStoppedLeading: func() {},
			},
		})
	}
	previous := ""
	for range 2 {
		select {
		case name := <-leading:
			if name == previous {
				t.Fatalf("%s leads again", name)
			}
			previous = name
			stop[name]()
		case <-time.After(20 * time.Second):
			t.Fatal("nobody leads")
		}
	}
	for _, cancel := range stop {
		cancel()
	}
}
