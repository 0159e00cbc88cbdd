//! What ginkgo's processes say over HTTP, as far as it is needed: reports of single specs, of their progress, of a suite.

use jiff::Timestamp;
use serde::Deserialize;

/// The outcome of one spec or suite node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct SpecReport {
    #[serde(deserialize_with = "nullable")]
    pub container_hierarchy_texts: Vec<String>,
    pub leaf_node_type: String,
    pub leaf_node_location: Location,
    pub leaf_node_text: String,
    pub state: String,
    pub start_time: Option<Timestamp>,
    /// Nanoseconds.
    pub run_time: u64,
    pub failure: Option<Failure>,
    #[serde(deserialize_with = "nullable")]
    pub additional_failures: Vec<AdditionalFailure>,
    pub captured_ginkgo_writer_output: String,
    pub captured_std_out_err: String,
    #[serde(deserialize_with = "nullable")]
    pub spec_events: Vec<SpecEvent>,
}

impl SpecReport {
    /// The full name, as tests are selected by.
    pub fn name(&self) -> String {
        full_name(&self.container_hierarchy_texts, &self.leaf_node_text)
    }

    /// A test, not a node of the suite.
    pub fn is_test(&self) -> bool {
        self.leaf_node_type == "It"
    }
}

/// Why a spec failed, or was skipped.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Failure {
    pub message: String,
    pub location: Location,
    pub timeline_location: TimelineLocation,
    pub forwarded_panic: String,
}

/// A failure that followed another one, mostly while cleaning up.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AdditionalFailure {
    pub state: String,
    pub failure: Failure,
}

/// A place in the source.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Location {
    pub file_name: String,
    pub line_number: u32,
    pub full_stack_trace: String,
    pub custom_message: String,
}

impl std::fmt::Display for Location {
    /// The file within its module: where modules lie on a machine tells nobody anything.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.custom_message.is_empty() {
            return f.write_str(&self.custom_message);
        }
        let within = match self.file_name.split_once('@') {
            Some((_, versioned)) => versioned.split_once('/').map_or(versioned, |(_, path)| path),
            None => &self.file_name,
        };
        write!(f, "{within}:{}", self.line_number)
    }
}

/// A place in a spec's output and in time.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TimelineLocation {
    /// In bytes of the spec's own output.
    pub offset: usize,
    pub order: u64,
    pub time: Option<Timestamp>,
}

/// Something that happened while a spec ran.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct SpecEvent {
    pub spec_event_type: String,
    pub timeline_location: TimelineLocation,
    pub message: String,
}

/// What a process is busy with.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ProgressReport {
    #[serde(deserialize_with = "nullable")]
    pub container_hierarchy_texts: Vec<String>,
    pub leaf_node_text: String,
    pub spec_start_time: Option<Timestamp>,
    pub current_step_text: String,
}

impl ProgressReport {
    /// The full name of the running test.
    pub fn name(&self) -> String {
        full_name(&self.container_hierarchy_texts, &self.leaf_node_text)
    }
}

fn full_name(containers: &[String], leaf: &str) -> String {
    let texts = containers.iter().map(String::as_str).chain([leaf]);
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Go writes an empty list as null.
fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_report_is_read() {
        let report: SpecReport = serde_json::from_str(
            r#"{"ContainerHierarchyTexts":["[sig-apps] Job",""],"LeafNodeType":"It","LeafNodeText":"works","State":"failed",
            "StartTime":"2026-11-30T09:33:24.46Z","RunTime":1500000000,"AdditionalFailures":null,
            "Failure":{"Message":"no","Location":{"FileName":"/mod/k8s.io/kubernetes@v1.37.2/test/e2e/apps/job.go","LineNumber":7}}}"#,
        )
        .unwrap();
        assert_eq!((report.name().as_str(), report.is_test()), ("[sig-apps] Job works", true));
        assert_eq!(report.failure.unwrap().location.to_string(), "test/e2e/apps/job.go:7");
    }

    #[test]
    fn suite_nodes_have_no_containers() {
        let node: SpecReport =
            serde_json::from_str(r#"{"ContainerHierarchyTexts":null,"LeafNodeType":"ReportAfterSuite"}"#).unwrap();
        assert!(!node.is_test() && node.name().is_empty());
    }
}
