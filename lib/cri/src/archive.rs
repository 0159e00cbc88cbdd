//! Images without a registry: OCI image layouts (image-spec v1) as tar archives, in the form that
//! `ctr images import` and containerd's CRI take, with the images' full names in annotations.

use std::collections::BTreeMap;
use std::io;

use serde_json::json;
use sha2::{Digest, Sha256};

/// One thing in a layer; parent directories are made as needed.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A regular file: path without leading slash, content, mode.
    File(String, Vec<u8>, u32),
    /// A symbolic link: path, target.
    Link(String, String),
    /// A directory: path, mode.
    Dir(String, u32),
}

/// An image of one uncompressed layer.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Full name, `registry/repository:tag`.
    pub name: String,
    /// Content.
    pub layer: Vec<Entry>,
    /// Entry point.
    pub entrypoint: Vec<String>,
    /// Default arguments.
    pub cmd: Vec<String>,
    /// `uid[:gid]`; empty for root.
    pub user: String,
}

/// The archive of the given images.
pub fn build(images: &[Image]) -> io::Result<Vec<u8>> {
    let mut blobs: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut manifests = Vec::new();
    for image in images {
        manifests.push(add(&mut blobs, image)?);
    }
    let index = serde_json::to_vec(&json!({"schemaVersion": 2, "manifests": manifests}))?;
    let mut entries = vec![
        Entry::File("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec(), 0o644),
        Entry::File("index.json".to_owned(), index, 0o644),
    ];
    entries.extend(blobs.into_iter().map(|(hex, content)| Entry::File(format!("blobs/sha256/{hex}"), content, 0o644)));
    tar_of(&entries)
}

/// Adds an image's blobs; returns its descriptor for the index.
fn add(blobs: &mut BTreeMap<String, Vec<u8>>, image: &Image) -> io::Result<serde_json::Value> {
    let mut put = |content: Vec<u8>| {
        let hex: String = Sha256::digest(&content).iter().map(|b| format!("{b:02x}")).collect();
        let described = (format!("sha256:{hex}"), content.len());
        blobs.insert(hex, content);
        described
    };
    let (layer, layer_size) = put(tar_of(&image.layer)?);
    let config = json!({
        "architecture": architecture(), "os": "linux",
        "config": {
            "Entrypoint": image.entrypoint, "Cmd": image.cmd, "User": image.user,
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [layer]},
    });
    let (config, config_size) = put(serde_json::to_vec(&config)?);
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": config, "size": config_size},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": layer, "size": layer_size}],
    });
    let (manifest, manifest_size) = put(serde_json::to_vec(&manifest)?);
    let tag = image.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
    Ok(json!({
        "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": manifest, "size": manifest_size,
        "platform": {"architecture": architecture(), "os": "linux"},
        "annotations": {"io.containerd.image.name": image.name, "org.opencontainers.image.ref.name": tag},
    }))
}

/// This machine's architecture by Go's name, as image-spec wants it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn tar_of(entries: &[Entry]) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        match entry {
            Entry::File(path, content, mode) => {
                header.set_size(content.len() as u64);
                header.set_mode(*mode);
                archive.append_data(&mut header, path, content.as_slice())?;
            }
            Entry::Link(path, target) => {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_size(0);
                header.set_mode(0o777);
                archive.append_link(&mut header, path, target)?;
            }
            Entry::Dir(path, mode) => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_size(0);
                header.set_mode(*mode);
                archive.append_data(&mut header, path, io::empty())?;
            }
        }
    }
    archive.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_layout_index_and_three_blobs_an_image() {
        let image = Image {
            name: "test.local/a:1".to_owned(),
            layer: vec![Entry::File("bin/a".to_owned(), b"x".to_vec(), 0o755)],
            ..Image::default()
        };
        let archive = build(&[image]).unwrap();
        let names: Vec<String> = tar::Archive::new(archive.as_slice())
            .entries()
            .unwrap()
            .map(|e| e.unwrap().path().unwrap().display().to_string())
            .collect();
        assert_eq!(names[..2], ["oci-layout", "index.json"]);
        assert_eq!(names.iter().filter(|n| n.starts_with("blobs/sha256/")).count(), 3);
    }
}
