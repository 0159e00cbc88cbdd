//! The columns of `kubectl get`, as upstream's server heads them. Made from its answers; cells are in `cells`.

use super::Column;

pub(super) const ABOUT_NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
pub(super) const ABOUT_AGE: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const ABOUT_LAST_SEEN: &str = "The time at which the most recent occurrence of this event was recorded.";
const ABOUT_TYPE: &str = "Type of this event (Normal, Warning), new types could be added in the future";
const ABOUT_REASON: &str = "This should be a short, machine understandable string that gives the reason for the transition into the object's current status.";
const ABOUT_OBJECT: &str = "The object that this event is about.";
const ABOUT_SUBOBJECT: &str = "If referring to a piece of an object instead of an entire object, this string should contain a valid JSON/Go field access statement, such as desiredState.manifest.containers[2]. For example, if the object reference is to a container within a pod, this would take on a value like: \"spec.containers{name}\" (where \"name\" refers to the name of the container that triggered the event) or if no container name is specified \"spec.containers[2]\" (container with index 2 in this pod). This syntax is chosen only to have some well-defined way of referencing a part of an object.";
const ABOUT_SOURCE: &str = "The component reporting this event. Should be a short machine understandable string.";
const ABOUT_MESSAGE: &str = "A human-readable description of the status of this operation.";
const ABOUT_FIRST_SEEN: &str =
    "The time at which the event was first recorded. (Time of server receipt is in TypeMeta.)";
const ABOUT_COUNT: &str = "The number of times this event has occurred.";
const ABOUT_INTERNAL_IP: &str = "List of addresses reachable to the node. Queried from cloud provider, if available. More info: https://kubernetes.io/docs/reference/node/node-status/#addresses Note: This field is declared as mergeable, but the merge key is not sufficiently unique, which can cause data corruption when it is merged. Callers should instead use a full-replacement patch. See https://pr.k8s.io/79391 for an example. Consumers should assume that addresses can change during the lifetime of a Node. However, there are some exceptions where this may not be possible, such as Pods that inherit a Node's address in its own status or consumers of the downward API (status.hostIP).";
const ABOUT_CONTAINERS: &str = "Names of each container in the template.";
const ABOUT_IMAGES: &str = "Images referenced by each container in the template.";
const ABOUT_PARAMKIND: &str = "ParamKind specifies the kind of resources used to parameterize this policy";
const ABOUT_POLICYNAME: &str = "PolicyName indicates the policy definition which the policy binding binded to";
const ABOUT_PARAMREF: &str = "ParamRef indicates the param resource which sets the configuration param";
const ABOUT_WEBHOOKS: &str = "Webhooks indicates the number of webhooks registered in this configuration";
const ABOUT_READY: &str = "Number of the pod with ready state";
const ABOUT_SELECTOR: &str = "A label query over pods that should match the pod count. Normally, the system sets this field for you. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors";

pub(super) const fn text(name: &'static str, description: &'static str) -> Column {
    Column { name, ty: "string", format: "", priority: 0, description }
}

pub(super) const fn wide(name: &'static str, description: &'static str) -> Column {
    Column { name, ty: "string", format: "", priority: 1, description }
}

pub(super) const fn typed(name: &'static str, ty: &'static str, description: &'static str) -> Column {
    Column { name, ty, format: "", priority: 0, description }
}

pub(super) const fn named(name: &'static str, priority: i32, description: &'static str) -> Column {
    Column { name, ty: "string", format: "name", priority, description }
}

/// Of `configmaps`.
pub const CONFIGMAPS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text(
        "Data",
        "Data contains the configuration data. Each key must consist of alphanumeric characters, '-', '_' or '.'. Values with non-UTF-8 byte sequences must use the BinaryData field. The keys stored in Data must not overlap with the keys in the BinaryData field, this is enforced during validation process.",
    ),
    text("Age", ABOUT_AGE),
];

/// Of `endpoints`.
pub const ENDPOINTS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text(
        "Endpoints",
        "The set of all endpoints is the union of all subsets. Addresses are placed into subsets according to the IPs they share. A single address with multiple ports, some of which are ready and some of which are not (because they come from different containers) will result in the address being displayed in different subsets for the different ports. No address will appear in both Addresses and NotReadyAddresses in the same subset. Sets of addresses and ports that comprise a service.",
    ),
    text("Age", ABOUT_AGE),
];

/// Of `events`.
pub const EVENTS: &[Column] = &[
    text("Last Seen", ABOUT_LAST_SEEN),
    text("Type", ABOUT_TYPE),
    text("Reason", ABOUT_REASON),
    text("Object", ABOUT_OBJECT),
    wide("Subobject", ABOUT_SUBOBJECT),
    wide("Source", ABOUT_SOURCE),
    text("Message", ABOUT_MESSAGE),
    wide("First Seen", ABOUT_FIRST_SEEN),
    wide("Count", ABOUT_COUNT),
    named("Name", 1, ABOUT_NAME),
];

/// Of `namespaces`.
pub const NAMESPACES: &[Column] =
    &[named("Name", 0, ABOUT_NAME), text("Status", "The status of the namespace"), text("Age", ABOUT_AGE)];

/// Of `nodes`.
pub const NODES: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("Status", "The status of the node"),
    text("Roles", "The roles of the node"),
    text("Age", ABOUT_AGE),
    text("Version", "Kubelet Version reported by the node."),
    wide("Internal-IP", ABOUT_INTERNAL_IP),
    wide("External-IP", ABOUT_INTERNAL_IP),
    wide("OS-Image", "OS Image reported by the node from /etc/os-release (e.g. Debian GNU/Linux 7 (wheezy))."),
    wide("Kernel-Version", "Kernel Version reported by the node from 'uname -r' (e.g. 3.16.0-0.bpo.4-amd64)."),
    wide(
        "Container-Runtime",
        "ContainerRuntime Version reported by the node through runtime remote API (e.g. containerd://1.4.2).",
    ),
];

