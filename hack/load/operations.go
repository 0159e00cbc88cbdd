package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	protobuf  = "application/vnd.kubernetes.protobuf"
	namespace = "load"
)

// run is one round against one server.
type run struct {
	options    options
	server     *server
	start      time.Duration
	operations map[string]Figures
	memory     map[string]float64
	order      []string
	json, pb   *kubernetes.Clientset
}

func (r *run) client(contentType string) *kubernetes.Clientset {
	config := rest.CopyConfig(r.server.config)
	config.ContentType = contentType
	config.QPS, config.Burst = -1, -1
	config.WarningHandler = rest.NoWarnings{}
	return kubernetes.NewForConfigOrDie(config)
}

// measure does an operation so often with all workers, and notes what one took.
func (r *run) measure(ctx context.Context, name string, count, workers int, do func(ctx context.Context, i int) error) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	latencies := make([]time.Duration, count)
	cpu, begin := r.server.cpu(), time.Now()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < count && failed.Load() == nil; i = int(next.Add(1)) - 1 {
				at := time.Now()
				if err := do(ctx, i); err != nil {
					failed.Store(&err)
					return
				}
				latencies[i] = time.Since(at)
			}
		})
	}
	group.Wait()
	if err := failed.Load(); err != nil {
		return fmt.Errorf("%s: %w", name, *err)
	}
	r.note(name, count, r.server.cpu()-cpu, time.Since(begin), latencies)
	return nil
}

func (r *run) note(name string, count int, cpu, took time.Duration, latencies []time.Duration) {
	sort.Slice(latencies, func(a, b int) bool { return latencies[a] < latencies[b] })
	at := func(share float64) float64 {
		return float64(latencies[min(len(latencies)-1, int(share*float64(len(latencies))))].Microseconds()) / 1000
	}
	r.operations[name] = Figures{
		CPUMicros: float64(cpu.Microseconds()) / float64(count), PerSecond: float64(count) / took.Seconds(), P50: at(0.5), P99: at(0.99),
	}
	r.order = append(r.order, name)
	fmt.Fprintf(os.Stderr, "  %-16s %9.0f µs CPU  %8.0f /s\n", name, r.operations[name].CPUMicros, r.operations[name].PerSecond)
}

