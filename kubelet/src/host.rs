//! Answers the node's own server: which pods and containers there are, and what they use.

use std::sync::Arc;

use anyhow::Context;
use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use pintle_cri::messages as cri;
use serde_json::{Value, json};

use crate::node::machine;
use crate::pods::manager::Manager;
use crate::pods::model::{self, RuntimePod, label};
use crate::pods::{observe, spec};
use crate::server::Host;
use crate::server::stats;
use crate::shared::Shared;

/// The kubelet as its server sees it.
pub struct Answers {
    /// What all parts share.
    pub shared: Arc<Shared>,
    /// The pods.
    pub manager: Manager,
    /// When the kubelet started.
    pub started: Timestamp,
}

impl Answers {
    async fn runtime_pod(&self, pod: &Pod) -> anyhow::Result<RuntimePod> {
        // The API shows a static pod under another uid than the runtime.
        let uid = spec::annotation(pod, spec::CONFIG_MIRROR).unwrap_or_else(|| spec::uid(pod));
        observe::observe(&self.shared.cri, uid, &RuntimePod::default()).await.context("asking the runtime")
    }
}

#[async_trait]
impl Host for Answers {
    fn node_name(&self) -> &str {
        &self.shared.config.node_name
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        self.manager.pods()
    }

    async fn running_pods(&self) -> anyhow::Result<Vec<Pod>> {
        let listing = self.shared.cri.list_containers(cri::ListContainersRequest::default()).await?;
        let mut pods: std::collections::BTreeMap<String, Value> = std::collections::BTreeMap::new();
        for container in listing.containers {
            if model::state(container.state) != model::State::Running {
                continue;
            }
            let text = |key: &str| container.labels.get(key).cloned().unwrap_or_default();
            let pod = pods.entry(text(label::POD_UID)).or_insert_with(|| {
                let metadata = json!({"name": text(label::POD_NAME), "namespace": text(label::POD_NAMESPACE), "uid": text(label::POD_UID)});
                json!({"metadata": metadata, "spec": {"containers": []}})
            });
            let image = container.image.map(|i| i.image).unwrap_or_default();
            if let Some(list) = pod.pointer_mut("/spec/containers").and_then(Value::as_array_mut) {
                list.push(json!({"name": text(label::CONTAINER_NAME), "image": image, "resources": {}}));
            }
        }
        pods.into_values().map(|v| serde_json::from_value(v).context("pod")).collect()
    }

    async fn running_container(&self, pod: &Pod, container: &str) -> anyhow::Result<Option<String>> {
        let runtime = self.runtime_pod(pod).await?;
        Ok(runtime.running().find(|r| r.name == container).map(|r| r.id.clone()))
    }

    async fn sandbox(&self, pod: &Pod) -> anyhow::Result<Option<String>> {
        Ok(self.runtime_pod(pod).await?.sandbox().filter(|s| s.ready).map(|s| s.id.clone()))
    }

    async fn summary(&self) -> anyhow::Result<stats::Summary> {
        let answer = self.shared.cri.list_container_stats(cri::ListContainerStatsRequest::default()).await?;
        let pods = self.manager.pods();
        Ok(stats::Summary { node: self.node_stats(), pods: pods.iter().map(|p| pod_stats(p, &answer.stats)).collect() })
    }

    fn config(&self) -> Value {
        let c = &self.shared.config;
        json!({
            "kind": "KubeletConfiguration",
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "clusterDNS": c.cluster_dns,
            "clusterDomain": c.cluster_domain,
            "maxPods": c.max_pods,
            "port": c.port,
            "cgroupRoot": c.cgroup_root,
            "containerRuntimeEndpoint": c.cri_endpoint,
            "staticPodPath": c.static_pod_dir,
            "nodeStatusUpdateFrequency": format!("{}s", c.status_update_frequency.as_secs()),
            "nodeStatusReportFrequency": format!("{}s", c.status_report_frequency.as_secs()),
            "nodeLeaseDurationSeconds": c.lease_duration.as_secs(),
            "syncFrequency": format!("{}s", c.sync_frequency.as_secs()),
            "imageGCHighThresholdPercent": c.image_gc.high_percent,
            "imageGCLowThresholdPercent": c.image_gc.low_percent,
        })
    }
}

