//! The table of CRI v1 messages (package `runtime.v1`): field names, types and numbers are the facts of the public CRI
//! protocol. Windows parts, list streaming, checkpoints and metric descriptors are left out: nothing here uses them.
#![allow(missing_docs, reason = "a table of the protocol's own names; the CRI documents them")]

use std::collections::BTreeMap;

/// One line a message: `Name { field: RustType [prost kind] number, … }`.
macro_rules! messages {
    ($($name:ident { $($field:ident : $ty:ty [$($kind:tt)*] $tag:tt),* $(,)? })*) => {$(
        #[derive(Clone, PartialEq, prost::Message)]
        pub struct $name {
            $(#[prost($($kind)*, tag = $tag)] pub $field: $ty,)*
        }
    )*};
}

/// One line an enumeration: `Name { Variant = number, … }`.
macro_rules! enumerations {
    ($($name:ident { $($variant:ident = $number:tt),* $(,)? })*) => {$(
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
        #[repr(i32)]
        pub enum $name {
            $($variant = $number,)*
        }
    )*};
}

enumerations! {
    ProfileType { RuntimeDefault = 0, Unconfined = 1, Localhost = 2 }
    Protocol { Tcp = 0, Udp = 1, Sctp = 2 }
    MountPropagation { Private = 0, HostToContainer = 1, Bidirectional = 2 }
    NamespaceMode { Pod = 0, Container = 1, Node = 2, Target = 3 }
    SupplementalGroupsPolicy { Merge = 0, Strict = 1 }
    PodSandboxState { Ready = 0, Notready = 1 }
    Signal {
        RuntimeDefault = 0,
        Sigabrt = 1,
        Sigalrm = 2,
        Sigbus = 3,
        Sigchld = 4,
        Sigcld = 5,
        Sigcont = 6,
        Sigfpe = 7,
        Sighup = 8,
        Sigill = 9,
        Sigint = 10,
        Sigio = 11,
        Sigiot = 12,
        Sigkill = 13,
        Sigpipe = 14,
        Sigpoll = 15,
        Sigprof = 16,
        Sigpwr = 17,
        Sigquit = 18,
        Sigsegv = 19,
        Sigstkflt = 20,
        Sigstop = 21,
        Sigsys = 22,
        Sigterm = 23,
        Sigtrap = 24,
        Sigtstp = 25,
        Sigttin = 26,
        Sigttou = 27,
        Sigurg = 28,
        Sigusr1 = 29,
        Sigusr2 = 30,
        Sigvtalrm = 31,
        Sigwinch = 32,
        Sigxcpu = 33,
        Sigxfsz = 34,
        Sigrtmin = 35,
        Sigrtminplus1 = 36,
        Sigrtminplus2 = 37,
        Sigrtminplus3 = 38,
        Sigrtminplus4 = 39,
        Sigrtminplus5 = 40,
        Sigrtminplus6 = 41,
        Sigrtminplus7 = 42,
        Sigrtminplus8 = 43,
        Sigrtminplus9 = 44,
        Sigrtminplus10 = 45,
        Sigrtminplus11 = 46,
        Sigrtminplus12 = 47,
        Sigrtminplus13 = 48,
        Sigrtminplus14 = 49,
        Sigrtminplus15 = 50,
        Sigrtmaxminus14 = 51,
        Sigrtmaxminus13 = 52,
        Sigrtmaxminus12 = 53,
        Sigrtmaxminus11 = 54,
        Sigrtmaxminus10 = 55,
        Sigrtmaxminus9 = 56,
        Sigrtmaxminus8 = 57,
        Sigrtmaxminus7 = 58,
        Sigrtmaxminus6 = 59,
        Sigrtmaxminus5 = 60,
        Sigrtmaxminus4 = 61,
        Sigrtmaxminus3 = 62,
        Sigrtmaxminus2 = 63,
        Sigrtmaxminus1 = 64,
        Sigrtmax = 65,
    }
    ContainerState { Created = 0, Running = 1, Exited = 2, Unknown = 3 }
    ContainerEventType { Created = 0, Started = 1, Stopped = 2, Deleted = 3 }
    CgroupDriver { Systemd = 0, Cgroupfs = 1 }
}

messages! {
    VersionRequest { version: String [string] 1 }
    VersionResponse {
        version: String [string] 1,
        runtime_name: String [string] 2,
        runtime_version: String [string] 3,
        runtime_api_version: String [string] 4,
    }
    DNSConfig {
        servers: Vec<String> [string, repeated] 1,
        searches: Vec<String> [string, repeated] 2,
        options: Vec<String> [string, repeated] 3,
    }
    PortMapping {
        protocol: i32 [enumeration = "Protocol"] 1,
        container_port: i32 [int32] 2,
        host_port: i32 [int32] 3,
        host_ip: String [string] 4,
    }
    Mount {
        container_path: String [string] 1,
        host_path: String [string] 2,
        readonly: bool [bool] 3,
        selinux_relabel: bool [bool] 4,
        propagation: i32 [enumeration = "MountPropagation"] 5,
        uid_mappings: Vec<IDMapping> [message, repeated] 6,
        gid_mappings: Vec<IDMapping> [message, repeated] 7,
        recursive_read_only: bool [bool] 8,
        image: Option<ImageSpec> [message, optional] 9,
        image_sub_path: String [string] 10,
        mount_options: Vec<String> [string, repeated] 11,
    }
    IDMapping { host_id: u32 [uint32] 1, container_id: u32 [uint32] 2, length: u32 [uint32] 3 }
    UserNamespace {
        mode: i32 [enumeration = "NamespaceMode"] 1,
        uids: Vec<IDMapping> [message, repeated] 2,
        gids: Vec<IDMapping> [message, repeated] 3,
    }
    NamespaceOption {
        network: i32 [enumeration = "NamespaceMode"] 1,
        pid: i32 [enumeration = "NamespaceMode"] 2,
        ipc: i32 [enumeration = "NamespaceMode"] 3,
        target_id: String [string] 4,
        userns_options: Option<UserNamespace> [message, optional] 5,
    }
    Int64Value { value: i64 [int64] 1 }
    LinuxSandboxSecurityContext {
        namespace_options: Option<NamespaceOption> [message, optional] 1,
        selinux_options: Option<SELinuxOption> [message, optional] 2,
        run_as_user: Option<Int64Value> [message, optional] 3,
        run_as_group: Option<Int64Value> [message, optional] 8,
        readonly_rootfs: bool [bool] 4,
        supplemental_groups: Vec<i64> [int64, repeated] 5,
        supplemental_groups_policy: i32 [enumeration = "SupplementalGroupsPolicy"] 11,
        privileged: bool [bool] 6,
        seccomp: Option<SecurityProfile> [message, optional] 9,
        apparmor: Option<SecurityProfile> [message, optional] 10,
        seccomp_profile_path: String [string] 7,
    }
    SecurityProfile { profile_type: i32 [enumeration = "ProfileType"] 1, localhost_ref: String [string] 2 }
    LinuxPodSandboxConfig {
        cgroup_parent: String [string] 1,
        security_context: Option<LinuxSandboxSecurityContext> [message, optional] 2,
        sysctls: BTreeMap<String, String> [btree_map = "string, string"] 3,
        overhead: Option<LinuxContainerResources> [message, optional] 4,
        resources: Option<LinuxContainerResources> [message, optional] 5,
    }
    PodSandboxMetadata {
        name: String [string] 1,
        uid: String [string] 2,
        namespace: String [string] 3,
        attempt: u32 [uint32] 4,
    }
    PodSandboxConfig {
        metadata: Option<PodSandboxMetadata> [message, optional] 1,
        hostname: String [string] 2,
        log_directory: String [string] 3,
        dns_config: Option<DNSConfig> [message, optional] 4,
        port_mappings: Vec<PortMapping> [message, repeated] 5,
        labels: BTreeMap<String, String> [btree_map = "string, string"] 6,
        annotations: BTreeMap<String, String> [btree_map = "string, string"] 7,
        linux: Option<LinuxPodSandboxConfig> [message, optional] 8,
    }
    RunPodSandboxRequest {
        config: Option<PodSandboxConfig> [message, optional] 1,
        runtime_handler: String [string] 2,
    }
    RunPodSandboxResponse { pod_sandbox_id: String [string] 1 }
    StopPodSandboxRequest { pod_sandbox_id: String [string] 1 }
    StopPodSandboxResponse {}
    RemovePodSandboxRequest { pod_sandbox_id: String [string] 1 }
    RemovePodSandboxResponse {}
    PodSandboxStatusRequest { pod_sandbox_id: String [string] 1, verbose: bool [bool] 2 }
    PodIP { ip: String [string] 1 }
    PodSandboxNetworkStatus { ip: String [string] 1, additional_ips: Vec<PodIP> [message, repeated] 2 }
    Namespace { options: Option<NamespaceOption> [message, optional] 2 }
    LinuxPodSandboxStatus { namespaces: Option<Namespace> [message, optional] 1 }
    PodSandboxStatus {
        id: String [string] 1,
        metadata: Option<PodSandboxMetadata> [message, optional] 2,
        state: i32 [enumeration = "PodSandboxState"] 3,
        created_at: i64 [int64] 4,
        network: Option<PodSandboxNetworkStatus> [message, optional] 5,
        linux: Option<LinuxPodSandboxStatus> [message, optional] 6,
        labels: BTreeMap<String, String> [btree_map = "string, string"] 7,
        annotations: BTreeMap<String, String> [btree_map = "string, string"] 8,
        runtime_handler: String [string] 9,
    }
    PodSandboxStatusResponse {
        status: Option<PodSandboxStatus> [message, optional] 1,
        info: BTreeMap<String, String> [btree_map = "string, string"] 2,
        containers_statuses: Vec<ContainerStatus> [message, repeated] 3,
        timestamp: i64 [int64] 4,
    }
    PodSandboxStateValue { state: i32 [enumeration = "PodSandboxState"] 1 }
    PodSandboxFilter {
        id: String [string] 1,
        state: Option<PodSandboxStateValue> [message, optional] 2,
        label_selector: BTreeMap<String, String> [btree_map = "string, string"] 3,
    }
    ListPodSandboxRequest { filter: Option<PodSandboxFilter> [message, optional] 1 }
    PodSandbox {
        id: String [string] 1,
        metadata: Option<PodSandboxMetadata> [message, optional] 2,
        state: i32 [enumeration = "PodSandboxState"] 3,
        created_at: i64 [int64] 4,
        labels: BTreeMap<String, String> [btree_map = "string, string"] 5,
        annotations: BTreeMap<String, String> [btree_map = "string, string"] 6,
        runtime_handler: String [string] 7,
    }
    ListPodSandboxResponse { items: Vec<PodSandbox> [message, repeated] 1 }
    PodSandboxStatsRequest { pod_sandbox_id: String [string] 1 }
    PodSandboxStatsResponse { stats: Option<PodSandboxStats> [message, optional] 1 }
    PodSandboxStatsFilter {
        id: String [string] 1,
        label_selector: BTreeMap<String, String> [btree_map = "string, string"] 2,
    }
    ListPodSandboxStatsRequest { filter: Option<PodSandboxStatsFilter> [message, optional] 1 }
    ListPodSandboxStatsResponse { stats: Vec<PodSandboxStats> [message, repeated] 1 }
    PodSandboxAttributes {
        id: String [string] 1,
        metadata: Option<PodSandboxMetadata> [message, optional] 2,
        labels: BTreeMap<String, String> [btree_map = "string, string"] 3,
        annotations: BTreeMap<String, String> [btree_map = "string, string"] 4,
    }
    PodSandboxStats {
        attributes: Option<PodSandboxAttributes> [message, optional] 1,
        linux: Option<LinuxPodSandboxStats> [message, optional] 2,
    }
    LinuxPodSandboxStats {
        cpu: Option<CpuUsage> [message, optional] 1,
        memory: Option<MemoryUsage> [message, optional] 2,
        network: Option<NetworkUsage> [message, optional] 3,
        process: Option<ProcessUsage> [message, optional] 4,
        containers: Vec<ContainerStats> [message, repeated] 5,
        io: Option<IoUsage> [message, optional] 6,
    }
    NetworkUsage {
        timestamp: i64 [int64] 1,
        default_interface: Option<NetworkInterfaceUsage> [message, optional] 2,
        interfaces: Vec<NetworkInterfaceUsage> [message, repeated] 3,
    }
    NetworkInterfaceUsage {
        name: String [string] 1,
        rx_bytes: Option<UInt64Value> [message, optional] 2,
        rx_errors: Option<UInt64Value> [message, optional] 3,
        tx_bytes: Option<UInt64Value> [message, optional] 4,
        tx_errors: Option<UInt64Value> [message, optional] 5,
    }
    ProcessUsage { timestamp: i64 [int64] 1, process_count: Option<UInt64Value> [message, optional] 2 }
    ImageSpec {
        image: String [string] 1,
        annotations: BTreeMap<String, String> [btree_map = "string, string"] 2,
        user_specified_image: String [string] 18,
        runtime_handler: String [string] 19,
        image_ref: String [string] 20,
    }
    KeyValue { key: String [string] 1, value: Vec<u8> [bytes = "vec"] 2 }
    LinuxContainerResources {
        cpu_period: i64 [int64] 1,
        cpu_quota: i64 [int64] 2,
        cpu_shares: i64 [int64] 3,
        memory_limit_in_bytes: i64 [int64] 4,
        oom_score_adj: i64 [int64] 5,
        cpuset_cpus: String [string] 6,
        cpuset_mems: String [string] 7,
        hugepage_limits: Vec<HugepageLimit> [message, repeated] 8,
        unified: BTreeMap<String, String> [btree_map = "string, string"] 9,
        memory_swap_limit_in_bytes: i64 [int64] 10,
    }
    HugepageLimit { page_size: String [string] 1, limit: u64 [uint64] 2 }
    SELinuxOption {
        user: String [string] 1,
        role: String [string] 2,
        r#type: String [string] 3,
        level: String [string] 4,
    }
    Capability {
        add_capabilities: Vec<String> [string, repeated] 1,
        drop_capabilities: Vec<String> [string, repeated] 2,
        add_ambient_capabilities: Vec<String> [string, repeated] 3,
    }
    LinuxContainerSecurityContext {
        capabilities: Option<Capability> [message, optional] 1,
        privileged: bool [bool] 2,
        namespace_options: Option<NamespaceOption> [message, optional] 3,
        selinux_options: Option<SELinuxOption> [message, optional] 4,
        run_as_user: Option<Int64Value> [message, optional] 5,
        run_as_group: Option<Int64Value> [message, optional] 12,
        run_as_username: String [string] 6,
        readonly_rootfs: bool [bool] 7,
        supplemental_groups: Vec<i64> [int64, repeated] 8,
        supplemental_groups_policy: i32 [enumeration = "SupplementalGroupsPolicy"] 17,
        no_new_privs: bool [bool] 11,
        masked_paths: Vec<String> [string, repeated] 13,
        readonly_paths: Vec<String> [string, repeated] 14,
        seccomp: Option<SecurityProfile> [message, optional] 15,
        apparmor: Option<SecurityProfile> [message, optional] 16,
        apparmor_profile: String [string] 9,
        seccomp_profile_path: String [string] 10,
    }
    LinuxContainerConfig {
        resources: Option<LinuxContainerResources> [message, optional] 1,
        security_context: Option<LinuxContainerSecurityContext> [message, optional] 2,
    }
    LinuxContainerUser { uid: i64 [int64] 1, gid: i64 [int64] 2, supplemental_groups: Vec<i64> [int64, repeated] 3 }
    ContainerMetadata { name: String [string] 1, attempt: u32 [uint32] 2 }
    Device { container_path: String [string] 1, host_path: String [string] 2, permissions: String [string] 3 }
    ContainerConfig {
        metadata: Option<ContainerMetadata> [message, optional] 1,
        image: Option<ImageSpec> [message, optional] 2,
        command: Vec<String> [string, repeated] 3,
        args: Vec<String> [string, repeated] 4,
        working_dir: String [string] 5,
        envs: Vec<KeyValue> [message, repeated] 6,
        mounts: Vec<Mount> [message, repeated] 7,
        devices: Vec<Device> [message, repeated] 8,
        labels: BTreeMap<String, String> [btree_map = "string, string"] 9,
        annotations: BTreeMap<String, String> [btree_map = "string, string"] 10,
        log_path: String [string] 11,
        stdin: bool [bool] 12,
        stdin_once: bool [bool] 13,
        tty: bool [bool] 14,
        linux: Option<LinuxContainerConfig> [message, optional] 15,
        stop_signal: i32 [enumeration = "Signal"] 18,
    }
    CreateContainerRequest {
        pod_sandbox_id: String [string] 1,
        config: Option<ContainerConfig> [message, optional] 2,
        sandbox_config: Option<PodSandboxConfig> [message, optional] 3,
    }
    CreateContainerResponse { container_id: String [string] 1 }
    StartContainerRequest { container_id: String [string] 1 }
    StartContainerResponse {}
    StopContainerRequest { container_id: String [string] 1, timeout: i64 [int64] 2 }
    StopContainerResponse {}
    RemoveContainerRequest { container_id: String [string] 1 }
    RemoveContainerResponse {}
    ContainerStateValue { state: i32 [enumeration = "ContainerState"] 1 }
    ContainerFilter {
        id: String [string] 1,
        state: Option<ContainerStateValue> [message, optional] 2,
        pod_sandbox_id: String [string] 3,
        label_selector: BTreeMap<String, String> [btree_map = "string, string"] 4,
    }
    ListContainersRequest { filter: Option<ContainerFilter> [message, optional] 1 }
    Container {
        id: String [string] 1,
        pod_sandbox_id: String [string] 2,
        metadata: Option<ContainerMetadata> [message, optional] 3,
        image: Option<ImageSpec> [message, optional] 4,
        image_ref: String [string] 5,
        state: i32 [enumeration = "ContainerState"] 6,
        created_at: i64 [int64] 7,
        labels: BTreeMap<String, String> [btree_map = "string, string"] 8,
        annotations: BTreeMap<String, String> [btree_map = "string, string"] 9,
        image_id: String [string] 10,
    }
    ListContainersResponse { containers: Vec<Container> [message, repeated] 1 }
    ContainerStatusRequest { container_id: String [string] 1, verbose: bool [bool] 2 }
    ContainerStatus {
        id: String [string] 1,
        metadata: Option<ContainerMetadata> [message, optional] 2,
        state: i32 [enumeration = "ContainerState"] 3,
        created_at: i64 [int64] 4,
        started_at: i64 [int64] 5,
        finished_at: i64 [int64] 6,
        exit_code: i32 [int32] 7,
        image: Option<ImageSpec> [message, optional] 8,
        image_ref: String [string] 9,
        reason: String [string] 10,
        message: String [string] 11,
        labels: BTreeMap<String, String> [btree_map = "string, string"] 12,
        annotations: BTreeMap<String, String> [btree_map = "string, string"] 13,
        mounts: Vec<Mount> [message, repeated] 14,
        log_path: String [string] 15,
        resources: Option<ContainerResources> [message, optional] 16,
        image_id: String [string] 17,
        user: Option<ContainerUser> [message, optional] 18,
        stop_signal: i32 [enumeration = "Signal"] 19,
    }
    ContainerStatusResponse {
        status: Option<ContainerStatus> [message, optional] 1,
        info: BTreeMap<String, String> [btree_map = "string, string"] 2,
    }
    ContainerResources { linux: Option<LinuxContainerResources> [message, optional] 1 }
    ContainerUser { linux: Option<LinuxContainerUser> [message, optional] 1 }
    UpdateContainerResourcesRequest {
        container_id: String [string] 1,
        linux: Option<LinuxContainerResources> [message, optional] 2,
        annotations: BTreeMap<String, String> [btree_map = "string, string"] 4,
    }
    UpdateContainerResourcesResponse {}
    ExecSyncRequest { container_id: String [string] 1, cmd: Vec<String> [string, repeated] 2, timeout: i64 [int64] 3 }
    ExecSyncResponse {
        stdout: Vec<u8> [bytes = "vec"] 1,
        stderr: Vec<u8> [bytes = "vec"] 2,
        exit_code: i32 [int32] 3,
    }
    ExecRequest {
        container_id: String [string] 1,
        cmd: Vec<String> [string, repeated] 2,
        tty: bool [bool] 3,
        stdin: bool [bool] 4,
        stdout: bool [bool] 5,
        stderr: bool [bool] 6,
    }
    ExecResponse { url: String [string] 1 }
    AttachRequest {
        container_id: String [string] 1,
        stdin: bool [bool] 2,
        tty: bool [bool] 3,
        stdout: bool [bool] 4,
        stderr: bool [bool] 5,
    }
    AttachResponse { url: String [string] 1 }
    PortForwardRequest { pod_sandbox_id: String [string] 1, port: Vec<i32> [int32, repeated] 2 }
    PortForwardResponse { url: String [string] 1 }
    ImageFilter { image: Option<ImageSpec> [message, optional] 1 }
    ListImagesRequest { filter: Option<ImageFilter> [message, optional] 1 }
    Image {
        id: String [string] 1,
        repo_tags: Vec<String> [string, repeated] 2,
        repo_digests: Vec<String> [string, repeated] 3,
        size: u64 [uint64] 4,
        uid: Option<Int64Value> [message, optional] 5,
        username: String [string] 6,
        spec: Option<ImageSpec> [message, optional] 7,
        pinned: bool [bool] 8,
    }
    ListImagesResponse { images: Vec<Image> [message, repeated] 1 }
    ImageStatusRequest { image: Option<ImageSpec> [message, optional] 1, verbose: bool [bool] 2 }
    ImageStatusResponse {
        image: Option<Image> [message, optional] 1,
        info: BTreeMap<String, String> [btree_map = "string, string"] 2,
    }
    AuthConfig {
        username: String [string] 1,
        password: String [string] 2,
        auth: String [string] 3,
        server_address: String [string] 4,
        identity_token: String [string] 5,
        registry_token: String [string] 6,
    }
    PullImageRequest {
        image: Option<ImageSpec> [message, optional] 1,
        auth: Option<AuthConfig> [message, optional] 2,
        sandbox_config: Option<PodSandboxConfig> [message, optional] 3,
    }
    PullImageResponse { image_ref: String [string] 1 }
    RemoveImageRequest { image: Option<ImageSpec> [message, optional] 1 }
    RemoveImageResponse {}
    NetworkConfig { pod_cidr: String [string] 1 }
    RuntimeConfig { network_config: Option<NetworkConfig> [message, optional] 1 }
    UpdateRuntimeConfigRequest { runtime_config: Option<RuntimeConfig> [message, optional] 1 }
    UpdateRuntimeConfigResponse {}
    RuntimeCondition {
        r#type: String [string] 1,
        status: bool [bool] 2,
        reason: String [string] 3,
        message: String [string] 4,
    }
    RuntimeStatus { conditions: Vec<RuntimeCondition> [message, repeated] 1 }
    StatusRequest { verbose: bool [bool] 1 }
    RuntimeHandlerFeatures { recursive_read_only_mounts: bool [bool] 1, user_namespaces: bool [bool] 2 }
    RuntimeHandler { name: String [string] 1, features: Option<RuntimeHandlerFeatures> [message, optional] 2 }
    RuntimeFeatures {
        supplemental_groups_policy: bool [bool] 1,
        user_namespaces_host_network: bool [bool] 2,
        mount_options: bool [bool] 3,
    }
    StatusResponse {
        status: Option<RuntimeStatus> [message, optional] 1,
        info: BTreeMap<String, String> [btree_map = "string, string"] 2,
        runtime_handlers: Vec<RuntimeHandler> [message, repeated] 3,
        features: Option<RuntimeFeatures> [message, optional] 4,
    }
    ImageFsInfoRequest {}
    UInt64Value { value: u64 [uint64] 1 }
    FilesystemIdentifier { mountpoint: String [string] 1 }
    FilesystemUsage {
        timestamp: i64 [int64] 1,
        fs_id: Option<FilesystemIdentifier> [message, optional] 2,
        used_bytes: Option<UInt64Value> [message, optional] 3,
        inodes_used: Option<UInt64Value> [message, optional] 4,
    }
    ImageFsInfoResponse {
        image_filesystems: Vec<FilesystemUsage> [message, repeated] 1,
        container_filesystems: Vec<FilesystemUsage> [message, repeated] 2,
    }
    ContainerStatsRequest { container_id: String [string] 1 }
    ContainerStatsResponse { stats: Option<ContainerStats> [message, optional] 1 }
    ListContainerStatsRequest { filter: Option<ContainerStatsFilter> [message, optional] 1 }
    ContainerStatsFilter {
        id: String [string] 1,
        pod_sandbox_id: String [string] 2,
        label_selector: BTreeMap<String, String> [btree_map = "string, string"] 3,
    }
    ListContainerStatsResponse { stats: Vec<ContainerStats> [message, repeated] 1 }
    ContainerAttributes {
        id: String [string] 1,
        metadata: Option<ContainerMetadata> [message, optional] 2,
        labels: BTreeMap<String, String> [btree_map = "string, string"] 3,
        annotations: BTreeMap<String, String> [btree_map = "string, string"] 4,
    }
    ContainerStats {
        attributes: Option<ContainerAttributes> [message, optional] 1,
        cpu: Option<CpuUsage> [message, optional] 2,
        memory: Option<MemoryUsage> [message, optional] 3,
        writable_layer: Option<FilesystemUsage> [message, optional] 4,
        swap: Option<SwapUsage> [message, optional] 5,
        io: Option<IoUsage> [message, optional] 6,
    }
    PsiStats { full: Option<PsiData> [message, optional] 1, some: Option<PsiData> [message, optional] 2 }
    PsiData { total: u64 [uint64] 1, avg10: f64 [double] 2, avg60: f64 [double] 3, avg300: f64 [double] 4 }
    CpuUsage {
        timestamp: i64 [int64] 1,
        usage_core_nano_seconds: Option<UInt64Value> [message, optional] 2,
        usage_nano_cores: Option<UInt64Value> [message, optional] 3,
        psi: Option<PsiStats> [message, optional] 4,
    }
    MemoryUsage {
        timestamp: i64 [int64] 1,
        working_set_bytes: Option<UInt64Value> [message, optional] 2,
        available_bytes: Option<UInt64Value> [message, optional] 3,
        usage_bytes: Option<UInt64Value> [message, optional] 4,
        rss_bytes: Option<UInt64Value> [message, optional] 5,
        page_faults: Option<UInt64Value> [message, optional] 6,
        major_page_faults: Option<UInt64Value> [message, optional] 7,
        psi: Option<PsiStats> [message, optional] 8,
    }
    IoUsage { timestamp: i64 [int64] 1, psi: Option<PsiStats> [message, optional] 2 }
    SwapUsage {
        timestamp: i64 [int64] 1,
        swap_available_bytes: Option<UInt64Value> [message, optional] 2,
        swap_usage_bytes: Option<UInt64Value> [message, optional] 3,
    }
    ReopenContainerLogRequest { container_id: String [string] 1 }
    ReopenContainerLogResponse {}
    GetEventsRequest {}
    ContainerEventResponse {
        container_id: String [string] 1,
        container_event_type: i32 [enumeration = "ContainerEventType"] 2,
        created_at: i64 [int64] 3,
        pod_sandbox_status: Option<PodSandboxStatus> [message, optional] 4,
        containers_statuses: Vec<ContainerStatus> [message, repeated] 5,
    }
    RuntimeConfigRequest {}
    RuntimeConfigResponse { linux: Option<LinuxRuntimeConfiguration> [message, optional] 1 }
    LinuxRuntimeConfiguration { cgroup_driver: i32 [enumeration = "CgroupDriver"] 1 }
}