/// Of `persistentvolumeclaims`.
pub const PERSISTENTVOLUMECLAIMS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("Status", "phase represents the current phase of PersistentVolumeClaim."),
    text("Volume", "volumeName is the binding reference to the PersistentVolume backing this claim."),
    text("Capacity", "capacity represents the actual resources of the underlying volume."),
    text(
        "Access Modes",
        "accessModes contains the actual access modes the volume backing the PVC has. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#access-modes-1",
    ),
    text("StorageClass", "StorageClass of the pvc"),
    text("VolumeAttributesClass", "VolumeAttributesClass of the pvc"),
    text("Age", ABOUT_AGE),
    wide(
        "VolumeMode",
        "volumeMode defines what type of volume is required by the claim. Value of Filesystem is implied when not included in claim spec.",
    ),
];

/// Of `persistentvolumes`.
pub const PERSISTENTVOLUMES: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text(
        "Capacity",
        "capacity is the description of the persistent volume's resources and capacity. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#capacity",
    ),
    text(
        "Access Modes",
        "accessModes contains all ways the volume can be mounted. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#access-modes",
    ),
    text(
        "Reclaim Policy",
        "persistentVolumeReclaimPolicy defines what happens to a persistent volume when released from its claim. Valid options are Retain (default for manually created PersistentVolumes), Delete (default for dynamically provisioned PersistentVolumes), and Recycle (deprecated). Recycle must be supported by the volume plugin underlying this PersistentVolume. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#reclaiming",
    ),
    text(
        "Status",
        "phase indicates if a volume is available, bound to a claim, or released by a claim. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#phase",
    ),
    text(
        "Claim",
        "claimRef is part of a bi-directional binding between PersistentVolume and PersistentVolumeClaim. Expected to be non-nil when bound. claim.VolumeName is the authoritative bind between PV and PVC. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#binding",
    ),
    text("StorageClass", "StorageClass of the pv"),
    text("VolumeAttributesClass", "VolumeAttributesClass of the pv"),
    text(
        "Reason",
        "reason is a brief CamelCase string that describes any failure and is meant for machine parsing and tidy display in the CLI.",
    ),
    text("Age", ABOUT_AGE),
    wide(
        "VolumeMode",
        "volumeMode defines if a volume is intended to be used with a formatted filesystem or to remain in raw block state. Value of Filesystem is implied when not included in spec.",
    ),
];

/// Of `pods`.
pub const PODS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("Ready", "The aggregate readiness state of this pod for accepting traffic."),
    text("Status", "The aggregate status of the containers in this pod."),
    text(
        "Restarts",
        "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
    ),
    text("Age", ABOUT_AGE),
    wide("IP", "podIP address allocated to the pod. Routable at least within the cluster. Empty if not yet allocated."),
    wide(
        "Node",
        "NodeName indicates in which node this pod is scheduled. If empty, this pod is a candidate for scheduling by the scheduler defined in schedulerName. Once this field is set, the kubelet for this node becomes responsible for the lifecycle of this pod. This field should not be used to express a desire for the pod to be scheduled on a specific node. https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodename",
    ),
    wide(
        "Nominated Node",
        "nominatedNodeName is set only when this pod preempts other pods on the node, but it cannot be scheduled right away as preemption victims receive their graceful termination periods. This field does not guarantee that the pod will be scheduled on this node. Scheduler may decide to place the pod elsewhere if other nodes become available sooner. Scheduler may also decide to give the resources on this node to a higher priority pod that is created after preemption. As a result, this field may be different than PodSpec.nodeName when the pod is scheduled.",
    ),
    wide(
        "Readiness Gates",
        "If specified, all readiness gates will be evaluated for pod readiness. A pod is ready when all its containers are ready AND all conditions specified in the readiness gates have status equal to \"True\" More info: https://git.k8s.io/enhancements/keps/sig-network/580-pod-readiness-gates",
    ),
];

/// Of `podtemplates`.
pub const PODTEMPLATES: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("Containers", ABOUT_CONTAINERS),
    text("Images", ABOUT_IMAGES),
    text("Pod Labels", "The labels for the pod template."),
];

/// Of `replicationcontrollers`.
pub const REPLICATIONCONTROLLERS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    typed(
        "Desired",
        "integer",
        "Replicas is the number of desired replicas. This is a pointer to distinguish between explicit zero and unspecified. Defaults to 1. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicationcontroller#what-is-a-replicationcontroller",
    ),
    typed(
        "Current",
        "integer",
        "Replicas is the most recently observed number of replicas. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicationcontroller#what-is-a-replicationcontroller",
    ),
    typed("Ready", "integer", "The number of ready replicas for this replication controller."),
    text("Age", ABOUT_AGE),
    wide("Containers", ABOUT_CONTAINERS),
    wide("Images", ABOUT_IMAGES),
    wide(
        "Selector",
        "Selector is a label query over pods that should match the Replicas count. If Selector is empty, it is defaulted to the labels present on the Pod template. Label keys and values that must match in order to be controlled by this replication controller, if empty defaulted to labels on Pod template. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    ),
];

/// Of `resourcequotas`.
pub const RESOURCEQUOTAS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("Request", "Request represents a minimum amount of cpu/memory that a container may consume."),
    text(
        "Limit",
        "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.",
    ),
    text("Age", ABOUT_AGE),
];

