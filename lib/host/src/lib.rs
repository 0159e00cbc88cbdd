//! What the `pintle` binary and the test lab ask of the machine.
//!
//! - [`process`]: processes that outlive their starter, found again and stopped by their own id;
//! - [`pki`]: certificate authorities, certificates and kubeconfigs as files;
//! - [`cgroup`]: the control groups of one name in every hierarchy;
//! - [`netns`]: work in another network namespace;
//! - [`upstream`]: command lines of upstream's etcd and kube-apiserver.
//!
//! Invariants: nothing here knows Kubernetes' kinds or this project's layout of directories; a process is signalled only
//! if it is the one that was started.

pub mod cgroup;
pub mod netns;
pub mod pki;
pub mod process;
pub mod upstream;