func (r *run) all(ctx context.Context) error {
	r.json, r.pb = r.client("application/json"), r.client(protobuf)
	if _, err := r.pb.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	// The service account controller is not part of the measurement.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := r.pb.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return err
	}
	steps := map[string]func(context.Context) error{
		"creates": r.creates, "reads": r.reads, "lists": r.lists, "writes": r.writes, "leases": r.leases, "watches": r.watches, "deletes": r.deletes,
	}
	for name := range strings.SplitSeq(r.options.steps, ",") {
		step, known := steps[name]
		if !known {
			return fmt.Errorf("no step is called %q", name)
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func podName(i int) string { return fmt.Sprintf("pod-%05d", i) }

// pod of about the size that real ones have.
func pod(i int) *corev1.Pod {
	container := func(name string) corev1.Container {
		quantity := resource.MustParse("100m")
		var env []corev1.EnvVar
		for n := range 20 {
			env = append(env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", n), Value: strings.Repeat("value", 8)})
		}
		return corev1.Container{
			Name: name, Image: "registry.example/some/image:v1.2.3", Command: []string{"/bin/server", "--port=8080", "--verbose"}, Env: env,
			Ports:     []corev1.ContainerPort{{Name: name, ContainerPort: 8080}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": quantity}},
		}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: podName(i), Namespace: namespace, Labels: map[string]string{"app": "load", "part": fmt.Sprint(i % 10)}},
		Spec:       corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", i%100), Containers: []corev1.Container{container("main"), container("side")}},
	}
}

func (r *run) creates(ctx context.Context) error {
	half := r.options.pods / 2
	create := func(client *kubernetes.Clientset, from int) func(context.Context, int) error {
		return func(ctx context.Context, i int) error {
			_, err := client.CoreV1().Pods(namespace).Create(ctx, pod(from+i), metav1.CreateOptions{})
			return err
		}
	}
	if err := r.measure(ctx, "create-json", half, r.options.workers, create(r.json, 0)); err != nil {
		return err
	}
	if err := r.measure(ctx, "create-protobuf", r.options.pods-half, r.options.workers, create(r.pb, half)); err != nil {
		return err
	}
	time.Sleep(time.Second)
	r.memory[fmt.Sprintf("with %d pods", r.options.pods)] = r.server.memory()
	return nil
}

func (r *run) reads(ctx context.Context) error {
	for name, client := range map[string]*kubernetes.Clientset{"get-json": r.json, "get-protobuf": r.pb} {
		get := func(ctx context.Context, i int) error {
			_, err := client.CoreV1().Pods(namespace).Get(ctx, podName(i*7%r.options.pods), metav1.GetOptions{})
			return err
		}
		if err := r.measure(ctx, name, 20000, r.options.workers, get); err != nil {
			return err
		}
	}
	sort.Strings(r.order[len(r.order)-2:])
	return nil
}

// discard reads an answer without decoding it, so that the client's own work does not hide the server's.
func (r *run) discard(ctx context.Context, path, accept string) error {
	stream, err := r.json.CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept", accept).Stream(ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	_, err = io.Copy(io.Discard, stream)
	return err
}

func (r *run) lists(ctx context.Context) error {
	path := "/api/v1/namespaces/" + namespace + "/pods"
	for _, list := range []struct{ name, accept string }{
		{"list-json", "application/json"}, {"list-protobuf", protobuf}, {"list-table", "application/json;as=Table;v=v1;g=meta.k8s.io"},
		{"list-metadata", protobuf + ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"},
	} {
		if err := r.measure(ctx, list.name, 12, 2, func(ctx context.Context, _ int) error { return r.discard(ctx, path, list.accept) }); err != nil {
			return err
		}
	}
	return r.measure(ctx, "list-pages", 4, 2, func(ctx context.Context, _ int) error {
		options := metav1.ListOptions{Limit: 500}
		for {
			page, err := r.pb.CoreV1().Pods(namespace).List(ctx, options)
			if err != nil || page.Continue == "" {
				return err
			}
			options.Continue = page.Continue
		}
	})
}

func (r *run) writes(ctx context.Context) error {
	count := min(4000, r.options.pods)
	pods := r.pb.CoreV1().Pods(namespace)
	// Read before, so that only the writes are measured.
	current, err := pods.List(ctx, metav1.ListOptions{Limit: int64(count)})
	if err != nil {
		return err
	}
	if len(current.Items) < count {
		return fmt.Errorf("update-status: there are %d pods of %d; the step creates comes first", len(current.Items), count)
	}
	status := func(ctx context.Context, i int) error {
		changed := &current.Items[i]
		changed.Status.Phase = corev1.PodRunning
		changed.Status.Message = fmt.Sprint("written ", i)
		_, err := pods.UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		return err
	}
	patch := func(kind types.PatchType, body string, options metav1.PatchOptions) func(context.Context, int) error {
		return func(ctx context.Context, i int) error {
			name := podName(i)
			_, err := r.json.CoreV1().Pods(namespace).Patch(ctx, name, kind, fmt.Appendf(nil, body, name, i), options)
			return err
		}
	}
	force := true
	for _, write := range []struct {
		name string
		do   func(context.Context, int) error
	}{
		{"update-status", status},
		{"patch-strategic", patch(types.StrategicMergePatchType, `{"metadata":{"name":"%s","annotations":{"strategic":"%d"}}}`, metav1.PatchOptions{})},
		{"patch-merge", patch(types.MergePatchType, `{"metadata":{"name":"%s","annotations":{"merge":"%d"}}}`, metav1.PatchOptions{})},
		{"apply", patch(types.ApplyPatchType, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s","annotations":{"applied":"%d"}}}`,
			metav1.PatchOptions{FieldManager: "load", Force: &force})},
	} {
		if err := r.measure(ctx, write.name, count, r.options.workers, write.do); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) leases(ctx context.Context) error {
	leases := r.pb.CoordinationV1().Leases(namespace)
	const nodes, rounds = 100, 50
	made := make([]*coordinationv1.Lease, nodes)
	for i := range made {
		holder := fmt.Sprintf("node-%d", i)
		seconds := int32(40)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: holder}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds}}
		var err error
		if made[i], err = leases.Create(ctx, lease, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	var locks [nodes]sync.Mutex
	return r.measure(ctx, "lease-renew", nodes*rounds, r.options.workers, func(ctx context.Context, i int) error {
		n := i % nodes
		locks[n].Lock()
		defer locks[n].Unlock()
		now := metav1.NewMicroTime(time.Now())
		made[n].Spec.RenewTime = &now
		renewed, err := leases.Update(ctx, made[n], metav1.UpdateOptions{})
		if err == nil {
			made[n] = renewed
		}
		return err
	})
}

// changes that the watchers see, of a pod each.
const changes = 400

// watches: all watchers of the pods see every change; an event's cost is that of the changes with watchers less that without.
func (r *run) watches(ctx context.Context) error {
	change := func(ctx context.Context, i int) error {
		body := fmt.Appendf(nil, `{"metadata":{"annotations":{"watched":"%d-%d"}}}`, i, time.Now().UnixNano())
		_, err := r.json.CoreV1().Pods(namespace).Patch(ctx, podName(i), types.MergePatchType, body, metav1.PatchOptions{})
		return err
	}
	alone := r.server.cpu()
	for i := range changes {
		if err := change(ctx, i); err != nil {
			return err
		}
	}
	alone = r.server.cpu() - alone
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	current, err := r.pb.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	var seen, lost atomic.Int64
	var group sync.WaitGroup
	transport, err := rest.TransportFor(r.server.config)
	if err != nil {
		return err
	}
	url := strings.TrimSuffix(r.server.config.Host, "/") + "/api/v1/namespaces/" + namespace + "/pods?watch=1&resourceVersion=" + current.ResourceVersion
	ready := make(chan error, r.options.watchers)
	for range r.options.watchers {
		group.Go(func() {
			request, _ := http.NewRequestWithContext(watching, http.MethodGet, url, nil)
			response, err := transport.RoundTrip(request)
			ready <- err
			if err != nil {
				return
			}
			defer response.Body.Close()
			lines := bufio.NewReaderSize(response.Body, 1<<16)
			for {
				if _, more, err := lines.ReadLine(); err != nil {
					break
				} else if !more {
					seen.Add(1)
				}
			}
			if watching.Err() == nil {
				lost.Add(1)
			}
		})
	}
	for range r.options.watchers {
		if err := <-ready; err != nil {
			return err
		}
	}
	want := int64(changes * r.options.watchers)
	cpu, begin := r.server.cpu(), time.Now()
	latencies := make([]time.Duration, changes)
	for i := range changes {
		at := time.Now()
		if err := change(ctx, i); err != nil {
			return err
		}
		latencies[i] = time.Since(at)
	}
	for deadline := time.Now().Add(30 * time.Second); seen.Load() < want && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	took := time.Since(begin)
	if seen.Load() < want {
		return fmt.Errorf("watch-event: %d of %d events arrived, %d watchers were cut off", seen.Load(), want, lost.Load())
	}
	r.note("watch-event", int(want), max(0, r.server.cpu()-cpu-alone), took, latencies)
	cancel()
	group.Wait()
	return nil
}

func (r *run) deletes(ctx context.Context) error {
	half := r.options.pods / 2
	zero := int64(0)
	remove := func(ctx context.Context, i int) error {
		return r.pb.CoreV1().Pods(namespace).Delete(ctx, podName(i), metav1.DeleteOptions{GracePeriodSeconds: &zero})
	}
	if err := r.measure(ctx, "delete", half, r.options.workers, remove); err != nil {
		return err
	}
	left := r.options.pods - half
	cpu, begin := r.server.cpu(), time.Now()
	if err := r.pb.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.ListOptions{}); err != nil {
		return err
	}
	took := time.Since(begin)
	r.note("deletecollection", left, r.server.cpu()-cpu, took, []time.Duration{took})
	return nil
}