/// Of `secrets`.
pub const SECRETS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text(
        "Type",
        "Used to facilitate programmatic handling of secret data. More info: https://kubernetes.io/docs/concepts/configuration/secret/#secret-types",
    ),
    text(
        "Data",
        "Data contains the secret data. Each key must consist of alphanumeric characters, '-', '_' or '.'. The serialized form of the secret data is a base64 encoded string, representing the arbitrary (possibly non-string) data value here. Described in https://tools.ietf.org/html/rfc4648#section-4",
    ),
    text("Age", ABOUT_AGE),
];

/// Of `serviceaccounts`.
pub const SERVICEACCOUNTS: &[Column] = &[named("Name", 0, ABOUT_NAME), text("Age", ABOUT_AGE)];

/// Of `services`.
pub const SERVICES: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text(
        "Type",
        "type determines how the Service is exposed. Defaults to ClusterIP. Valid options are ExternalName, ClusterIP, NodePort, and LoadBalancer. \"ClusterIP\" allocates a cluster-internal IP address for load-balancing to endpoints. Endpoints are determined by the selector or if that is not specified, by manual construction of an Endpoints object or EndpointSlice objects. If clusterIP is \"None\", no virtual IP is allocated and the endpoints are published as a set of endpoints rather than a virtual IP. \"NodePort\" builds on ClusterIP and allocates a port on every node which routes to the same endpoints as the clusterIP. \"LoadBalancer\" builds on NodePort and creates an external load-balancer (if supported in the current cloud) which routes to the same endpoints as the clusterIP. \"ExternalName\" aliases this service to the specified externalName. Several other fields do not apply to ExternalName services. More info: https://kubernetes.io/docs/concepts/services-networking/service/#publishing-services-service-types",
    ),
    text(
        "Cluster-IP",
        "clusterIP is the IP address of the service and is usually assigned randomly. If an address is specified manually, is in-range (as per system configuration), and is not in use, it will be allocated to the service; otherwise creation of the service will fail. This field may not be changed through updates unless the type field is also being changed to ExternalName (which requires this field to be blank) or the type field is being changed from ExternalName (in which case this field may optionally be specified, as describe above).  Valid values are \"None\", empty string (\"\"), or a valid IP address. Setting this to \"None\" makes a \"headless service\" (no virtual IP), which is useful when direct endpoint connections are preferred and proxying is not required.  Only applies to types ClusterIP, NodePort, and LoadBalancer. If this field is specified when creating a Service of type ExternalName, creation will fail. This field will be wiped when updating a Service to type ExternalName. More info: https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies",
    ),
    text(
        "External-IP",
        "externalIPs is a list of IP addresses for which nodes in the cluster will also accept traffic for this service.  These IPs are not managed by Kubernetes.  The user is responsible for ensuring that traffic arrives at a node with this IP.  A common example is external load-balancers that are not part of the Kubernetes system.",
    ),
    text(
        "Port(s)",
        "The list of ports that are exposed by this service. More info: https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies",
    ),
    text("Age", ABOUT_AGE),
    wide(
        "Selector",
        "Route service traffic to pods with label keys and values matching this selector. If empty or not present, the service is assumed to have an external process managing its endpoints, which Kubernetes will not modify. Only applies to types ClusterIP, NodePort, and LoadBalancer. Ignored if type is ExternalName. More info: https://kubernetes.io/docs/concepts/services-networking/service/",
    ),
];

/// Of `mutatingadmissionpolicies`.
pub const MUTATINGADMISSIONPOLICIES: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    typed("Mutations", "integer", "Mutation indicates the number of mutations rules defined in this configuration"),
    text("ParamKind", ABOUT_PARAMKIND),
    text("Age", ABOUT_AGE),
];

/// Of `mutatingadmissionpolicybindings`.
pub const MUTATINGADMISSIONPOLICYBINDINGS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("PolicyName", ABOUT_POLICYNAME),
    text("ParamRef", ABOUT_PARAMREF),
    text("Age", ABOUT_AGE),
];

/// Of `mutatingwebhookconfigurations`.
pub const MUTATINGWEBHOOKCONFIGURATIONS: &[Column] =
    &[named("Name", 0, ABOUT_NAME), typed("Webhooks", "integer", ABOUT_WEBHOOKS), text("Age", ABOUT_AGE)];

/// Of `validatingadmissionpolicies`.
pub const VALIDATINGADMISSIONPOLICIES: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    typed(
        "Validations",
        "integer",
        "Validations indicates the number of validation rules defined in this configuration",
    ),
    text("ParamKind", ABOUT_PARAMKIND),
    text("Age", ABOUT_AGE),
];

/// Of `validatingadmissionpolicybindings`.
pub const VALIDATINGADMISSIONPOLICYBINDINGS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("PolicyName", ABOUT_POLICYNAME),
    text("ParamRef", ABOUT_PARAMREF),
    text("Age", ABOUT_AGE),
];

/// Of `validatingwebhookconfigurations`.
pub const VALIDATINGWEBHOOKCONFIGURATIONS: &[Column] =
    &[named("Name", 0, ABOUT_NAME), typed("Webhooks", "integer", ABOUT_WEBHOOKS), text("Age", ABOUT_AGE)];

/// Of `apiservices`.
pub const APISERVICES: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("Service", "The reference to the service that hosts this API endpoint."),
    text("Available", "Whether this service is available."),
    text("Age", ABOUT_AGE),
];

/// Of `controllerrevisions`.
pub const CONTROLLERREVISIONS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("Controller", "Controller of the object"),
    text("Revision", "Revision indicates the revision of the state represented by Data."),
    text("Age", ABOUT_AGE),
];

