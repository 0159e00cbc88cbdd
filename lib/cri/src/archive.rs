//! Images without a registry: OCI image layouts (image-spec v1) as folders, and as the tar archives that
//! `ctr images import` takes, with the images' full names in annotations.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Media types of image-spec.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// One thing in a layer; parent directories are made as needed.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A regular file: path without leading slash, content, mode.
    File(String, Vec<u8>, u32),
    /// A regular file of this machine: path in the layer, where its content is, mode.
    Copy(String, PathBuf, u32),
    /// A symbolic link: path, target.
    Link(String, String),
    /// A directory: path, mode.
    Dir(String, u32),
}

/// An image: what its top layer holds and how it is started.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Full name, `registry/repository:tag`.
    pub name: String,
    /// Content of the top layer; empty for an image that has nothing but the layers below.
    pub layer: Vec<Entry>,
    /// Entry point.
    pub entrypoint: Vec<String>,
    /// Default arguments.
    pub cmd: Vec<String>,
    /// `uid[:gid]`; empty for root.
    pub user: String,
    /// Ports that it listens on, `80/tcp`.
    pub ports: Vec<String>,
}

/// Something in a layout, by its digest.
#[derive(Clone, Debug)]
pub struct Blob {
    /// `sha256:…`
    pub digest: String,
    /// Bytes.
    pub size: u64,
}

/// A layout that is being written.
#[derive(Debug)]
pub struct Layout {
    dir: PathBuf,
    manifests: Vec<Value>,
}

impl Layout {
    /// An empty layout in `dir`, which is made if it is not there.
    pub fn create(dir: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(dir.join("blobs/sha256"))?;
        Ok(Self { dir: dir.to_owned(), manifests: Vec::new() })
    }

    /// Writes a layer that several images may share.
    pub fn layer(&self, entries: &[Entry]) -> io::Result<Blob> {
        self.blob(|out| write_tar(entries, out))
    }

