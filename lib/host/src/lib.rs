//! What the `pintle` binary and the test lab ask of the machine.
//!
//! - [`file`]: files that are whole at any time, locks;
//! - [`owned`]: directories that are a cluster's, and their use by one process;
//! - [`output`]: what a command tells its user;
//! - [`process`]: processes that outlive their starter, found again and stopped by their own id;
//! - [`pki`]: certificate authorities, certificates and kubeconfigs as files;
//! - [`cgroup`]: the control groups of one name in every hierarchy;
//! - [`netns`]: work in another network namespace;
//! - [`upstream`]: command lines of upstream's etcd and kube-apiserver.
//!
//! Invariants: nothing here knows Kubernetes' kinds, or of this project's layout of directories more than the mark of a data
//! directory; a process is signalled only if it is the one that was started.

pub mod cgroup;
pub mod file;
pub mod netns;
pub mod output;
pub mod owned;
pub mod pki;
pub mod process;
pub mod upstream;