/// Of `daemonsets`.
pub const DAEMONSETS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    typed(
        "Desired",
        "integer",
        "The total number of nodes that should be running the daemon pod (including nodes correctly running the daemon pod). More info: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/",
    ),
    typed(
        "Current",
        "integer",
        "The number of nodes that are running at least 1 daemon pod and are supposed to run the daemon pod. More info: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/",
    ),
    typed(
        "Ready",
        "integer",
        "numberReady is the number of nodes that should be running the daemon pod and have one or more of the daemon pod running with a Ready Condition.",
    ),
    typed("Up-to-date", "integer", "The total number of nodes that are running updated daemon pod"),
    typed(
        "Available",
        "integer",
        "The number of nodes that should be running the daemon pod and have one or more of the daemon pod running and available (ready for at least spec.minReadySeconds)",
    ),
    text(
        "Node Selector",
        "NodeSelector is a selector which must be true for the pod to fit on a node. Selector which must match a node's labels for the pod to be scheduled on that node. More info: https://kubernetes.io/docs/concepts/configuration/assign-pod-node/",
    ),
    text("Age", ABOUT_AGE),
    wide("Containers", ABOUT_CONTAINERS),
    wide("Images", ABOUT_IMAGES),
    wide(
        "Selector",
        "A label query over pods that are managed by the daemon set. Must match in order to be controlled. It must match the pod template's labels. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    ),
];

/// Of `deployments`.
pub const DEPLOYMENTS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("Ready", ABOUT_READY),
    text(
        "Up-to-date",
        "Total number of non-terminating pods targeted by this deployment that have the desired template spec.",
    ),
    text(
        "Available",
        "Total number of available non-terminating pods (ready for at least minReadySeconds) targeted by this deployment.",
    ),
    text("Age", ABOUT_AGE),
    wide("Containers", ABOUT_CONTAINERS),
    wide("Images", ABOUT_IMAGES),
    wide(
        "Selector",
        "Label selector for pods. Existing ReplicaSets whose pods are selected by this will be the ones affected by this deployment. It must match the pod template's labels.",
    ),
];

/// Of `replicasets`.
pub const REPLICASETS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    typed(
        "Desired",
        "integer",
        "Replicas is the number of desired pods. This is a pointer to distinguish between explicit zero and unspecified. Defaults to 1. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicaset",
    ),
    typed(
        "Current",
        "integer",
        "Replicas is the most recently observed number of non-terminating pods. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicaset",
    ),
    typed("Ready", "integer", "The number of non-terminating pods targeted by this ReplicaSet with a Ready Condition."),
    text("Age", ABOUT_AGE),
    wide("Containers", ABOUT_CONTAINERS),
    wide("Images", ABOUT_IMAGES),
    wide(
        "Selector",
        "Selector is a label query over pods that should match the replica count. Label keys and values that must match in order to be controlled by this replica set. It must match the pod template's labels. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    ),
];

/// Of `statefulsets`.
pub const STATEFULSETS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("Ready", ABOUT_READY),
    text("Age", ABOUT_AGE),
    wide("Containers", ABOUT_CONTAINERS),
    wide("Images", ABOUT_IMAGES),
];

/// Of the `scale` of workloads.
pub const SCALES: &[Column] = &[
    text("Name", ABOUT_NAME),
    typed("Desired", "integer", "replicas is the desired number of instances for the scaled object."),
    typed("Available", "integer", "replicas is the actual number of observed instances of the scaled object."),
    text("Age", ABOUT_AGE),
];

/// Of `horizontalpodautoscalers`.
pub const HORIZONTALPODAUTOSCALERS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text(
        "Reference",
        "scaleTargetRef points to the target resource to scale, and is used to the pods for which metrics should be collected, as well as to actually change the replica count.",
    ),
    text(
        "Targets",
        "metrics contains the specifications for which to use to calculate the desired replica count (the maximum replica count across all metrics will be used).  The desired replica count is calculated multiplying the ratio between the target value and the current value by the current number of pods.  Ergo, metrics used must decrease as the pod count is increased, and vice-versa.  See the individual metric source types for more information about how each type of metric must respond. If not set, the default metric will be set to 80% average CPU utilization.",
    ),
    text(
        "MinPods",
        "minReplicas is the lower limit for the number of replicas to which the autoscaler can scale down.  It defaults to 1 pod.  minReplicas is allowed to be 0 if the alpha feature gate HPAScaleToZero is enabled and at least one Object or External metric is configured.  Scaling is active as long as at least one metric value is available.",
    ),
    text(
        "MaxPods",
        "maxReplicas is the upper limit for the number of replicas to which the autoscaler can scale up. It cannot be less that minReplicas.",
    ),
    text(
        "Replicas",
        "currentReplicas is current number of replicas of pods managed by this autoscaler, as last seen by the autoscaler.",
    ),
    text("Age", ABOUT_AGE),
];

