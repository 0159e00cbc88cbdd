//! Reads a log file from the right place on, and goes on as it grows and is rotated.

use std::{io, io::SeekFrom, os::unix::fs::MetadataExt, path::Path, time::Duration};

use bytes::{Bytes, BytesMut};
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncSeekExt},
    sync::mpsc,
    time::Instant,
};

use super::{Options, line::Filter};

const BLOCK: usize = 32 * 1024;
/// How often a followed file is looked at.
const POLL: Duration = Duration::from_millis(100);
/// How often the runtime is asked whether the container of a followed file still runs.
const ASK: Duration = Duration::from_secs(1);
/// A line of the file that is longer than this is handed on in parts. Runtimes split at 16 KiB.
const MAX_LINE: usize = 1024 * 1024;

/// What a follower needs to know of the container.
pub(in crate::server) trait Source: Send {
    /// Whether more may be written.
    fn is_running(&mut self) -> impl Future<Output = bool> + Send;
}

/// Sends the wanted part of the file; returns when that is done or the receiver has left.
pub(in crate::server) async fn send(
    path: &Path,
    options: &Options,
    mut source: impl Source,
    out: mpsc::Sender<Bytes>,
) -> io::Result<()> {
    let mut file = File::open(path).await?;
    if let Some(lines) = options.tail {
        let start = tail_start(&mut file, lines).await?;
        file.seek(SeekFrom::Start(start)).await?;
    }
    let mut reader = Reader { file, pending: BytesMut::new(), filter: Filter::new(options), out };
    let mut asked = Instant::now();
    loop {
        if !reader.drain().await? || !options.follow {
            return Ok(());
        }
        if is_replaced(&reader.file, path).await {
            // The rest of the old file was read above; a line never spans files.
            reader.drain().await?;
            reader.file = File::open(path).await?;
            reader.pending.clear();
            continue;
        }
        tokio::select! { () = tokio::time::sleep(POLL) => {} () = reader.out.closed() => return Ok(()) }
        if asked.elapsed() >= ASK {
            if !source.is_running().await {
                reader.drain().await?;
                return Ok(());
            }
            asked = Instant::now();
        }
    }
}

struct Reader {
    file: File,
    /// The beginning of a line whose end has not been read.
    pending: BytesMut,
    filter: Filter,
    out: mpsc::Sender<Bytes>,
}

impl Reader {
    /// Sends what the file has for now; false if there is no point in going on.
    async fn drain(&mut self) -> io::Result<bool> {
        loop {
            self.pending.reserve(BLOCK);
            if self.file.read_buf(&mut self.pending).await? == 0 {
                return Ok(!self.out.is_closed());
            }
            let mut sent = BytesMut::new();
            while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line = self.pending.split_to(end + 1);
                self.filter.apply(&line[..end], &mut sent);
                if self.filter.is_done() {
                    break;
                }
            }
            if self.pending.len() > MAX_LINE {
                self.pending.clear();
            }
            if !sent.is_empty() && self.out.send(sent.freeze()).await.is_err() {
                return Ok(false);
            }
            if self.filter.is_done() {
                return Ok(false);
            }
        }
    }
}

/// Whether the path leads to another file by now: the runtime has begun a new one.
async fn is_replaced(file: &File, path: &Path) -> bool {
    match (file.metadata().await, tokio::fs::metadata(path).await) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) != (named.dev(), named.ino()),
        // Between the rename and the new file there is none.
        _ => false,
    }
}

/// Where the last `lines` lines of the file begin.
async fn tail_start(file: &mut File, lines: u64) -> io::Result<u64> {
    let mut end = file.metadata().await?.len();
    if lines == 0 {
        return Ok(end);
    }
    // The end of the last line counts as well, hence one more.
    let mut wanted = lines.saturating_add(1);
    let mut block = vec![0; BLOCK];
    while end > 0 {
        let start = end.saturating_sub(BLOCK as u64);
        let part = &mut block[..(end - start) as usize];
        file.seek(SeekFrom::Start(start)).await?;
        file.read_exact(part).await?;
        for (index, _) in part.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            wanted -= 1;
            if wanted == 0 {
                return Ok(start + index as u64 + 1);
            }
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::Write,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
    };

    struct Running(Arc<AtomicBool>);

    fn running(yes: bool) -> Running {
        Running(Arc::new(AtomicBool::new(yes)))
    }

    impl Source for Running {
        async fn is_running(&mut self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn line(text: &str) -> String {
        format!("2026-01-01T00:00:00Z stdout F {text}\n")
    }

    async fn collect(mut pieces: mpsc::Receiver<Bytes>) -> String {
        let mut all = Vec::new();
        while let Some(piece) = pieces.recv().await {
            all.extend_from_slice(&piece);
        }
        String::from_utf8(all).unwrap()
    }

    async fn read(path: &Path, options: Options) -> String {
        let (out, pieces) = mpsc::channel(4);
        let (result, text) = tokio::join!(send(path, &options, running(false), out), collect(pieces));
        result.unwrap();
        text
    }

    #[tokio::test]
    async fn tails_and_limits() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        let many: String = (0..5000).map(|number| line(&number.to_string())).collect();
        std::fs::write(&path, many).unwrap();
        let tail = |lines| Options { tail: Some(lines), ..Options::default() };
        assert_eq!(read(&path, tail(2)).await, "4998\n4999\n");
        assert_eq!(read(&path, tail(0)).await, "");
        assert_eq!(read(&path, tail(3000)).await.lines().next(), Some("2000"));
        assert_eq!(read(&path, tail(9999)).await.lines().count(), 5000);
        assert_eq!(read(&path, Options::default()).await.lines().count(), 5000);
        assert_eq!(read(&path, Options { limit: Some(3), ..Options::default() }).await, "0\n1");
    }

    #[tokio::test]
    async fn a_followed_file_may_grow_be_rotated_and_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        std::fs::write(&path, line("one")).unwrap();
        let (out, mut pieces) = mpsc::channel(4);
        let followed = path.clone();
        let options = Options { follow: true, ..Options::default() };
        let state = Arc::new(AtomicBool::new(true));
        let source = Running(state.clone());
        let task = tokio::spawn(async move { send(&followed, &options, source, out).await });
        assert_eq!(pieces.recv().await.as_deref(), Some(&b"one\n"[..]));
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"2026-01-01T00:00:00Z std").unwrap();
        file.write_all(b"out F two\n").unwrap();
        assert_eq!(pieces.recv().await.as_deref(), Some(&b"two\n"[..]));
        std::fs::rename(&path, directory.path().join("0.log.old")).unwrap();
        std::fs::write(&path, line("three")).unwrap();
        assert_eq!(pieces.recv().await.as_deref(), Some(&b"three\n"[..]));
        state.store(false, Ordering::Relaxed);
        assert_eq!(pieces.recv().await, None);
        task.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_reader_that_leaves_ends_the_following() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        std::fs::write(&path, "").unwrap();
        let (out, pieces) = mpsc::channel(4);
        drop(pieces);
        let options = Options { follow: true, ..Options::default() };
        let sent = tokio::time::timeout(Duration::from_secs(5), send(&path, &options, running(true), out)).await;
        sent.unwrap().unwrap();
    }
}
