package clients

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	extensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

var widgetKind = schema.GroupVersionKind{Group: "pintle.test", Version: "v1", Kind: "Widget"}

func widgetDefinition() *extensionsv1.CustomResourceDefinition {
	size := extensionsv1.JSONSchemaProps{Type: "integer", Minimum: new(float64), Default: &extensionsv1.JSON{Raw: []byte("3")}}
	spec := extensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]extensionsv1.JSONSchemaProps{"size": size}}
	status := extensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]extensionsv1.JSONSchemaProps{"done": {Type: "boolean"}}}
	root := &extensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]extensionsv1.JSONSchemaProps{"spec": spec, "status": status}}
	return &extensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.pintle.test"},
		Spec: extensionsv1.CustomResourceDefinitionSpec{
			Group: widgetKind.Group, Scope: extensionsv1.NamespaceScoped,
			Names: extensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []extensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema:       &extensionsv1.CustomResourceValidation{OpenAPIV3Schema: root},
				Subresources: &extensionsv1.CustomResourceSubresources{Status: &extensionsv1.CustomResourceSubresourceStatus{}},
			}},
		},
	}
}

func widget(name, namespace string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(widgetKind)
	object.SetName(name)
	object.SetNamespace(namespace)
	return object
}

func startManager(t *testing.T, options ctrl.Options, set func(ctrl.Manager) error) ctrl.Manager {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), extensionsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	options.Scheme = scheme
	options.Metrics = server.Options{BindAddress: "0"}
	manager, err := ctrl.NewManager(config(t, ""), options)
	if err != nil {
		t.Fatal(err)
	}
	if err := set(manager); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended with: %v", err)
		}
	})
	return manager
}

// TestManager runs a controller-runtime manager over built-in kinds: it copies a label of ConfigMaps through its cache.
func TestManager(t *testing.T) {
	clientset := kubernetes.NewForConfigOrDie(config(t, ""))
	ns := namespace(t, clientset)
	manager := startManager(t, ctrl.Options{Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{ns: {}}}}, func(manager ctrl.Manager) error {
		return ctrl.NewControllerManagedBy(manager).Named("copier").For(&corev1.ConfigMap{}).Complete(
			reconcilerFunc(func(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
				var object corev1.ConfigMap
				if err := manager.GetClient().Get(ctx, request.NamespacedName, &object); err != nil {
					return ctrl.Result{}, client.IgnoreNotFound(err)
				}
				if object.Data["value"] == "" || object.Labels["value"] == object.Data["value"] {
					return ctrl.Result{}, nil
				}
				changed := object.DeepCopy()
				changed.Labels = map[string]string{"value": object.Data["value"]}
				return ctrl.Result{}, manager.GetClient().Patch(ctx, changed, client.MergeFrom(&object))
			}))
	})
	if err := manager.GetClient().Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "watched", Namespace: ns}, Data: map[string]string{"value": "seven"},
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the controller has set the label", func() bool {
		seen, err := clientset.CoreV1().ConfigMaps(ns).Get(t.Context(), "watched", metav1.GetOptions{})
		return err == nil && seen.Labels["value"] == "seven"
	})
}

// TestCustomResource installs a definition and reconciles its objects: defaults, status subresource, removal.
func TestCustomResource(t *testing.T) {
	clientset := kubernetes.NewForConfigOrDie(config(t, ""))
	ns := namespace(t, clientset)
	options := envtest.CRDInstallOptions{CRDs: []*extensionsv1.CustomResourceDefinition{widgetDefinition()}, CleanUpAfterUse: true, MaxTime: 20 * time.Second}
	if _, err := envtest.InstallCRDs(config(t, ""), options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := envtest.UninstallCRDs(config(t, ""), options); err != nil {
			t.Errorf("the definition stays: %v", err)
		}
	})
	manager := startManager(t, ctrl.Options{}, func(manager ctrl.Manager) error {
		return ctrl.NewControllerManagedBy(manager).Named("widgets").For(widget("", "")).Complete(
			reconcilerFunc(func(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
				object := widget("", "")
				if err := manager.GetClient().Get(ctx, request.NamespacedName, object); err != nil {
					return ctrl.Result{}, client.IgnoreNotFound(err)
				}
				if done, _, _ := unstructured.NestedBool(object.Object, "status", "done"); done {
					return ctrl.Result{}, nil
				}
				if err := unstructured.SetNestedField(object.Object, true, "status", "done"); err != nil {
					return ctrl.Result{}, err
				}
				return ctrl.Result{}, manager.GetClient().Status().Update(ctx, object)
			}))
	})
	first := widget("first", ns)
	first.Object["spec"] = map[string]any{}
	if err := manager.GetClient().Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if size, _, _ := unstructured.NestedInt64(first.Object, "spec", "size"); size != 3 {
		t.Errorf("the default is %d, not 3", size)
	}
	wrong := widget("wrong", ns)
	wrong.Object["spec"] = map[string]any{"size": int64(-1)}
	if err := manager.GetClient().Create(t.Context(), wrong); !apierrors.IsInvalid(err) {
		t.Errorf("a size below the minimum: %v", err)
	}
	eventually(t, "the controller has set the status", func() bool {
		seen := widget("", "")
		err := manager.GetAPIReader().Get(t.Context(), client.ObjectKeyFromObject(first), seen)
		done, _, _ := unstructured.NestedBool(seen.Object, "status", "done")
		return err == nil && done
	})
}

// TestWebhooks serves admission webhooks on the machine's loopback: one refuses, one adds a label.
func TestWebhooks(t *testing.T) {
	clientset := kubernetes.NewForConfigOrDie(config(t, ""))
	ns := namespace(t, clientset)
	hooks := &envtest.WebhookInstallOptions{
		ValidatingWebhooks: validatingHooks(ns), MutatingWebhooks: mutatingHooks(ns),
	}
	if err := hooks.Install(config(t, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hooks.Cleanup(); err != nil {
			t.Errorf("the webhooks stay: %v", err)
		}
	})
	startManager(t, ctrl.Options{WebhookServer: webhookServer(hooks)}, func(manager ctrl.Manager) error {
		manager.GetWebhookServer().Register("/refuse", &admission.Webhook{Handler: handlerFunc(func(_ context.Context, request admission.Request) admission.Response {
			if request.Name == "refused" {
				return admission.Denied("no such name")
			}
			return admission.Allowed("")
		})})
		manager.GetWebhookServer().Register("/label", &admission.Webhook{Handler: handlerFunc(func(_ context.Context, request admission.Request) admission.Response {
			return admission.Patched("", labelPatch)
		})})
		return nil
	})
	maps := clientset.CoreV1().ConfigMaps(ns)
	eventually(t, "the mutating webhook adds its label", func() bool {
		made, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "labelled-"}}, metav1.CreateOptions{})
		return err == nil && made.Labels["hooked"] == "yes"
	})
	_, err := maps.Create(t.Context(), configMap("refused", ""), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Fatalf("the validating webhook does not refuse: %v", err)
	}
}
