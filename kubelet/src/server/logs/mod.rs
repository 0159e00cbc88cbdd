//! Container logs: which container's, which part of them, and how they come off the disk.

mod line;
mod options;
mod read;
mod which;

pub(super) use options::{Invalid, Options};
pub(super) use read::{Source, send};
pub(super) use which::container_id;
