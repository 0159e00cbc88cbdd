//! Finds the published API descriptions: Go modules in the module cache.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

/// The Kubernetes release whose API the tables describe.
pub const RELEASE: &str = "1.37.2";

/// Where the modules of the release are.
#[derive(Debug)]
pub struct Modules {
    cache: PathBuf,
    release: String,
}

impl Modules {
    /// Looks for the modules; an error says what is missing.
    pub fn find(release: &str) -> Result<Modules> {
        let out = Command::new("go").args(["env", "GOMODCACHE"]).output().context("the go command is not here")?;
        let cache = PathBuf::from(String::from_utf8(out.stdout)?.trim());
        let modules = Modules { cache, release: release.to_owned() };
        for name in ["kubernetes", "api", "apimachinery", "apiextensions-apiserver", "kube-aggregator"] {
            let path = modules.path(name);
            if !path.is_dir() {
                bail!("the Go module cache does not have k8s.io/{name} of Kubernetes v{release}");
            }
        }
        Ok(modules)
    }

    /// Folder of the module `k8s.io/<name>`.
    pub fn path(&self, name: &str) -> PathBuf {
        let release = &self.release;
        let minor = release.strip_prefix("1.").unwrap_or(release);
        let version = if name == "kubernetes" { release.clone() } else { format!("0.{minor}") };
        self.cache.join("k8s.io").join(format!("{name}@v{version}"))
    }

    /// Folder of a Go package path such as `k8s.io/api/core/v1`.
    pub fn package(&self, import: &str) -> Option<PathBuf> {
        let rest = import.strip_prefix("k8s.io/")?;
        let (module, inner) = rest.split_once('/')?;
        Some(self.path(module).join(inner))
    }
}

/// The text of the package's Go files that people wrote, in order of their names.
pub fn go_files(folder: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let made = ["_test.go", ".pb.go", "_swagger_doc_generated.go"].iter().any(|end| name.ends_with(end));
        if name.ends_with(".go") && !made && !name.starts_with("zz_generated") {
            paths.push(path);
        }
    }
    paths.sort();
    paths.iter().map(|path| Ok(std::fs::read_to_string(path)?)).collect()
}