/// Of `cronjobs`.
pub const CRONJOBS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("Schedule", "The schedule in Cron format, see https://en.wikipedia.org/wiki/Cron."),
    text(
        "Timezone",
        "The time zone name for the given schedule, see https://en.wikipedia.org/wiki/List_of_tz_database_time_zones. If not specified, this will default to the time zone of the kube-controller-manager process. The set of valid time zone names and the time zone offset is loaded from the system-wide time zone database by the API server during CronJob validation and the controller manager during execution. If no system-wide time zone database can be found a bundled version of the database is used instead. If the time zone name becomes invalid during the lifetime of a CronJob or due to a change in host configuration, the controller will stop creating new new Jobs and will create a system event with the reason UnknownTimeZone. More information can be found in https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#time-zones",
    ),
    typed(
        "Suspend",
        "boolean",
        "This flag tells the controller to suspend subsequent executions, it does not apply to already started executions.  Defaults to false.",
    ),
    typed("Active", "integer", "A list of pointers to currently running jobs."),
    text("Last Schedule", "Information when was the last time the job was successfully scheduled."),
    text("Age", ABOUT_AGE),
    wide("Containers", ABOUT_CONTAINERS),
    wide("Images", ABOUT_IMAGES),
    wide("Selector", ABOUT_SELECTOR),
];

/// Of `jobs`.
pub const JOBS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("Status", "Status of the job."),
    text(
        "Completions",
        "The number of pods which reached phase Succeeded. The value increases monotonically for a given spec. However, it may decrease in reaction to scale down of elastic indexed jobs.",
    ),
    text("Duration", "Time required to complete the job."),
    text("Age", ABOUT_AGE),
    wide("Containers", ABOUT_CONTAINERS),
    wide("Images", ABOUT_IMAGES),
    wide("Selector", ABOUT_SELECTOR),
];

/// Of `certificatesigningrequests`.
pub const CERTIFICATESIGNINGREQUESTS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("Age", ABOUT_AGE),
    text(
        "SignerName",
        "Requested signer for the request. It is a qualified name in the form: `scope-hostname.io/name`. If empty, it will be defaulted:\n 1. If it's a kubelet client certificate, it is assigned\n    \"kubernetes.io/kube-apiserver-client-kubelet\".\n 2. If it's a kubelet serving certificate, it is assigned\n    \"kubernetes.io/kubelet-serving\".\n 3. Otherwise, it is assigned \"kubernetes.io/legacy-unknown\".\nDistribution of trust for signers happens out of band. You can select on this field using `spec.signerName`.",
    ),
    text("Requestor", "Base64-encoded PKCS#10 CSR data"),
    text(
        "RequestedDuration",
        "expirationSeconds is the requested duration of validity of the issued certificate. The certificate signer may issue a certificate with a different validity duration so a client must check the delta between the notBefore and and notAfter fields in the issued certificate to determine the actual duration.\n\nThe v1.22+ in-tree implementations of the well-known Kubernetes signers will honor this field as long as the requested duration is not greater than the maximum duration they will honor per the --cluster-signing-duration CLI flag to the Kubernetes controller manager.\n\nCertificate signers may not honor this field for various reasons:\n\n  1. Old signer that is unaware of the field (such as the in-tree\n     implementations prior to v1.22)\n  2. Signer whose configured maximum is shorter than the requested duration\n  3. Signer whose configured minimum is longer than the requested duration\n\nThe minimum valid value for expirationSeconds is 600, i.e. 10 minutes.",
    ),
    text("Condition", "Conditions applied to the request, such as approval or denial."),
];

/// Of `clustertrustbundles`.
pub const CLUSTERTRUSTBUNDLES: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text(
        "SignerName",
        "signerName indicates the associated signer, if any.\n\nIn order to create or update a ClusterTrustBundle that sets signerName, you must have the following cluster-scoped permission: group=certificates.k8s.io resource=signers resourceName=<the signer name> verb=attest.\n\nIf signerName is not empty, then the ClusterTrustBundle object must be named with the signer name as a prefix (translating slashes to colons). For example, for the signer name `example.com/foo`, valid ClusterTrustBundle object names include `example.com:foo:abc` and `example.com:foo:v1`.\n\nIf signerName is empty, then the ClusterTrustBundle object's name must not have such a prefix.\n\nList/watch requests for ClusterTrustBundles can filter on this field using a `spec.signerName=NAME` field selector.",
    ),
];

/// Of `leases`.
pub const LEASES: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text(
        "Holder",
        "holderIdentity contains the identity of the holder of a current lease. If Coordinated Leader Election is used, the holder identity must be equal to the elected LeaseCandidate.metadata.name field.",
    ),
    text("Age", ABOUT_AGE),
];

/// Of `endpointslices`.
pub const ENDPOINTSLICES: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text(
        "AddressType",
        "addressType specifies the type of address carried by this EndpointSlice. All addresses in this slice must be the same type. This field is immutable after creation. The following address types are currently supported: * IPv4: Represents an IPv4 Address. * IPv6: Represents an IPv6 Address. * FQDN: Represents a Fully Qualified Domain Name. (Deprecated) The EndpointSlice controller only generates, and kube-proxy only processes, slices of addressType \"IPv4\" and \"IPv6\". No semantics are defined for the \"FQDN\" type.",
    ),
    text(
        "Ports",
        "ports specifies the list of network ports exposed by each endpoint in this slice. Each port must have a unique name. Each slice may include a maximum of 100 ports. Services always have at least 1 port, so EndpointSlices generated by the EndpointSlice controller will likewise always have at least 1 port. EndpointSlices used for other purposes may have an empty ports list.",
    ),
    text(
        "Endpoints",
        "endpoints is a list of unique endpoints in this slice. Each slice may include a maximum of 1000 endpoints.",
    ),
    text("Age", ABOUT_AGE),
];

