//! How the names of kinds are checked that aren't named like most.

use pintle_machinery::names;
use serde_json::Value;

use super::validate::addresses::address_fault;
use crate::engine::meta::mask_trailing_dash;

/// A DNS-1123 label.
pub fn label(_object: &Value, name: &str, prefix: bool) -> Vec<String> {
    names::dns1123_label(&mask_trailing_dash(name, prefix))
}

/// Anything that fits into one segment of a path.
pub fn path_segment(_object: &Value, name: &str, prefix: bool) -> Vec<String> {
    if prefix {
        // A prefix alone may be what a whole name may not.
        return names::path_segment(&format!("{name}a"));
    }
    names::path_segment(name)
}

/// An IP address in its canonical form.
pub fn ip_address(_object: &Value, name: &str, _prefix: bool) -> Vec<String> {
    address_fault(name).into_iter().collect()
}

/// Names of CronJobs leave room for what their Jobs append.
pub fn cron_job(_object: &Value, name: &str, prefix: bool) -> Vec<String> {
    let mut errors = names::dns1123_subdomain(&mask_trailing_dash(name, prefix));
    if name.len() > 52 {
        errors.push("must be no more than 52 characters".into());
    }
    errors
}
