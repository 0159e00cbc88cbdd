//! The images of the lab as one OCI archive: busybox from the machine's static binary, and the pause program.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const OCI: &str = "application/vnd.oci.image";

/// Writes `images.tar` into `dir`.
pub fn write(dir: &Path) {
    let pause = dir.join("pause");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lib/pause/pause.c");
    super::run(
        Command::new("cc")
            .args([
                "-Os",
                "-static",
                "-nostdlib",
                "-ffreestanding",
                "-fno-stack-protector",
                "-fno-pie",
                "-no-pie",
                "-o",
            ])
            .arg(&pause)
            .arg(source),
    );
    let mut archive = Archive::default();
    archive.image(
        "localhost/pause:1",
        pause_layer(&fs::read(&pause).unwrap()),
        json!({"Entrypoint": ["/pause"], "User": "65535:65535"}),
    );
    let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    archive.image("docker.io/library/busybox:1", busybox_layer(), json!({"Cmd": ["sh"], "Env": [path]}));
    fs::write(dir.join("images.tar"), archive.finish()).unwrap();
}

fn pause_layer(binary: &[u8]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    file(&mut tar, "pause", binary, 0o755);
    tar.into_inner().unwrap()
}

fn busybox_layer() -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    file(&mut tar, "bin/busybox", &fs::read("/bin/busybox").unwrap(), 0o755);
    let applets = Command::new("/bin/busybox").arg("--list").output().unwrap();
    for applet in String::from_utf8_lossy(&applets.stdout).lines().filter(|a| *a != "busybox") {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        header.set_mode(0o777);
        tar.append_link(&mut header, format!("bin/{applet}"), "busybox").unwrap();
    }
    for folder in ["tmp/", "etc/", "var/", "root/"] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_size(0);
        header.set_mode(if folder == "tmp/" { 0o1777 } else { 0o755 });
        tar.append_data(&mut header, folder, &[][..]).unwrap();
    }
    file(&mut tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", 0o644);
    file(&mut tar, "etc/group", b"root:x:0:\n", 0o644);
    tar.into_inner().unwrap()
}

fn file(tar: &mut tar::Builder<Vec<u8>>, path: &str, content: &[u8], mode: u32) {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(mode);
    tar.append_data(&mut header, path, content).unwrap();
}

#[derive(Default)]
struct Archive {
    blobs: BTreeMap<String, Vec<u8>>,
    manifests: Vec<Value>,
}

impl Archive {
    fn blob(&mut self, content: Vec<u8>) -> (String, usize) {
        let digest: String = Sha256::digest(&content).iter().map(|b| format!("{b:02x}")).collect();
        let size = content.len();
        self.blobs.insert(digest.clone(), content);
        (format!("sha256:{digest}"), size)
    }

    fn image(&mut self, name: &str, layer: Vec<u8>, config: Value) {
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let (layer, layer_size) = self.blob(layer);
        let config = json!({"architecture": architecture, "os": "linux", "config": config,
            "rootfs": {"type": "layers", "diff_ids": [layer]}});
        let (config, config_size) = self.blob(config.to_string().into_bytes());
        let manifest = json!({"schemaVersion": 2, "mediaType": format!("{OCI}.manifest.v1+json"),
            "config": {"mediaType": format!("{OCI}.config.v1+json"), "digest": config, "size": config_size},
            "layers": [{"mediaType": format!("{OCI}.layer.v1.tar"), "digest": layer, "size": layer_size}]});
        let (manifest, size) = self.blob(manifest.to_string().into_bytes());
        self.manifests.push(json!({"mediaType": format!("{OCI}.manifest.v1+json"), "digest": manifest, "size": size,
            "platform": {"architecture": architecture, "os": "linux"},
            "annotations": {"io.containerd.image.name": name}}));
    }

    fn finish(self) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        file(&mut tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644);
        let index =
            json!({"schemaVersion": 2, "mediaType": format!("{OCI}.index.v1+json"), "manifests": self.manifests});
        file(&mut tar, "index.json", index.to_string().as_bytes(), 0o644);
        for (digest, content) in &self.blobs {
            file(&mut tar, &format!("blobs/sha256/{digest}"), content, 0o644);
        }
        tar.into_inner().unwrap()
    }
}