    /// Adds an image on top of the given layers.
    pub fn add(&mut self, image: &Image, below: &[Blob]) -> io::Result<()> {
        let mut layers = below.to_vec();
        if !image.layer.is_empty() {
            layers.push(self.layer(&image.layer)?);
        }
        let ports: serde_json::Map<String, Value> = image.ports.iter().map(|p| (p.clone(), json!({}))).collect();
        let config = json!({
            "architecture": architecture(), "os": "linux",
            "config": {
                "Entrypoint": image.entrypoint, "Cmd": image.cmd, "User": image.user, "ExposedPorts": ports,
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": layers.iter().map(|l| l.digest.as_str()).collect::<Vec<_>>()},
            // What tells two names of the same content apart: a test that updates one to the other must see two images.
            "history": [{"created_by": image.name}],
        });
        let config = self.json(&config)?;
        let describe = |kind: &str, blob: &Blob| json!({"mediaType": kind, "digest": blob.digest, "size": blob.size});
        let manifest = self.json(&json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": describe(CONFIG, &config),
            "layers": layers.iter().map(|layer| describe(LAYER, layer)).collect::<Vec<_>>(),
        }))?;
        let tag = image.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        let mut entry = describe(MANIFEST, &manifest);
        entry["platform"] = json!({"architecture": architecture(), "os": "linux"});
        entry["annotations"] =
            json!({"io.containerd.image.name": image.name, "org.opencontainers.image.ref.name": tag});
        self.manifests.push(entry);
        Ok(())
    }

    /// Writes the index: the layout is complete.
    pub fn finish(self) -> io::Result<()> {
        std::fs::write(self.dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
        let index = json!({"schemaVersion": 2, "manifests": self.manifests});
        std::fs::write(self.dir.join("index.json"), serde_json::to_vec(&index)?)
    }

    fn json(&self, value: &Value) -> io::Result<Blob> {
        self.blob(|out| serde_json::to_writer(out, value).map_err(io::Error::from))
    }

    fn blob(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<Blob> {
        let blobs = self.dir.join("blobs/sha256");
        let temporary = blobs.join(".new");
        let mut out = Hashing { inner: io::BufWriter::new(File::create(&temporary)?), hash: Sha256::new(), size: 0 };
        write(&mut out)?;
        out.flush()?;
        let hex: String = out.hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
        std::fs::rename(temporary, blobs.join(&hex))?;
        Ok(Blob { digest: format!("sha256:{hex}"), size: out.size })
    }
}

/// Writes a layout folder as one archive.
pub fn pack(layout: &Path, out: impl Write) -> io::Result<()> {
    let file = |name: &str| Entry::Copy(name.to_owned(), layout.join(name), 0o644);
    let mut entries = vec![file("oci-layout"), file("index.json")];
    let mut blobs: Vec<String> = std::fs::read_dir(layout.join("blobs/sha256"))?
        .filter_map(|entry| Some(format!("blobs/sha256/{}", entry.ok()?.file_name().to_str()?)))
        .collect();
    blobs.sort();
    entries.extend(blobs.iter().map(|name| file(name)));
    write_tar(&entries, out)
}

/// Makes a layout folder out of an archive.
pub fn unpack(archive: impl Read, layout: &Path) -> io::Result<()> {
    std::fs::create_dir_all(layout)?;
    tar::Archive::new(archive).unpack(layout)
}

/// The archive of the given images, for small ones.
pub fn build(images: &[Image]) -> io::Result<Vec<u8>> {
    let dir = tempfile::tempdir()?;
    let mut layout = Layout::create(dir.path())?;
    for image in images {
        layout.add(image, &[])?;
    }
    layout.finish()?;
    let mut archive = Vec::new();
    pack(dir.path(), &mut archive)?;
    Ok(archive)
}

/// Counts and hashes what is written through it.
struct Hashing<W> {
    inner: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// This machine's architecture by Go's name, as image-spec wants it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn write_tar(entries: &[Entry], out: impl Write) -> io::Result<()> {
    let mut archive = tar::Builder::new(out);
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        match entry {
            Entry::File(path, content, mode) => {
                header.set_entry_type(tar::EntryType::Regular);
                header.set_size(content.len() as u64);
                header.set_mode(*mode);
                archive.append_data(&mut header, path, content.as_slice())?;
            }
            Entry::Copy(path, source, mode) => {
                let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", source.display()));
                let file = File::open(source).map_err(named)?;
                header.set_entry_type(tar::EntryType::Regular);
                header.set_size(file.metadata()?.len());
                header.set_mode(*mode);
                archive.append_data(&mut header, path, file)?;
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
    archive.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(archive: &[u8]) -> Vec<String> {
        let mut archive = tar::Archive::new(archive);
        archive.entries().unwrap().map(|e| e.unwrap().path().unwrap().display().to_string()).collect()
    }

    #[test]
    fn an_archive_has_layout_index_and_three_blobs_an_image() {
        let image = Image {
            name: "test.local/a:1".to_owned(),
            layer: vec![Entry::File("bin/a".to_owned(), b"x".to_vec(), 0o755)],
            ..Image::default()
        };
        let names = names(&build(&[image]).unwrap());
        assert_eq!(names[..2], ["oci-layout", "index.json"]);
        assert_eq!(names.iter().filter(|n| n.starts_with("blobs/sha256/")).count(), 3);
    }

    #[test]
    fn images_share_layers_and_two_names_are_two_images() {
        let dir = tempfile::tempdir().unwrap();
        let mut layout = Layout::create(dir.path()).unwrap();
        let base = layout.layer(&[Entry::Dir("tmp".to_owned(), 0o1777)]).unwrap();
        for name in ["test.local/a:1", "test.local/a:2"] {
            let image = Image { name: name.to_owned(), ..Image::default() };
            layout.add(&image, std::slice::from_ref(&base)).unwrap();
        }
        layout.finish().unwrap();
        let index: Value = serde_json::from_slice(&std::fs::read(dir.path().join("index.json")).unwrap()).unwrap();
        assert_ne!(index["manifests"][0]["digest"], index["manifests"][1]["digest"]);
        assert_eq!(
            std::fs::read_dir(dir.path().join("blobs/sha256")).unwrap().count(),
            5,
            "one layer, two of each other"
        );
        let mut packed = Vec::new();
        pack(dir.path(), &mut packed).unwrap();
        let other = tempfile::tempdir().unwrap();
        unpack(packed.as_slice(), other.path()).unwrap();
        assert_eq!(
            std::fs::read(dir.path().join("index.json")).unwrap(),
            std::fs::read(other.path().join("index.json")).unwrap()
        );
    }
}
