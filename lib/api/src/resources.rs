//! The resource table: what is served under which name. Read once out of the committed table.

use std::sync::OnceLock;

use pintle_machinery::schema::Gvk;

/// A resource of one group and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// API group, empty for the core one.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Name in the path: `pods`.
    pub plural: &'static str,
    /// Name for one: `pod`.
    pub singular: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Lives in namespaces.
    pub namespaced: bool,
    /// What may be done with it, as discovery orders it.
    pub verbs: Vec<&'static str>,
    /// Short names for the command line.
    pub short_names: Vec<&'static str>,
    /// Groups of resources that it belongs to: `all`.
    pub categories: Vec<&'static str>,
    /// The hash that discovery shows of the version in which it is stored; empty if it is not stored.
    pub storage_version_hash: &'static str,
    /// Its subresources, as discovery orders them.
    pub subresources: Vec<Subresource>,
    /// A deletion is answered with the object rather than a Status.
    pub returns_deleted: bool,
    /// Upstream serves it unless it is told otherwise: its version is neither alpha nor beta.
    pub default_served: bool,
}

/// A subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// Name in the path: `status`.
    pub name: &'static str,
    /// The kind that is sent and answered.
    pub kind: Gvk,
    /// Whether discovery tells that kind's group and version because they are not the resource's.
    pub foreign: bool,
    /// What may be done with it.
    pub verbs: Vec<&'static str>,
}

impl Resource {
    /// The kind with group and version.
    pub fn gvk(&self) -> Gvk {
        Gvk::new(self.group, self.version, self.kind)
    }

    /// `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> String {
        self.gvk().api_version()
    }

    /// Whether the verb may be used.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// The subresource of that name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }
}

struct Table {
    resources: Vec<Resource>,
    /// Indices ordered by group, version, plural.
    order: Vec<usize>,
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let Some(resources) = parse(include_str!("../schema/v1.37/resources.txt")) else {
            // Cannot happen: the table is part of the program and a test reads it.
            panic!("the built-in resource table is malformed");
        };
        let mut order: Vec<usize> = (0..resources.len()).collect();
        order.sort_by_key(|&at| key(&resources[at]));
        Table { resources, order }
    })
}

fn key(resource: &Resource) -> (&'static str, &'static str, &'static str) {
    (resource.group, resource.version, resource.plural)
}

/// All resources that v1.37 knows, in discovery's order: groups by priority, a group's preferred version first.
pub fn resources() -> &'static [Resource] {
    &table().resources
}

/// The resource of that group, version and plural name.
pub fn resource(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    let table = table();
    let found = table.order.binary_search_by(|&at| key(&table.resources[at]).cmp(&(group, version, plural))).ok()?;
    Some(&table.resources[table.order[found]])
}

/// The resource whose objects are of that kind.
pub fn resource_of_kind(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    resources().iter().find(|one| one.group == group && one.version == version && one.kind == kind)
}

/// The groups with their versions, preferred first, in discovery's order; the core group is first. With
/// `default_only`, without what upstream does not serve unless told.
pub fn groups(default_only: bool) -> Vec<(&'static str, Vec<&'static str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for resource in resources().iter().filter(|resource| resource.default_served || !default_only) {
        match groups.iter_mut().find(|(group, _)| *group == resource.group) {
            Some((_, versions)) if versions.contains(&resource.version) => {}
            Some((_, versions)) => versions.push(resource.version),
            None => groups.push((resource.group, vec![resource.version])),
        }
    }
    groups
}

/// The groups and versions that upstream knows, served or not: the options kinds are kinds of all of them.
pub fn versions() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = include_str!("../schema/v1.37/versions.txt").lines();
    lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('/'))
}

fn parse(text: &'static str) -> Option<Vec<Resource>> {
    let mut resources: Vec<Resource> = Vec::new();
    let (mut group, mut version) = ("", "");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix("version ") {
            (group, version) = name.split_once('/').unwrap_or(("", name));
        } else if let Some(line) = line.strip_prefix("  ") {
            resources.last_mut()?.subresources.push(parse_subresource(group, version, line)?);
        } else {
            resources.push(parse_resource(group, version, line)?);
        }
    }
    Some(resources)
}

fn parse_resource(group: &'static str, version: &'static str, line: &'static str) -> Option<Resource> {
    let mut words = line.split(' ');
    let mut resource = Resource {
        group,
        version,
        plural: words.next()?,
        kind: words.next()?,
        singular: words.next()?,
        namespaced: words.next()? == "namespaced",
        verbs: words.next()?.split(',').collect(),
        short_names: Vec::new(),
        categories: Vec::new(),
        storage_version_hash: "",
        subresources: Vec::new(),
        returns_deleted: false,
        default_served: !version.contains("alpha") && !version.contains("beta"),
    };
    for word in words {
        match word.split_once('=')? {
            ("short", names) => resource.short_names = names.split(',').collect(),
            ("categories", names) => resource.categories = names.split(',').collect(),
            ("hash", hash) => resource.storage_version_hash = hash,
            ("deleted", "object") => resource.returns_deleted = true,
            _ => return None,
        }
    }
    Some(resource)
}

fn parse_subresource(group: &str, version: &str, line: &'static str) -> Option<Subresource> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let written = words.next()?;
    let parts: Vec<&str> = written.split('/').collect();
    let (kind, foreign) = match parts[..] {
        [kind] => (Gvk::new(group, version, kind), false),
        [group, version, kind] => (Gvk::new(group, version, kind), true),
        _ => return None,
    };
    Some(Subresource { name, kind, foreign, verbs: words.next()?.split(',').collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serves_what_upstream_serves() {
        let by_default = resources().iter().filter(|resource| resource.default_served);
        let (mut names, mut subs) = (0, 0);
        for resource in by_default {
            names += 1;
            subs += resource.subresources.len();
        }
        assert_eq!((names, subs), (72, 49));
    }

    #[test]
    fn finds_by_name_and_kind() {
        let pods = resource("", "v1", "pods").unwrap();
        assert!(pods.namespaced && pods.allows("watch") && pods.short_names == ["po"]);
        let eviction = pods.subresource("eviction").unwrap();
        assert!(pods.returns_deleted && !resource("apps", "v1", "deployments").unwrap().returns_deleted);
        assert!(eviction.foreign && eviction.kind == Gvk::new("policy", "v1", "Eviction"));
        assert_eq!(resource_of_kind("apps", "v1", "Deployment").unwrap().plural, "deployments");
        assert!(resource("apps", "v1", "pods").is_none());
    }

    #[test]
    fn every_kind_has_a_schema() {
        for resource in resources() {
            let all = resource.subresources.iter().map(|sub| sub.kind.clone()).chain([resource.gvk()]);
            for kind in all {
                assert!(crate::schema().kind(&kind.group, &kind.version, &kind.kind).is_some(), "{kind:?}");
            }
        }
    }

    #[test]
    fn every_served_version_is_a_known_one() {
        let known: Vec<(&str, &str)> = versions().collect();
        assert!(resources().iter().all(|resource| known.contains(&(resource.group, resource.version))));
    }

    #[test]
    fn prefers_the_first_version() {
        let groups = groups(true);
        assert_eq!(groups[0], ("", vec!["v1"]));
        assert!(groups.contains(&("autoscaling", vec!["v2", "v1"])));
    }
}
