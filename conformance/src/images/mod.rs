//! `pintle conformance images`: the tests' images, built without a registry and loaded into nodes.
//!
//! - [`catalog`]: the images, as a table;
//! - `sources`: where their content comes from, and `runner`: the programs that make it;
//! - `content`: what each layer holds;
//! - [`registry`]: the images as a registry, for what is pulled whatever is there.

pub mod catalog;
mod content;
pub mod registry;
mod runner;
mod sources;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use pintle_cri::archive::{self, Blob, Image, Layout};
use pintle_cri::containerd::Programs;
use tokio_util::sync::CancellationToken;

use catalog::{IMAGES, Part, Row};
use runner::Runner;
use sources::Sources;

/// Registry that the names belong to.
const REGISTRY: &str = "registry.k8s.io";

/// `pintle conformance images`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder for the images: `OUT/oci` is an OCI layout, `OUT/all.tar` its archive, `OUT/work` what they are made of.
    #[arg(long)]
    out: PathBuf,
    /// The folder conformance/upstream of the source.
    #[arg(long, default_value = "conformance/upstream")]
    module: PathBuf,
    /// Load the images into the containerd with this socket.
    #[arg(long)]
    load: Vec<PathBuf>,
    /// Load what OUT has instead of building it again.
    #[arg(long)]
    no_build: bool,
    /// Folder with ctr, if it is not on the PATH.
    #[arg(long)]
    containerd_dir: Option<PathBuf>,
}

/// Runs until done, or until `shutdown`.
pub async fn run(args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    let runner = Runner::default();
    let builder = runner.clone();
    let mut work = tokio::task::spawn_blocking(move || make(&args, &builder));
    tokio::select! {
        done = &mut work => done?,
        () = shutdown.cancelled() => {
            // What it has begun is begun again the next time.
            runner.stop();
            work.await?
        }
    }
}

fn make(args: &Args, runner: &Runner) -> anyhow::Result<()> {
    let begin = Instant::now();
    let say = |text: &str| pintle_host::say!("{:6.1} s  {text}", begin.elapsed().as_secs_f64());
    let out = std::path::absolute(&args.out)?;
    let layout = out.join("oci");
    if !args.no_build {
        let work = out.join("work");
        std::fs::create_dir_all(&work).with_context(|| format!("creating {}", work.display()))?;
        let module = std::path::absolute(&args.module)?;
        anyhow::ensure!(module.join("build").exists(), "{} is not conformance/upstream", module.display());
        let sources = Sources::make(&module, &work, &say, runner)?;
        write(&sources, &layout, runner)?;
        runner.check()?;
        say(&format!("{} images in {}", IMAGES.len(), layout.display()));
        let archive = out.join("all.tar");
        archive::pack(&layout, std::io::BufWriter::new(std::fs::File::create(&archive)?))?;
        say(&format!("archive {}", archive.display()));
    }
    let programs = Programs { dir: args.containerd_dir.clone() };
    for socket in &args.load {
        programs.import(socket, &layout)?;
        say(&format!("loaded into {}", socket.display()));
    }
    Ok(())
}

/// Writes the layout anew, in the place of one that is there.
fn write(sources: &Sources, layout: &Path, runner: &Runner) -> anyhow::Result<()> {
    let fresh = layout.with_extension("new");
    if fresh.exists() {
        std::fs::remove_dir_all(&fresh)?;
    }
    let mut writing = Layout::create(&fresh)?;
    let mut layers: BTreeMap<Part, Blob> = BTreeMap::new();
    for row in IMAGES {
        runner.check()?;
        let mut below = Vec::new();
        for part in row.parts {
            let layer = match layers.get(part) {
                Some(layer) => layer.clone(),
                None => {
                    let layer = writing.layer(&content::entries(*part, sources)?)?;
                    layers.entry(*part).or_insert(layer).clone()
                }
            };
            below.push(layer);
        }
        writing.add(&image(row), &below)?;
    }
    writing.finish()?;
    if layout.exists() {
        std::fs::remove_dir_all(layout)?;
    }
    std::fs::rename(&fresh, layout).with_context(|| format!("writing {}", layout.display()))
}

fn image(row: &Row) -> Image {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    Image {
        name: format!("{REGISTRY}/{}", row.name),
        layer: Vec::new(),
        entrypoint: owned(row.entrypoint),
        cmd: owned(row.cmd),
        user: row.user.to_owned(),
        ports: owned(row.ports),
    }
}