/// Of `flowschemas`.
pub const FLOWSCHEMAS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("PriorityLevel", "`name` is the name of the priority level configuration being referenced Required."),
    text(
        "MatchingPrecedence",
        "`matchingPrecedence` is used to choose among the FlowSchemas that match a given request. The chosen FlowSchema is among those with the numerically lowest (which we take to be logically highest) MatchingPrecedence.  Each MatchingPrecedence value must be ranged in [1,10000]. Note that if the precedence is not specified, it will be set to 1000 as default.",
    ),
    text(
        "DistinguisherMethod",
        "`distinguisherMethod` defines how to compute the flow distinguisher for requests that match this schema. `nil` specifies that the distinguisher is disabled and thus will always be the empty string.",
    ),
    text("Age", ABOUT_AGE),
    text("MissingPL", "references a broken or non-existent PriorityLevelConfiguration"),
];

/// Of `prioritylevelconfigurations`.
pub const PRIORITYLEVELCONFIGURATIONS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text(
        "Type",
        "`type` indicates whether this priority level is subject to limitation on request execution.  A value of `\"Exempt\"` means that requests of this priority level are not subject to a limit (and thus are never queued) and do not detract from the capacity made available to other priority levels.  A value of `\"Limited\"` means that (a) requests of this priority level _are_ subject to limits and (b) some of the server's limited capacity is made available exclusively to this priority level. Required.",
    ),
    text(
        "NominalConcurrencyShares",
        "`nominalConcurrencyShares` (NCS) contributes to the computation of the NominalConcurrencyLimit (NominalCL) of this level. This is the number of execution seats available at this priority level. This is used both for requests dispatched from this priority level as well as requests dispatched from other priority levels borrowing seats from this level. The server's concurrency limit (ServerCL) is divided among the Limited priority levels in proportion to their NCS values:\n\nNominalCL(i)  = ceil( ServerCL * NCS(i) / sum_ncs ) sum_ncs = sum[priority level k] NCS(k)\n\nBigger numbers mean a larger nominal concurrency limit, at the expense of every other priority level.\n\nIf not specified, this field defaults to a value of 30.\n\nSetting this field to zero supports the construction of a \"jail\" for this priority level that is used to hold some request(s)",
    ),
    text(
        "Queues",
        "`queues` is the number of queues for this priority level. The queues exist independently at each apiserver. The value must be positive.  Setting it to 1 effectively precludes shufflesharding and thus makes the distinguisher method of associated flow schemas irrelevant.  This field has a default value of 64.",
    ),
    text(
        "HandSize",
        "`handSize` is a small positive number that configures the shuffle sharding of requests into queues.  When enqueuing a request at this priority level the request's flow identifier (a string pair) is hashed and the hash value is used to shuffle the list of queues and deal a hand of the size specified here.  The request is put into one of the shortest queues in that hand. `handSize` must be no larger than `queues`, and should be significantly smaller (so that a few heavy flows do not saturate most of the queues).  See the user-facing documentation for more extensive guidance on setting this field.  This field has a default value of 8.",
    ),
    text(
        "QueueLengthLimit",
        "`queueLengthLimit` is the maximum number of requests allowed to be waiting in a given queue of this priority level at a time; excess requests are rejected.  This value must be positive.  If not specified, it will be defaulted to 50.",
    ),
    text("Age", ABOUT_AGE),
];

/// Of `ingressclasses`.
pub const INGRESSCLASSES: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("Controller", "Controller that is responsible for handling this class"),
    text("Parameters", "A reference to a resource with additional parameters"),
    text("Age", ABOUT_AGE),
];

/// Of `ingresses`.
pub const INGRESSES: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("Class", "The name of the IngressClass resource that should be used for additional configuration"),
    text("Hosts", "Hosts that incoming requests are matched against before the ingress rule"),
    text("Address", "Address is a list containing ingress points for the load-balancer"),
    text("Ports", "Ports of TLS configurations that open"),
    text("Age", ABOUT_AGE),
];

/// Of `ipaddresses`.
pub const IPADDRESSES: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text(
        "ParentRef",
        "parentRef references the resource that an IPAddress is attached to. An IPAddress must reference a parent object.",
    ),
];

/// Of `networkpolicies`.
pub const NETWORKPOLICIES: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text(
        "Pod-Selector",
        "podSelector selects the pods to which this NetworkPolicy object applies. The array of rules is applied to any pods selected by this field. An empty selector matches all pods in the policy's namespace. Multiple network policies can select the same set of pods. In this case, the ingress rules for each are combined additively. This field is optional. If it is not specified, it defaults to an empty selector.",
    ),
    text("Age", ABOUT_AGE),
];

/// Of `servicecidrs`.
pub const SERVICECIDRS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text(
        "CIDRs",
        "cidrs defines the IP blocks in CIDR notation (e.g. \"192.168.0.0/24\" or \"2001:db8::/64\") from which to assign service cluster IPs. Max of two CIDRs is allowed, one of each IP family. This field is immutable.",
    ),
    text("Age", ABOUT_AGE),
];

/// Of `runtimeclasses`.
pub const RUNTIMECLASSES: &[Column] = &[named("Name", 0, ABOUT_NAME), text("Handler", ""), text("Age", ABOUT_AGE)];

/// Of `poddisruptionbudgets`.
pub const PODDISRUPTIONBUDGETS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("Min Available", "The minimum number of pods that must be available."),
    text("Max Unavailable", "The maximum number of pods that may be unavailable."),
    typed("Allowed Disruptions", "integer", "Calculated number of pods that may be disrupted at this time."),
    text("Age", ABOUT_AGE),
];

/// Of `clusterrolebindings`.
pub const CLUSTERROLEBINDINGS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text(
        "Role",
        "roleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
    ),
    text("Age", ABOUT_AGE),
    wide("Users", "Users in the clusterRoleBinding"),
    wide("Groups", "Groups in the clusterRoleBinding"),
    wide("ServiceAccounts", "ServiceAccounts in the clusterRoleBinding"),
];

