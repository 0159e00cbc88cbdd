//! The table of all resources that deviate, one row each.

use std::time::Duration;

use super::core::prepare;
use super::fields::{event_field, job_field, node_field, pod_field, replicas_field};
use super::{Generation, Metadata, Rules, cells, columns, names, validate};

const NONE: Rules = Rules::NONE;
/// Named after what the server shows of them only.
const fn shown(columns: &'static [super::Column], cells: Cells) -> Rules {
    Rules { columns, cells: Some(cells), ..NONE }
}

type Cells = fn(&serde_json::Value, jiff::Timestamp) -> Vec<serde_json::Value>;

/// Events are kept for so long.
const EVENT_TTL: Duration = Duration::from_secs(3600);

const APPS: &str = "apps";
const RBAC: &str = "rbac.authorization.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const NETWORK: &str = "networking.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
const FLOW: &str = "flowcontrol.apiserver.k8s.io";
const CERTIFICATES: &str = "certificates.k8s.io";

/// (group, resource, rules).
pub static TABLE: &[(&str, &str, Rules)] = &[
    (
        "",
        "pods",
        Rules {
            warnings: Some(validate::warnings::pod),
            disabled: &[
                ("DRANodeAllocatableResources", "status.nodeAllocatableResourceClaimStatuses"),
                ("CSIVolumeHealth", "status.volumeHealth"),
            ],
            renames: true,
            reset_by_status: &["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"],
            pod_spec: Some("spec"),
            validate_create: Some(validate::pod::create),
            validate_update: Some(validate::pod::update),
            prepare_create: Some(prepare::pod_create),
            prepare_update: Some(prepare::pod_update),
            fields: &[
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "spec.hostNetwork",
                "status.phase",
                "status.podIP",
                "status.podIPs",
                "status.nominatedNodeName",
            ],
            field_value: Some(pod_field),
            generation: Generation::Counted(&[]),
            ..shown(columns::PODS, cells::pods)
        },
    ),
    (
        "",
        "podtemplates",
        Rules {
            pod_spec: Some("template.spec"),
            validate_create: Some(validate::config::pod_template),
            validate_update: Some(validate::config::pod_template_update),
            generation: Generation::Counted(&[]),
            ..shown(columns::PODTEMPLATES, cells::podtemplates)
        },
    ),
    (
        "",
        "replicationcontrollers",
        Rules {
            warnings: Some(validate::warnings::workload),
            pod_spec: Some("spec.template.spec"),
            warns_late: true,
            names_itself: true,
            validate_create: Some(validate::workload::replication_controller),
            validate_update: Some(validate::workload::replication_controller_update),
            fields: &["status.replicas"],
            field_value: Some(replicas_field),
            generation: Generation::Counted(&[]),
            ..shown(columns::REPLICATIONCONTROLLERS, cells::replicationcontrollers)
        },
    ),
    (
        "",
        "services",
        Rules {
            created_by_update: true,
            validate_create: Some(validate::network::service),
            warnings: Some(validate::network::service_warnings),
            validate_update: Some(validate::network::service_update),
            prepare_update: Some(crate::services::update),
            complete: Some(crate::services::complete),
            validate_name: Some(names::label),
            fields: &["spec.clusterIP", "spec.type"],
            ..shown(columns::SERVICES, cells::services)
        },
    ),
    (
        "",
        "endpoints",
        Rules {
            created_by_update: true,
            renames: true,
            validate_create: Some(validate::endpoint_slice::endpoints),
            validate_update: Some(validate::endpoint_slice::endpoints_update),
            ..shown(columns::ENDPOINTS, cells::endpoints)
        },
    ),
    (
        "",
        "nodes",
        Rules {
            renames: true,
            keeps_status: true,
            disabled: &[
                ("", "spec.configSource"),
                ("InPlacePodVerticalScalingSchedulerPreemption", "spec.podPreemptionPolicy"),
                ("", "status.config"),
            ],
            warnings: Some(validate::warnings::node),
            validate_create: Some(validate::config::node),
            validate_update: Some(validate::config::node_update),
            fields: &["spec.unschedulable"],
            field_value: Some(node_field),
            ..shown(columns::NODES, cells::nodes)
        },
    ),
    (
        "",
        "namespaces",
        Rules {
            validate_update: Some(validate::config::namespace_update),
            complete: Some(prepare::namespace_complete),
            renames: true,
            spec_finalizers: true,
            prepare_create: Some(prepare::namespace_create),
            prepare_update: Some(prepare::namespace_update),
            validate_name: Some(names::label),
            fields: &["status.phase"],
            ..shown(columns::NAMESPACES, cells::namespaces)
        },
    ),
    (
        "",
        "events",
        Rules {
            created_by_update: true,
            ttl: Some(EVENT_TTL),
            metadata: Metadata::Alone,
            validate_name: Some(names::path_segment),
            free_finalizers: true,
            validate_create: Some(validate::events::core),
            validate_update: Some(validate::events::core_update),
            fields: &[
                "involvedObject.kind",
                "involvedObject.namespace",
                "involvedObject.name",
                "involvedObject.uid",
                "involvedObject.apiVersion",
                "involvedObject.resourceVersion",
                "involvedObject.fieldPath",
                "reason",
                "reportingComponent",
                "source",
                "type",
            ],
            field_value: Some(event_field),
            ..shown(columns::EVENTS, cells::events)
        },
    ),
    (
        "events.k8s.io",
        "events",
        Rules {
            created_by_update: true,
            ttl: Some(EVENT_TTL),
            metadata: Metadata::Among,
            validate_create: Some(validate::events::newer),
            validate_update: Some(validate::events::newer_update),
            field_aliases: &[
                ("regarding.kind", "involvedObject.kind"),
                ("regarding.namespace", "involvedObject.namespace"),
                ("regarding.name", "involvedObject.name"),
                ("regarding.uid", "involvedObject.uid"),
                ("regarding.apiVersion", "involvedObject.apiVersion"),
                ("regarding.resourceVersion", "involvedObject.resourceVersion"),
                ("regarding.fieldPath", "involvedObject.fieldPath"),
                ("reason", "reason"),
                ("reportingController", "reportingComponent"),
                ("type", "type"),
            ],
            ..shown(columns::EVENTS, cells::events)
        },
    ),
    (
        "",
        "secrets",
        Rules {
            renames: true,
            validate_create: Some(validate::config::secret),
            warnings: Some(validate::warnings::secret),
            validate_update: Some(validate::config::secret_update),
            prepare_update: Some(prepare::secret_update),
            fields: &["type"],
            ..shown(columns::SECRETS, cells::secrets)
        },
    ),
    (
        "",
        "configmaps",
        Rules {
            renames: true,
            validate_create: Some(validate::config::config_map),
            validate_update: Some(validate::config::config_map_update),
            ..shown(columns::CONFIGMAPS, cells::configmaps)
        },
    ),
    (
        "",
        "serviceaccounts",
        Rules {
            prepare_create: Some(prepare::account_create),
            prepare_update: Some(prepare::account_update),
            renames: true,
            warnings: Some(validate::warnings::service_account),
            ..shown(columns::SERVICEACCOUNTS, cells::name_and_age)
        },
    ),
    (
        "",
        "limitranges",
        Rules {
            prepare_create: Some(prepare::limit_range_create),
            created_by_update: true,
            renames: true,
            validate_create: Some(validate::limit_range::limit_range),
            validate_update: Some(validate::limit_range::limit_range_update),
            ..NONE
        },
    ),
    (
        "",
        "resourcequotas",
        Rules {
            validate_create: Some(validate::quota::quota),
            warnings: Some(validate::warnings::quota),
            validate_update: Some(validate::quota::quota_update),
            ..shown(columns::RESOURCEQUOTAS, cells::resourcequotas)
        },
    ),
    (
        "",
        "persistentvolumes",
        Rules {
            warnings: Some(validate::warnings::volume),
            renames: true,
            validate_create: Some(validate::storage::volume),
            validate_update: Some(validate::storage::volume_update),
            prepare_create: Some(prepare::volume_create),
            prepare_update: Some(prepare::volume_update),
            ..shown(columns::PERSISTENTVOLUMES, cells::persistentvolumes)
        },
    ),
    (
        "",
        "persistentvolumeclaims",
        Rules {
            renames: true,
            disabled: &[("CSIVolumeHealth", "status.healthStatus")],
            validate_create: Some(validate::storage::claim),
            validate_update: Some(validate::storage::claim_update),
            warnings: Some(validate::warnings::claim),
            prepare_create: Some(prepare::claim_create),
            prepare_update: Some(prepare::claim_update),
            ..shown(columns::PERSISTENTVOLUMECLAIMS, cells::persistentvolumeclaims)
        },
    ),
    (
        APPS,
        "deployments",
        Rules {
            warnings: Some(validate::warnings::workload),
            reset_by_status: &["spec", "metadata.labels"],
            pod_spec: Some("spec.template.spec"),
            validate_create: Some(validate::workload::deployment),
            validate_update: Some(validate::workload::deployment_update),
            generation: Generation::Counted(&["annotations"]),
            ..shown(columns::DEPLOYMENTS, cells::deployments)
        },
    ),
    (
        APPS,
        "replicasets",
        Rules {
            warnings: Some(validate::warnings::workload),
            pod_spec: Some("spec.template.spec"),
            validate_create: Some(validate::workload::replica_set),
            validate_update: Some(validate::workload::replica_set_update),
            field_value: Some(replicas_field),
            generation: Generation::Counted(&[]),
            ..shown(columns::REPLICASETS, cells::replicasets)
        },
    ),
    (
        APPS,
        "daemonsets",
        Rules {
            pod_spec: Some("spec.template.spec"),
            validate_create: Some(validate::workload::daemon_set),
            validate_update: Some(validate::workload::daemon_set_update),
            prepare_create: Some(prepare::daemon_set_create),
            prepare_update: Some(prepare::daemon_set_update),
            generation: Generation::Counted(&[]),
            ..shown(columns::DAEMONSETS, cells::daemonsets)
        },
    ),
    (
        APPS,
        "statefulsets",
        Rules {
            warnings: Some(validate::warnings::stateful_set),
            validate_name: Some(names::label),
            pod_spec: Some("spec.template.spec"),
            validate_create: Some(validate::workload::stateful_set),
            validate_update: Some(validate::workload::stateful_set_update),
            generation: Generation::Counted(&[]),
            ..shown(columns::STATEFULSETS, cells::statefulsets)
        },
    ),
    (
        APPS,
        "controllerrevisions",
        Rules {
            renames: true,
            validate_create: Some(validate::config::revision),
            validate_update: Some(validate::config::revision_update),
            ..shown(columns::CONTROLLERREVISIONS, cells::controllerrevisions)
        },
    ),
    (
        "batch",
        "jobs",
        Rules {
            warnings: Some(validate::warnings::workload),
            disabled: &[("WorkloadWithJob", "spec.scheduling")],
            complete: Some(prepare::job_complete),
            pod_spec: Some("spec.template.spec"),
            validate_create: Some(validate::job::job),
            validate_update: Some(validate::job::job_update),
            prepare_create: Some(prepare::job_create),
            fields: &["status.successful"],
            field_value: Some(job_field),
            generation: Generation::Counted(&[]),
            ..shown(columns::JOBS, cells::jobs)
        },
    ),
    (
        "batch",
        "cronjobs",
        Rules {
            warnings: Some(validate::warnings::workload),
            disabled: &[("WorkloadWithJob", "spec.jobTemplate.spec.scheduling")],
            pod_spec: Some("spec.jobTemplate.spec.template.spec"),
            validate_create: Some(validate::job::cron_job),
            validate_update: Some(validate::job::cron_job_update),
            validate_name: Some(names::cron_job),
            generation: Generation::Counted(&[]),
            ..shown(columns::CRONJOBS, cells::cronjobs)
        },
    ),
    (
        "autoscaling",
        "horizontalpodautoscalers",
        Rules {
            validate_create: Some(validate::autoscaling::autoscaler),
            validate_update: Some(validate::autoscaling::autoscaler_update),
            generation: Generation::Counted(&[]),
            ..shown(columns::HORIZONTALPODAUTOSCALERS, cells::horizontalpodautoscalers)
        },
    ),
    (
        "policy",
        "poddisruptionbudgets",
        Rules {
            metadata: Metadata::Alone,
            validate_name: Some(names::path_segment),
            free_finalizers: true,
            validate_create: Some(validate::workload::budget),
            validate_update: Some(validate::workload::budget_update),
            versioned_update: true,
            generation: Generation::Counted(&[]),
            ..shown(columns::PODDISRUPTIONBUDGETS, cells::poddisruptionbudgets)
        },
    ),
    (
        "discovery.k8s.io",
        "endpointslices",
        Rules {
            disabled: &[("", "endpoints[].deprecatedTopology")],
            renames: true,
            validate_create: Some(validate::endpoint_slice::create),
            warnings: Some(validate::endpoint_slice::warnings),
            validate_update: Some(validate::endpoint_slice::update),
            generation: Generation::Counted(&["labels"]),
            ..shown(columns::ENDPOINTSLICES, cells::endpointslices)
        },
    ),
    (
        NETWORK,
        "ingresses",
        Rules {
            renames: true,
            validate_create: Some(validate::ingress::create),
            warnings: Some(validate::ingress::warnings),
            validate_update: Some(validate::ingress::update),
            generation: Generation::Counted(&[]),
            ..shown(columns::INGRESSES, cells::ingresses)
        },
    ),
    (
        NETWORK,
        "ingressclasses",
        Rules {
            renames: true,
            validate_create: Some(validate::cluster::ingress_class),
            validate_update: Some(validate::cluster::ingress_class_update),
            generation: Generation::Counted(&[]),
            ..shown(columns::INGRESSCLASSES, cells::ingressclasses)
        },
    ),
    (
        NETWORK,
        "networkpolicies",
        Rules {
            validate_create: Some(validate::network_policy::create),
            validate_update: Some(validate::network_policy::update),
            generation: Generation::Counted(&[]),
            ..shown(columns::NETWORKPOLICIES, cells::networkpolicies)
        },
    ),
    (
        NETWORK,
        "ipaddresses",
        Rules {
            generates_prefix: true,
            renames: true,
            validate_create: Some(validate::addresses::address),
            validate_update: Some(validate::addresses::address_update),
            validate_name: Some(names::ip_address),
            ..shown(columns::IPADDRESSES, cells::ipaddresses)
        },
    ),
    (
        NETWORK,
        "servicecidrs",
        Rules {
            reset_by_status: &["spec", "metadata"],
            validate_create: Some(validate::addresses::range),
            validate_update: Some(validate::addresses::range_update),
            ..shown(columns::SERVICECIDRS, cells::servicecidrs)
        },
    ),
    (
        "coordination.k8s.io",
        "leases",
        Rules {
            created_by_update: true,
            free_finalizers: true,
            disabled: &[
                ("CoordinatedLeaderElection", "spec.strategy"),
                ("CoordinatedLeaderElection", "spec.preferredHolder"),
            ],
            validate_create: Some(validate::config::lease),
            validate_update: Some(validate::config::lease_update),
            versioned_update: true,
            ..shown(columns::LEASES, cells::leases)
        },
    ),
    (
        "scheduling.k8s.io",
        "priorityclasses",
        Rules {
            created_by_update: true,
            validate_create: Some(validate::config::priority_class),
            validate_update: Some(validate::config::priority_class_update),
            generation: Generation::First,
            ..shown(columns::PRIORITYCLASSES, cells::priorityclasses)
        },
    ),
    (
        "node.k8s.io",
        "runtimeclasses",
        Rules {
            created_by_update: true,
            free_finalizers: true,
            renames: true,
            validate_create: Some(validate::cluster::runtime_class),
            validate_update: Some(validate::cluster::runtime_class_update),
            versioned_update: true,
            ..shown(columns::RUNTIMECLASSES, cells::runtimeclasses)
        },
    ),
    (
        STORAGE,
        "storageclasses",
        Rules {
            renames: true,
            validate_create: Some(validate::classes::storage_class),
            validate_update: Some(validate::classes::storage_class_update),
            ..shown(columns::STORAGECLASSES, cells::storageclasses)
        },
    ),
    (
        STORAGE,
        "volumeattributesclasses",
        Rules {
            renames: true,
            validate_create: Some(validate::classes::attributes_class),
            validate_update: Some(validate::classes::attributes_class_update),
            ..shown(columns::VOLUMEATTRIBUTESCLASSES, cells::volumeattributesclasses)
        },
    ),
    (
        STORAGE,
        "volumeattachments",
        Rules {
            renames: true,
            reset_by_status: &["spec", "metadata"],
            validate_create: Some(validate::attachment::attachment),
            validate_update: Some(validate::attachment::attachment_update),
            prepare_create: Some(prepare::attachment_create),
            versioned_update: true,
            ..shown(columns::VOLUMEATTACHMENTS, cells::volumeattachments)
        },
    ),
    (
        STORAGE,
        "csinodes",
        Rules {
            reset_by_status: &["spec", "metadata"],
            renames: true,
            disabled: &[("CSIVolumeHealth", "status.storageHealth")],
            validate_create: Some(validate::classes::node),
            validate_update: Some(validate::classes::node_update),
            versioned_update: true,
            ..shown(columns::CSINODES, cells::csinodes)
        },
    ),
    (
        STORAGE,
        "csidrivers",
        Rules {
            generation: Generation::Later,
            validate_create: Some(validate::classes::driver),
            validate_update: Some(validate::classes::driver_update),
            warnings: Some(validate::classes::driver_warnings),
            versioned_update: true,
            ..shown(columns::CSIDRIVERS, cells::csidrivers)
        },
    ),
    (
        STORAGE,
        "csistoragecapacities",
        Rules {
            renames: true,
            validate_create: Some(validate::classes::capacity),
            validate_update: Some(validate::classes::capacity_update),
            versioned_update: true,
            ..NONE
        },
    ),
    (
        RBAC,
        "roles",
        Rules {
            created_by_update: true,
            validate_create: Some(validate::access::role),
            validate_update: Some(validate::access::role_update),
            validate_name: Some(names::path_segment),
            ..NONE
        },
    ),
    (
        RBAC,
        "clusterroles",
        Rules {
            created_by_update: true,
            validate_create: Some(validate::access::cluster_role),
            validate_update: Some(validate::access::cluster_role_update),
            validate_name: Some(names::path_segment),
            ..NONE
        },
    ),
    (
        RBAC,
        "rolebindings",
        Rules {
            created_by_update: true,
            validate_create: Some(validate::access::binding),
            validate_update: Some(validate::access::binding_update),
            validate_name: Some(names::path_segment),
            ..shown(columns::ROLEBINDINGS, cells::rolebindings)
        },
    ),
    (
        RBAC,
        "clusterrolebindings",
        Rules {
            created_by_update: true,
            validate_create: Some(validate::access::binding),
            validate_update: Some(validate::access::binding_update),
            validate_name: Some(names::path_segment),
            ..shown(columns::CLUSTERROLEBINDINGS, cells::rolebindings)
        },
    ),
    (
        CERTIFICATES,
        "certificatesigningrequests",
        Rules {
            validate_name: Some(names::path_segment),
            reset_by_main: &["spec"],
            validate_create: Some(validate::certificates::request),
            validate_update: Some(validate::certificates::request_update),
            prepare_update: Some(prepare::request_update),
            fields: &["spec.signerName"],
            ..shown(columns::CERTIFICATESIGNINGREQUESTS, cells::certificatesigningrequests)
        },
    ),
    (
        CERTIFICATES,
        "clustertrustbundles",
        Rules {
            renames: true,
            validate_create: Some(validate::trust::bundle),
            validate_update: Some(validate::trust::bundle_update),
            validate_name: Some(validate::trust::bundle_name),
            fields: &["spec.signerName"],
            versioned_update: true,
            ..shown(columns::CLUSTERTRUSTBUNDLES, cells::clustertrustbundles)
        },
    ),
    (
        ADMISSION,
        "validatingwebhookconfigurations",
        Rules {
            free_finalizers: true,
            renames: true,
            validate_create: Some(validate::webhooks::configuration),
            validate_update: Some(validate::webhooks::configuration_update),
            generation: Generation::Counted(&[]),
            versioned_update: true,
            ..shown(columns::VALIDATINGWEBHOOKCONFIGURATIONS, cells::webhookconfigurations)
        },
    ),
    (
        ADMISSION,
        "mutatingwebhookconfigurations",
        Rules {
            free_finalizers: true,
            renames: true,
            validate_create: Some(validate::webhooks::configuration),
            validate_update: Some(validate::webhooks::configuration_update),
            generation: Generation::Counted(&[]),
            versioned_update: true,
            ..shown(columns::MUTATINGWEBHOOKCONFIGURATIONS, cells::webhookconfigurations)
        },
    ),
    (
        ADMISSION,
        "validatingadmissionpolicies",
        Rules {
            reset_by_status: &["spec", "metadata"],
            free_finalizers: true,
            renames: true,
            validate_create: Some(validate::policies::validating),
            validate_update: Some(validate::policies::validating_update),
            generation: Generation::Counted(&[]),
            versioned_update: true,
            ..shown(columns::VALIDATINGADMISSIONPOLICIES, cells::validatingadmissionpolicies)
        },
    ),
    (
        ADMISSION,
        "mutatingadmissionpolicies",
        Rules {
            free_finalizers: true,
            renames: true,
            validate_create: Some(validate::policies::mutating),
            validate_update: Some(validate::policies::mutating_update),
            generation: Generation::Counted(&[]),
            versioned_update: true,
            ..shown(columns::MUTATINGADMISSIONPOLICIES, cells::mutatingadmissionpolicies)
        },
    ),
    (
        ADMISSION,
        "validatingadmissionpolicybindings",
        Rules {
            free_finalizers: true,
            renames: true,
            validate_create: Some(validate::policies::validating_binding),
            validate_update: Some(validate::policies::validating_binding_update),
            generation: Generation::Counted(&[]),
            versioned_update: true,
            ..shown(columns::VALIDATINGADMISSIONPOLICYBINDINGS, cells::admissionpolicybindings)
        },
    ),
    (
        ADMISSION,
        "mutatingadmissionpolicybindings",
        Rules {
            free_finalizers: true,
            renames: true,
            validate_create: Some(validate::policies::mutating_binding),
            validate_update: Some(validate::policies::mutating_binding_update),
            generation: Generation::Counted(&[]),
            versioned_update: true,
            ..shown(columns::MUTATINGADMISSIONPOLICYBINDINGS, cells::admissionpolicybindings)
        },
    ),
    (
        FLOW,
        "flowschemas",
        Rules {
            renames: true,
            reset_by_status: &["spec", "metadata", "metadata.generateName"],
            validate_create: Some(validate::flow::schema),
            validate_update: Some(validate::flow::schema_update),
            generation: Generation::Counted(&[]),
            ..shown(columns::FLOWSCHEMAS, cells::flowschemas)
        },
    ),
    (
        FLOW,
        "prioritylevelconfigurations",
        Rules {
            renames: true,
            reset_by_status: &["spec", "metadata", "metadata.generateName"],
            validate_create: Some(validate::flow::level),
            validate_update: Some(validate::flow::level_update),
            generation: Generation::Counted(&[]),
            ..shown(columns::PRIORITYLEVELCONFIGURATIONS, cells::prioritylevelconfigurations)
        },
    ),
    (
        "apiregistration.k8s.io",
        "apiservices",
        Rules {
            free_finalizers: true,
            renames: true,
            reset_by_status: &["spec", "metadata"],
            versioned_update: true,
            validate_create: Some(validate::cluster::api_service),
            validate_update: Some(validate::cluster::api_service_update),
            prepare_create: Some(prepare::api_service_create),
            validate_name: Some(validate::cluster::api_service_name),
            tells_again: true,
            ..shown(columns::APISERVICES, cells::apiservices)
        },
    ),
    (
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        Rules {
            validate_create: Some(validate::definitions::definition),
            validate_update: Some(validate::definitions::definition_update),
            validate_name: Some(validate::definitions::definition_name),
            deletion_finalizer: Some(crate::custom::controller::FINALIZER),
            tells_again: true,
            prepare_create: Some(prepare::definition_create),
            prepare_update: Some(prepare::definition_update),
            generation: Generation::Counted(&[]),
            versioned_update: true,
            free_finalizers: true,
            ..shown(columns::CUSTOMRESOURCEDEFINITIONS, cells::customresourcedefinitions)
        },
    ),
    (
        "resource.k8s.io",
        "deviceclasses",
        Rules {
            validate_create: Some(validate::devices::class),
            validate_update: Some(validate::devices::class_update),
            generation: Generation::Counted(&[]),
            ..shown(columns::DEVICECLASSES, cells::name_and_age)
        },
    ),
    (
        "resource.k8s.io",
        "devicetaintrules",
        Rules {
            reset_by_status: &["spec", "metadata"],
            validate_create: Some(validate::devices::taint_rule),
            validate_update: Some(validate::devices::taint_rule_update),
            prepare_update: Some(validate::devices::taint_rule_prepare),
            generation: Generation::Counted(&[]),
            versioned_update: true,
            ..shown(columns::DEVICETAINTRULES, cells::devicetaintrules)
        },
    ),
    (
        CERTIFICATES,
        "podcertificaterequests",
        Rules {
            validate_create: Some(validate::pod_certificate::request),
            validate_update: Some(validate::pod_certificate::request_update),
            fields: &["spec.nodeName", "spec.podName", "spec.signerName"],
            versioned_update: true,
            ..NONE
        },
    ),
    (
        "resource.k8s.io",
        "resourceclaims",
        Rules {
            reset_by_status: &["spec", "metadata"],
            disabled: &[
                ("DRADerivedAttributes", "spec.devices.requests[].exactly.derivedAttributes"),
                ("DRADerivedAttributes", "spec.devices.requests[].firstAvailable[].derivedAttributes"),
            ],
            renames: true,
            validate_create: Some(validate::claims::claim),
            validate_update: Some(validate::claims::claim_update),
            ..shown(columns::RESOURCECLAIMS, cells::resourceclaims)
        },
    ),
    (
        "resource.k8s.io",
        "resourceclaimtemplates",
        Rules {
            disabled: &[
                ("DRADerivedAttributes", "spec.spec.devices.requests[].exactly.derivedAttributes"),
                ("DRADerivedAttributes", "spec.spec.devices.requests[].firstAvailable[].derivedAttributes"),
            ],
            renames: true,
            validate_create: Some(validate::claims::template),
            validate_update: Some(validate::claims::template_update),
            ..shown(columns::RESOURCECLAIMTEMPLATES, cells::name_and_age)
        },
    ),
    (
        "storagemigration.k8s.io",
        "storageversionmigrations",
        Rules {
            renames: true,
            reset_by_status: &["spec", "metadata"],
            validate_create: Some(validate::trust::migration),
            versioned_update: true,
            validate_update: Some(validate::trust::migration_update),
            ..shown(columns::STORAGEVERSIONMIGRATIONS, cells::storageversionmigrations)
        },
    ),
    (
        "resource.k8s.io",
        "resourceslices",
        Rules {
            disabled: &[
                ("DRAOptionalNodeOperations", "spec.skipNodeOperations"),
                ("DRAPartitionableDevicesType", "spec.partitionTypeAttribute"),
                ("DRANodeAllocatableResources", "spec.devices[].nodeAllocatableResources"),
                ("DRAListTypeAttributes", "spec.devices[].attributes{}.ints"),
                ("DRAListTypeAttributes", "spec.devices[].attributes{}.bools"),
                ("DRAListTypeAttributes", "spec.devices[].attributes{}.strings"),
                ("DRAListTypeAttributes", "spec.devices[].attributes{}.versions"),
            ],
            validate_create: Some(validate::devices::slice),
            validate_update: Some(validate::devices::slice_update),
            fields: &["spec.nodeName", "spec.driver"],
            generation: Generation::Counted(&[]),
            ..shown(columns::RESOURCESLICES, cells::resourceslices)
        },
    ),
];
