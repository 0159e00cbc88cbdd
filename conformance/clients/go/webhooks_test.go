package clients

import (
	"context"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

type reconcilerFunc func(context.Context, ctrl.Request) (ctrl.Result, error)

func (f reconcilerFunc) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return f(ctx, request)
}

type handlerFunc func(context.Context, admission.Request) admission.Response

func (f handlerFunc) Handle(ctx context.Context, request admission.Request) admission.Response {
	return f(ctx, request)
}

var labelPatch = jsonpatch.NewOperation("add", "/metadata/labels", map[string]string{"hooked": "yes"})

func webhookServer(hooks *envtest.WebhookInstallOptions) webhook.Server {
	return webhook.NewServer(webhook.Options{
		Host: hooks.LocalServingHost, Port: hooks.LocalServingPort, CertDir: hooks.LocalServingCertDir,
	})
}

var (
	noSideEffects = admissionv1.SideEffectClassNone
	configMapRule = []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}}
)

func only(namespace string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}}
}

func service(path string) admissionv1.WebhookClientConfig {
	return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Name: "hooks", Namespace: "default", Path: &path}}
}

func validatingHooks(namespace string) []*admissionv1.ValidatingWebhookConfiguration {
	return []*admissionv1.ValidatingWebhookConfiguration{{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "refuse.pintle.test", Rules: configMapRule, NamespaceSelector: only(namespace), ClientConfig: service("/refuse"),
			SideEffects: &noSideEffects, AdmissionReviewVersions: []string{"v1"},
		}},
	}}
}

func mutatingHooks(namespace string) []*admissionv1.MutatingWebhookConfiguration {
	return []*admissionv1.MutatingWebhookConfiguration{{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionv1.MutatingWebhook{{
			Name: "label.pintle.test", Rules: configMapRule, NamespaceSelector: only(namespace), ClientConfig: service("/label"),
			SideEffects: &noSideEffects, AdmissionReviewVersions: []string{"v1"},
		}},
	}}
}