/// Of `rolebindings`.
pub const ROLEBINDINGS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text(
        "Role",
        "roleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
    ),
    text("Age", ABOUT_AGE),
    wide("Users", "Users in the roleBinding"),
    wide("Groups", "Groups in the roleBinding"),
    wide("ServiceAccounts", "ServiceAccounts in the roleBinding"),
];

/// Of `deviceclasses`.
pub const DEVICECLASSES: &[Column] = &[named("Name", 0, ABOUT_NAME), text("Age", ABOUT_AGE)];

/// Of `devicetaintrules`.
pub const DEVICETAINTRULES: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("Key", "The taint key to be applied to a device. Must be a label name."),
    text("Value", "The taint value corresponding to the taint key. Must be a label value."),
    text(
        "Effect",
        "The effect of the taint on claims that do not tolerate the taint and through such claims on the pods using them.\n\nValid effects are None, NoSchedule and NoExecute. PreferNoSchedule as used for nodes is not valid here. More effects may get added in the future. Consumers must treat unknown effects like None.",
    ),
    text(
        "TimeAdded",
        "TimeAdded represents the time at which the taint was added or (only in a DeviceTaintRule) the effect was modified. Added automatically during create or update if not set.\n\nIn addition, in a DeviceTaintRule a value provided during an update gets replaced with the current time if the provided value is the same as the old one and the new effect is different. Changing the key and/or value while keeping the effect unchanged is possible and does not update the time stamp because the eviction which uses it is either already started (NoExecute) or not started yet (NoEffect, NoSchedule).",
    ),
    text("Age", ABOUT_AGE),
];

/// Of `resourceclaims`.
pub const RESOURCECLAIMS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("State", "A summary of the current state (allocated, pending, reserved, etc.)."),
    text("Age", ABOUT_AGE),
];

/// Of `resourceclaimtemplates`.
pub const RESOURCECLAIMTEMPLATES: &[Column] = &[named("Name", 0, ABOUT_NAME), text("Age", ABOUT_AGE)];

/// Of `resourceslices`.
pub const RESOURCESLICES: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text(
        "Node",
        "NodeName identifies the node which provides the resources in this pool. A field selector can be used to list only ResourceSlice objects belonging to a certain node.\n\nThis field can be used to limit access from nodes to ResourceSlices with the same node name. It also indicates to autoscalers that adding new nodes of the same type as some old node might also make new resources available.\n\nExactly one of NodeName, NodeSelector, AllNodes, and PerDeviceNodeSelection must be set. This field is immutable.",
    ),
    text(
        "Driver",
        "Driver identifies the DRA driver providing the capacity information. A field selector can be used to list only ResourceSlice objects with a certain driver name.\n\nMust be a DNS subdomain and should end with a DNS domain owned by the vendor of the driver. It should use only lower case characters. This field is immutable.",
    ),
    text(
        "Pool",
        "Name is used to identify the pool. For node-local devices, this is often the node name, but this is not required. A field selector can be used to list only ResourceSlice objects belonging to a certain pool.\n\nIt must not be longer than 253 characters and must consist of one or more DNS sub-domains separated by slashes. This field is immutable.",
    ),
    text("Age", ABOUT_AGE),
];

/// Of `priorityclasses`.
pub const PRIORITYCLASSES: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    typed(
        "Value",
        "integer",
        "value represents the integer value of this priority class. This is the actual priority that pods receive when they have the name of this class in their pod spec.",
    ),
    typed(
        "Global-Default",
        "boolean",
        "globalDefault specifies whether this PriorityClass should be considered as the default priority for pods that do not have any priority class. Only one PriorityClass can be marked as `globalDefault`. However, if more than one PriorityClasses exists with their `globalDefault` field set to true, the smallest value of such global default PriorityClasses will be used as the default priority.",
    ),
    text("Age", ABOUT_AGE),
    text(
        "PreemptionPolicy",
        "preemptionPolicy is the Policy for preempting pods with lower priority. One of Never, PreemptLowerPriority. Defaults to PreemptLowerPriority if unset.",
    ),
];