impl Answers {
    fn node_stats(&self) -> stats::Node {
        let now = Timestamp::now();
        let memory = machine::memory();
        let disk = self.shared.machine.disk(&self.shared.config.root_dir);
        let used = (memory.total - memory.available).unsigned_abs();
        stats::Node {
            node_name: self.shared.config.node_name.clone(),
            start_time: Some(self.started),
            cpu: Some(stats::Cpu {
                time: now,
                usage_nano_cores: None,
                usage_core_nano_seconds: machine::cpu_nanoseconds(),
            }),
            memory: Some(stats::Memory {
                time: now,
                available_bytes: Some(memory.available.unsigned_abs()),
                usage_bytes: Some(used),
                working_set_bytes: Some(used),
                rss_bytes: None,
                page_faults: None,
                major_page_faults: None,
            }),
            network: None,
            fs: Some(stats::FileSystem {
                time: now,
                available_bytes: Some(disk.available.unsigned_abs()),
                capacity_bytes: Some(disk.total.unsigned_abs()),
                used_bytes: Some((disk.total - disk.available).unsigned_abs()),
                inodes_free: Some(disk.inodes_free),
                inodes: Some(disk.inodes),
                inodes_used: Some(disk.inodes - disk.inodes_free),
            }),
            runtime: None,
        }
    }
}

fn pod_stats(pod: &Pod, all: &[cri::ContainerStats]) -> stats::PodStats {
    let own = all.iter().filter(|s| {
        s.attributes.as_ref().and_then(|a| a.labels.get(label::POD_UID)).is_some_and(|uid| uid == spec::uid(pod))
    });
    let containers: Vec<stats::Container> = own.map(container_stats).collect();
    let sum = |of: fn(&stats::Container) -> Option<u64>| -> Option<u64> {
        let values: Vec<u64> = containers.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| values.iter().sum())
    };
    let now = Timestamp::now();
    let start = pod.status.as_ref().and_then(|s| s.start_time.as_ref()).map(|t| t.0);
    stats::PodStats {
        pod_ref: stats::PodReference {
            name: spec::name(pod).to_owned(),
            namespace: spec::namespace(pod).to_owned(),
            uid: spec::uid(pod).to_owned(),
        },
        start_time: start,
        cpu: Some(stats::Cpu {
            time: now,
            usage_nano_cores: sum(|c| c.cpu?.usage_nano_cores),
            usage_core_nano_seconds: sum(|c| c.cpu?.usage_core_nano_seconds),
        }),
        memory: Some(stats::Memory {
            time: now,
            available_bytes: None,
            usage_bytes: sum(|c| c.memory?.usage_bytes),
            working_set_bytes: sum(|c| c.memory?.working_set_bytes),
            rss_bytes: sum(|c| c.memory?.rss_bytes),
            page_faults: None,
            major_page_faults: None,
        }),
        containers,
        network: None,
        volumes: Vec::new(),
        ephemeral_storage: None,
    }
}

fn container_stats(s: &cri::ContainerStats) -> stats::Container {
    let name = s.attributes.as_ref().and_then(|a| a.labels.get(label::CONTAINER_NAME)).cloned().unwrap_or_default();
    let time = |nanos: i64| Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or_default();
    let number = |v: &Option<cri::UInt64Value>| v.as_ref().map(|v| v.value);
    stats::Container {
        name,
        start_time: None,
        cpu: s.cpu.as_ref().map(|c| stats::Cpu {
            time: time(c.timestamp),
            usage_nano_cores: number(&c.usage_nano_cores),
            usage_core_nano_seconds: number(&c.usage_core_nano_seconds),
        }),
        memory: s.memory.as_ref().map(|m| stats::Memory {
            time: time(m.timestamp),
            available_bytes: number(&m.available_bytes),
            usage_bytes: number(&m.usage_bytes),
            working_set_bytes: number(&m.working_set_bytes),
            rss_bytes: number(&m.rss_bytes),
            page_faults: number(&m.page_faults),
            major_page_faults: number(&m.major_page_faults),
        }),
        rootfs: s.writable_layer.as_ref().map(|f| stats::FileSystem {
            time: time(f.timestamp),
            available_bytes: None,
            capacity_bytes: None,
            used_bytes: number(&f.used_bytes),
            inodes_free: None,
            inodes: None,
            inodes_used: number(&f.inodes_used),
        }),
        logs: None,
    }
}
