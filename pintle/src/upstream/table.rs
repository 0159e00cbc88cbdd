//! Which flags and fields of upstream's components are known, and what they are in ours.

use super::Values;

/// One of upstream's components.
#[derive(Debug)]
pub struct Component {
    /// The program's name.
    pub name: &'static str,
    /// Our command.
    pub command: &'static str,
    /// Its flags.
    pub flags: &'static [Flag],
    /// Its configuration file.
    pub file: File,
    /// What depends on more than one value.
    pub adjust: fn(Values) -> Values,
}

/// A flag.
#[derive(Debug)]
pub struct Flag {
    /// Its name.
    pub name: &'static str,
    /// Whether it needs a value.
    pub takes: Takes,
    /// What it is in ours.
    pub means: Means,
    /// What an empty value is.
    pub empty: Empty,
}

/// What an empty value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Empty {
    /// As if the flag had not been given.
    Unset,
    /// A value as any other.
    Value,
}

/// What a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// True or false; alone it is true.
    Bool,
    /// A value.
    Value,
}

/// What a flag is in ours.
#[derive(Debug)]
pub enum Means {
    /// Our flag of this name, with the same value.
    Is(&'static str),
    /// The same, without the scheme of a socket's URL.
    Socket(&'static str),
    /// The same, with the port of an address.
    Port(&'static str),
    /// The log level.
    Verbosity,
    /// Taken up when the values are adjusted, or before.
    Adjusted,
    /// Nothing: accepted only.
    Nothing,
}

/// A configuration file.
#[derive(Debug)]
pub struct File {
    /// Its kind; empty if the component has none.
    pub kind: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Fields, and the flags with the same meaning.
    pub fields: &'static [(&'static str, &'static str)],
    /// Fields, with all below them, that are accepted only.
    pub accepted: &'static [&'static str],
}

const NO_FILE: File = File { kind: "", version: "", fields: &[], accepted: &[] };

const fn is(name: &'static str) -> Flag {
    Flag { name, takes: Takes::Value, means: Means::Is(name), empty: Empty::Unset }
}

const fn as_own(name: &'static str, own: &'static str) -> Flag {
    Flag { name, takes: Takes::Value, means: Means::Is(own), empty: Empty::Unset }
}

const fn accepted(name: &'static str) -> Flag {
    Flag { name, takes: Takes::Value, means: Means::Nothing, empty: Empty::Unset }
}

const fn accepted_bool(name: &'static str) -> Flag {
    Flag { name, takes: Takes::Bool, means: Means::Nothing, empty: Empty::Unset }
}

const CONFIG: Flag = Flag { name: "config", takes: Takes::Value, means: Means::Adjusted, empty: Empty::Unset };
const LEADER_ELECT: Flag =
    Flag { name: "leader-elect", takes: Takes::Bool, means: Means::Is("leader-elect"), empty: Empty::Unset };

/// Flags that all have.
pub const COMMON: &[Flag] = &[
    Flag { name: "v", takes: Takes::Value, means: Means::Verbosity, empty: Empty::Unset },
    accepted("vmodule"),
    accepted("logging-format"),
    accepted("log-flush-frequency"),
    accepted("feature-gates"),
    accepted_bool("profiling"),
    accepted_bool("contention-profiling"),
];

/// All components.
pub const COMPONENTS: &[Component] = &[
    Component {
        name: "kube-scheduler",
        command: "scheduler",
        flags: &[
            CONFIG,
            is("kubeconfig"),
            LEADER_ELECT,
            is("secure-port"),
            accepted("bind-address"),
            accepted("authentication-kubeconfig"),
            accepted("authorization-kubeconfig"),
            accepted_bool("authentication-skip-lookup"),
            accepted_bool("authentication-tolerate-lookup-failure"),
            accepted("authorization-always-allow-paths"),
            accepted("cert-dir"),
            accepted("client-ca-file"),
            accepted("requestheader-client-ca-file"),
            accepted("tls-cert-file"),
            accepted("tls-private-key-file"),
            accepted("kube-api-qps"),
            accepted("kube-api-burst"),
            accepted("leader-elect-lease-duration"),
            accepted("leader-elect-renew-deadline"),
            accepted("leader-elect-retry-period"),
            accepted("leader-elect-resource-namespace"),
        ],
        file: File {
            kind: "KubeSchedulerConfiguration",
            version: "kubescheduler.config.k8s.io/v1",
            fields: &[("clientConnection.kubeconfig", "kubeconfig"), ("leaderElection.leaderElect", "leader-elect")],
            accepted: &[
                "clientConnection",
                "leaderElection",
                "enableProfiling",
                "enableContentionProfiling",
                "parallelism",
            ],
        },
        adjust: |values| values,
    },
    Component {
        name: "kube-controller-manager",
        command: "controller-manager",
        flags: &[
            is("kubeconfig"),
            LEADER_ELECT,
            is("secure-port"),
            is("controllers"),
            is("root-ca-file"),
            is("cluster-cidr"),
            is("cluster-signing-cert-file"),
            is("cluster-signing-key-file"),
            Flag { name: "allocate-node-cidrs", takes: Takes::Bool, means: Means::Adjusted, empty: Empty::Unset },
            accepted("bind-address"),
            accepted("authentication-kubeconfig"),
            accepted("authorization-kubeconfig"),
            accepted("cert-dir"),
            accepted("client-ca-file"),
            accepted("cloud-provider"),
            accepted("cluster-name"),
            accepted("requestheader-client-ca-file"),
            accepted("service-account-private-key-file"),
            accepted("service-cluster-ip-range"),
            accepted("node-cidr-mask-size"),
            accepted("tls-cert-file"),
            accepted("tls-private-key-file"),
            accepted("kube-api-qps"),
            accepted("kube-api-burst"),
            accepted_bool("use-service-account-credentials"),
            accepted("leader-elect-lease-duration"),
            accepted("leader-elect-renew-deadline"),
            accepted("leader-elect-retry-period"),
        ],
        file: NO_FILE,
        adjust: |mut values| {
            // Without it upstream hands out no addresses, whatever the range.
            if values.get("allocate-node-cidrs").is_none_or(|value| value != "true") {
                values.remove("cluster-cidr");
            }
            values
        },
    },
    Component {
        name: "kube-proxy",
        command: "proxy",
        flags: &[
            CONFIG,
            is("kubeconfig"),
            is("hostname-override"),
            is("cluster-cidr"),
            accepted("bind-address"),
            accepted("healthz-bind-address"),
            Flag {
                name: "metrics-bind-address",
                takes: Takes::Value,
                means: Means::Port("metrics-port"),
                empty: Empty::Value,
            },
            accepted("proxy-mode"),
            accepted("nodeport-addresses"),
            accepted("conntrack-max-per-core"),
            accepted("conntrack-min"),
            accepted("conntrack-tcp-timeout-close-wait"),
            accepted("conntrack-tcp-timeout-established"),
            accepted("nftables-sync-period"),
            accepted("nftables-min-sync-period"),
            accepted("iptables-sync-period"),
            accepted("iptables-min-sync-period"),
            accepted_bool("masquerade-all"),
        ],
        file: File {
            kind: "KubeProxyConfiguration",
            version: "kubeproxy.config.k8s.io/v1alpha1",
            fields: &[
                ("clientConnection.kubeconfig", "kubeconfig"),
                ("clusterCIDR", "cluster-cidr"),
                ("hostnameOverride", "hostname-override"),
                ("metricsBindAddress", "metrics-bind-address"),
                ("mode", "proxy-mode"),
            ],
            accepted: &[
                "clientConnection",
                "bindAddress",
                "healthzBindAddress",
                "conntrack",
                "iptables",
                "ipvs",
                "nftables",
                "nodePortAddresses",
                "portRange",
                "winkernel",
                "configSyncPeriod",
                "detectLocalMode",
                "detectLocal",
                "featureGates",
                "linux",
                "windows",
                "logging",
                "oomScoreAdj",
                "showHiddenMetricsForVersion",
                "enableProfiling",
                "bindAddressHardFail",
            ],
        },
        adjust: |mut values| {
            // The one mode there is.
            values.retain(|name, value| !(name == "proxy-mode" && (value == "nftables" || value.is_empty())));
            values
        },
    },
    Component {
        name: "kubelet",
        command: "kubelet",
        flags: &[
            CONFIG,
            is("kubeconfig"),
            is("root-dir"),
            is("hostname-override"),
            is("node-ip"),
            is("port"),
            is("client-ca-file"),
            is("tls-cert-file"),
            is("tls-private-key-file"),
            is("cluster-dns"),
            is("cluster-domain"),
            is("cgroup-root"),
            is("pod-logs-dir"),
            is("max-pods"),
            Flag { empty: Empty::Value, ..is("resolv-conf") },
            as_own("pod-manifest-path", "static-pod-path"),
            is("cgroup-driver"),
            is("node-labels"),
            is("provider-id"),
            is("register-with-taints"),
            Flag { name: "register-node", takes: Takes::Bool, means: Means::Is("register-node"), empty: Empty::Unset },
            Flag {
                name: "container-runtime-endpoint",
                takes: Takes::Value,
                means: Means::Socket("container-runtime-endpoint"),
                empty: Empty::Unset,
            },
            accepted("bootstrap-kubeconfig"),
            accepted("cert-dir"),
            accepted("cloud-provider"),
            accepted("image-service-endpoint"),
            accepted("runtime-cgroups"),
            accepted("volume-plugin-dir"),
            accepted_bool("fail-swap-on"),
            accepted_bool("rotate-certificates"),
        ],
        file: File {
            kind: "KubeletConfiguration",
            version: "kubelet.config.k8s.io/v1beta1",
            fields: &[
                ("authentication.x509.clientCAFile", "client-ca-file"),
                ("cgroupDriver", "cgroup-driver"),
                ("cgroupRoot", "cgroup-root"),
                ("clusterDNS", "cluster-dns"),
                ("clusterDomain", "cluster-domain"),
                ("containerRuntimeEndpoint", "container-runtime-endpoint"),
                ("maxPods", "max-pods"),
                ("podLogsDir", "pod-logs-dir"),
                ("port", "port"),
                ("providerID", "provider-id"),
                ("registerNode", "register-node"),
                ("registerWithTaints", "register-with-taints"),
                ("resolvConf", "resolv-conf"),
                ("staticPodPath", "pod-manifest-path"),
                ("tlsCertFile", "tls-cert-file"),
                ("tlsPrivateKeyFile", "tls-private-key-file"),
            ],
            accepted: &[
                "address",
                "allowedUnsafeSysctls",
                "authentication",
                "authorization",
                "cgroupsPerQOS",
                "configMapAndSecretChangeDetectionStrategy",
                "containerLogMaxFiles",
                "containerLogMaxSize",
                "containerLogMaxWorkers",
                "containerLogMonitorInterval",
                "contentType",
                "cpuCFSQuota",
                "cpuCFSQuotaPeriod",
                "cpuManagerPolicy",
                "cpuManagerPolicyOptions",
                "cpuManagerReconcilePeriod",
                "crashLoopBackOff",
                "defaultPodSysctls",
                "enableContentionProfiling",
                "enableControllerAttachDetach",
                "enableDebugFlagsHandler",
                "enableDebuggingHandlers",
                "enableProfilingHandler",
                "enableServer",
                "enableSystemLogHandler",
                "enableSystemLogQuery",
                "enforceNodeAllocatable",
                "eventBurst",
                "eventRecordQPS",
                "evictionHard",
                "evictionMaxPodGracePeriod",
                "evictionMinimumReclaim",
                "evictionPressureTransitionPeriod",
                "evictionSoft",
                "evictionSoftGracePeriod",
                "failCgroupV1",
                "failSwapOn",
                "featureGates",
                "fileCheckFrequency",
                "hairpinMode",
                "healthzBindAddress",
                "healthzPort",
                "httpCheckFrequency",
                "imageGCHighThresholdPercent",
                "imageGCLowThresholdPercent",
                "imageMaximumGCAge",
                "imageMinimumGCAge",
                "imagePullCredentialsVerificationPolicy",
                "imageServiceEndpoint",
                "iptablesDropBit",
                "iptablesMasqueradeBit",
                "kernelMemcgNotification",
                "kubeAPIBurst",
                "kubeAPIQPS",
                "kubeReserved",
                "kubeReservedCgroup",
                "kubeletCgroups",
                "localStorageCapacityIsolation",
                "logging",
                "makeIPTablesUtilChains",
                "maxOpenFiles",
                "maxParallelImagePulls",
                "memoryManagerPolicy",
                "memoryReservationPolicy",
                "memorySwap",
                "memoryThrottlingFactor",
                "mergeDefaultEvictionSettings",
                "nodeLeaseDurationSeconds",
                "nodeStatusMaxImages",
                "nodeStatusReportFrequency",
                "nodeStatusUpdateFrequency",
                "oomScoreAdj",
                "podCIDR",
                "podPidsLimit",
                "podsPerCore",
                "preloadedImagesVerificationAllowlist",
                "protectKernelDefaults",
                "qosReserved",
                "readOnlyPort",
                "registryBurst",
                "registryPullQPS",
                "reservedMemory",
                "reservedSystemCPUs",
                "rotateCertificates",
                "runOnce",
                "runtimeRequestTimeout",
                "seccompDefault",
                "serializeImagePulls",
                "serverTLSBootstrap",
                "showHiddenMetricsForVersion",
                "shutdownGracePeriod",
                "shutdownGracePeriodByPodPriority",
                "shutdownGracePeriodCriticalPods",
                "singleProcessOOMKill",
                "staticPodURL",
                "staticPodURLHeader",
                "streamingConnectionIdleTimeout",
                "syncFrequency",
                "systemCgroups",
                "systemReserved",
                "systemReservedCgroup",
                "tlsCipherSuites",
                "tlsCurvePreferences",
                "tlsMinVersion",
                "topologyManagerPolicy",
                "topologyManagerPolicyOptions",
                "topologyManagerScope",
                "tracing",
                "userNamespaces",
                "volumePluginDir",
                "volumeStatsAggPeriod",
            ],
        },
        adjust: |values| values,
    },
];