/// Of `csidrivers`.
pub const CSIDRIVERS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    typed(
        "AttachRequired",
        "boolean",
        "attachRequired indicates this CSI volume driver requires an attach operation (because it implements the CSI ControllerPublishVolume() method), and that the Kubernetes attach detach controller should call the attach volume interface which checks the volumeattachment status and waits until the volume is attached before proceeding to mounting. The CSI external-attacher coordinates with CSI volume driver and updates the volumeattachment status when the attach operation is complete. If the value is specified to false, the attach operation will be skipped. Otherwise the attach operation will be called.\n\nThis field is immutable.",
    ),
    typed(
        "PodInfoOnMount",
        "boolean",
        "podInfoOnMount indicates this CSI volume driver requires additional pod information (like podName, podUID, etc.) during mount operations, if set to true. If set to false, pod information will not be passed on mount. Default is false.\n\nThe CSI driver specifies podInfoOnMount as part of driver deployment. If true, Kubelet will pass pod information as VolumeContext in the CSI NodePublishVolume() calls. The CSI driver is responsible for parsing and validating the information passed in as VolumeContext.\n\nThe following VolumeContext will be passed if podInfoOnMount is set to true. This list might grow, but the prefix will be used. \"csi.storage.k8s.io/pod.name\": pod.Name \"csi.storage.k8s.io/pod.namespace\": pod.Namespace \"csi.storage.k8s.io/pod.uid\": string(pod.UID) \"csi.storage.k8s.io/ephemeral\": \"true\" if the volume is an ephemeral inline volume\n                                defined by a CSIVolumeSource, otherwise \"false\"\n\n\"csi.storage.k8s.io/ephemeral\" is a new feature in Kubernetes 1.16. It is only required for drivers which support both the \"Persistent\" and \"Ephemeral\" VolumeLifecycleMode. Other drivers can leave pod info disabled and/or ignore this field. As Kubernetes 1.15 doesn't support this field, drivers can only support one mode when deployed on such a cluster and the deployment determines which mode that is, for example via a command line parameter of the driver.\n\nThis field was immutable in Kubernetes < 1.29 and now is mutable.",
    ),
    typed(
        "StorageCapacity",
        "boolean",
        "storageCapacity indicates that the CSI volume driver wants pod scheduling to consider the storage capacity that the driver deployment will report by creating CSIStorageCapacity objects with capacity information, if set to true.\n\nThe check can be enabled immediately when deploying a driver. In that case, provisioning new volumes with late binding will pause until the driver deployment has published some suitable CSIStorageCapacity object.\n\nAlternatively, the driver can be deployed with the field unset or false and it can be flipped later when storage capacity information has been published.\n\nThis field was immutable in Kubernetes <= 1.22 and now is mutable.",
    ),
    text(
        "TokenRequests",
        "tokenRequests indicates the CSI driver needs pods' service account tokens it is mounting volume for to do necessary authentication. Kubelet will pass the tokens in VolumeContext in the CSI NodePublishVolume calls. The CSI driver should parse and validate the following VolumeContext: \"csi.storage.k8s.io/serviceAccount.tokens\": {\n  \"<audience>\": {\n    \"token\": <token>,\n    \"expirationTimestamp\": <expiration timestamp in RFC3339>,\n  },\n  ...\n}\n\nNote: Audience in each TokenRequest should be different and at most one token is empty string. To receive a new token after expiry, RequiresRepublish can be used to trigger NodePublishVolume periodically.",
    ),
    typed(
        "RequiresRepublish",
        "boolean",
        "requiresRepublish indicates the CSI driver wants `NodePublishVolume` being periodically called to reflect any possible change in the mounted volume. This field defaults to false.\n\nNote: After a successful initial NodePublishVolume call, subsequent calls to NodePublishVolume should only update the contents of the volume. New mount points will not be seen by a running container.",
    ),
    text(
        "Modes",
        "volumeLifecycleModes defines what kind of volumes this CSI volume driver supports. The default if the list is empty is \"Persistent\", which is the usage defined by the CSI specification and implemented in Kubernetes via the usual PV/PVC mechanism.\n\nThe other mode is \"Ephemeral\". In this mode, volumes are defined inline inside the pod spec with CSIVolumeSource and their lifecycle is tied to the lifecycle of that pod. A driver has to be aware of this because it is only going to get a NodePublishVolume call for such a volume.\n\nFor more information about implementing this mode, see https://kubernetes-csi.github.io/docs/ephemeral-local-volumes.html A driver can support one or more of these modes and more modes may be added in the future.\n\nThis field is beta. This field is immutable.",
    ),
    text("Age", ABOUT_AGE),
];

/// Of `csinodes`.
pub const CSINODES: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    typed("Drivers", "integer", "Drivers indicates the number of CSI drivers registered on the node"),
    text("Age", ABOUT_AGE),
];

/// Of `storageclasses`.
pub const STORAGECLASSES: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("Provisioner", "provisioner indicates the type of the provisioner."),
    text(
        "ReclaimPolicy",
        "reclaimPolicy controls the reclaimPolicy for dynamically provisioned PersistentVolumes of this storage class. Defaults to Delete.",
    ),
    text(
        "VolumeBindingMode",
        "volumeBindingMode indicates how PersistentVolumeClaims should be provisioned and bound.  When unset, VolumeBindingImmediate is used. This field is only honored by servers that enable the VolumeScheduling feature.",
    ),
    text("AllowVolumeExpansion", "allowVolumeExpansion shows whether the storage class allow volume expand."),
    text("Age", ABOUT_AGE),
];

/// Of `volumeattachments`.
pub const VOLUMEATTACHMENTS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    named(
        "Attacher",
        0,
        "attacher indicates the name of the volume driver that MUST handle this request. This is the name returned by GetPluginName().",
    ),
    text("PV", "persistentVolumeName represents the name of the persistent volume to attach."),
    text("Node", "nodeName represents the node that the volume should be attached to."),
    typed(
        "Attached",
        "boolean",
        "attached indicates the volume is successfully attached. This field must only be set by the entity completing the attach operation, i.e. the external-attacher.",
    ),
    text("Age", ABOUT_AGE),
];

/// Of `volumeattributesclasses`.
pub const VOLUMEATTRIBUTESCLASSES: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("DriverName", "driverName is the name of the CSI driver This field is immutable."),
    text("Age", ABOUT_AGE),
];

/// Of `customresourcedefinitions`.
pub const CUSTOMRESOURCEDEFINITIONS: &[Column] = &[
    named("Name", 0, ABOUT_NAME),
    text("Scope", "Cluster/Namespaced"),
    text("Versions", "Served versions"),
    typed("Created At", "date", ABOUT_AGE),
    wide("Group", "API group"),
    wide("Kind", "CustomResource kind"),
    wide("ShortNames", "Short names"),
    Column { ty: "boolean", ..wide("Established", "Established status") },
];

/// Of `storageversionmigrations`.
pub const STORAGEVERSIONMIGRATIONS: &[Column] = &[
    text("Name", ABOUT_NAME),
    text("Resource", "GroupResource to migrate"),
    text("Status", "Status of the migration"),
];
