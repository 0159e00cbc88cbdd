//! etcd as the store: keys and values go there as they are, so that what other servers wrote is read and the reverse.
//!
//! Writes are transactions that compare the key's revision. One that got no answer is repeated until there is one: its
//! condition keeps it from being done twice, and what is found tells whether it had been done. Reads are linearizable.
//! Several servers can use one etcd: nothing is kept here but a lease to share ([`lease`]) and the open watches.

mod client;
mod compact;
mod lease;
mod watch;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::contract::{KeyValue, ListOptions, Listing, Revision, Store};
use crate::error::{Error, Result};
use crate::grpc::TlsFiles;
use crate::messages::{
    CompactionRequest, CompactionResponse, Compare, DeleteRangeRequest, LeaseTimeToLiveRequest,
    LeaseTimeToLiveResponse, Pair, PutRequest, RangeRequest, RangeResponse, Request, RequestOp, Response,
    StatusRequest, StatusResponse, Target, TxnRequest, TxnResponse,
};
use crate::snapshot::Snapshot;
use crate::state::{Entry, Write, expiry};
use crate::watch::Watch;
use client::Client;
use lease::Leases;
use watch::{Follower, Range};

/// Keys that one answer of a listing holds.
const PAGE: usize = 2000;
const RANGE: &str = "/etcdserverpb.KV/Range";
const TXN: &str = "/etcdserverpb.KV/Txn";
/// Comparison of a key's latest revision, for equality.
const MOD_REVISION: i32 = 2;

/// How to reach etcd.
#[derive(Debug, Clone)]
pub struct Options {
    /// URLs of the members.
    pub endpoints: Vec<String>,
    /// TLS credentials.
    pub tls: TlsFiles,
    /// How often history is compacted; zero: never.
    pub compaction_interval: Duration,
}

impl Options {
    /// Plain connections to these members.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let endpoints = endpoints.into_iter().map(Into::into).collect();
        Self { endpoints, tls: TlsFiles::default(), compaction_interval: Duration::ZERO }
    }
}

/// A store in etcd. Dropping it ends its watches.
#[derive(Debug)]
pub struct Etcd {
    client: Arc<Client>,
    leases: Leases,
    /// The open watches: where to ask them for progress.
    watches: Mutex<Vec<mpsc::UnboundedSender<()>>>,
    compactor: Option<tokio::task::JoinHandle<()>>,
}

impl Etcd {
    /// A store at these endpoints. Connects when needed; must be called within a tokio runtime.
    pub fn new(options: &Options) -> Result<Self> {
        let client = Arc::new(Client::new(&options.endpoints, &options.tls)?);
        let interval = options.compaction_interval;
        let compactor = (!interval.is_zero()).then(|| tokio::spawn(compact::run(client.clone(), interval)));
        Ok(Self { client, leases: Leases::default(), watches: Mutex::default(), compactor })
    }

    async fn put(&self, key: &str, value: Bytes, expected: Revision, ttl: Option<Duration>) -> Result<Revision> {
        let size = value.len();
        Write::create(key, value.clone(), None).check_size()?;
        let sized = |error| match error {
            Error::TooLarge { what, limit, .. } => Error::TooLarge { what, size, limit },
            other => other,
        };
        loop {
            let lease = self.leases.get(&self.client, ttl).await?;
            let put = PutRequest { key: bytes(key), value: value.clone(), lease };
            match self.write(key, expected, Request::Put(put), Some(&value)).await {
                Err(Error::Storage(reason)) if reason == client::LEASE_GONE && lease != 0 => {
                    self.leases.forget(lease).await;
                }
                result => return result.map_err(sized),
            }
        }
    }

    /// Does a write if the key is at `expected`. `wanted` is the value afterwards.
    async fn write(&self, key: &str, expected: Revision, write: Request, wanted: Option<&Bytes>) -> Result<Revision> {
        let compare =
            Compare { result: 0, target: MOD_REVISION, key: bytes(key), value: Some(Target::ModRevision(expected)) };
        let read = RangeRequest { key: bytes(key), ..RangeRequest::default() };
        let transaction = TxnRequest {
            compare: vec![compare],
            success: vec![RequestOp { request: Some(write) }],
            failure: vec![RequestOp { request: Some(Request::Range(read)) }],
        };
        let mut doubt = false;
        let answer: TxnResponse = self.client.conditional(TXN, transaction, &mut doubt).await?;
        if answer.succeeded {
            return answer.header.map(|header| header.revision).ok_or_else(malformed);
        }
        let found = answer.responses.into_iter().next().and_then(|answer| match answer.response {
            Some(Response::Range(range)) => range.kvs.into_iter().next(),
            _ => None,
        });
        match found {
            // The attempt that got no answer was done: nobody else writes just this value upon just that revision.
            Some(pair) if doubt && pair.mod_revision > expected && wanted == Some(&pair.value) => Ok(pair.mod_revision),
            None if doubt && wanted.is_none() => {
                Err(Error::Storage("etcd: it is not known who deleted the key".into()))
            }
            found => Err(Error::Conflict { current: found.and_then(key_value) }),
        }
    }

    /// A linearizable read.
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse> {
        self.client.read(RANGE, request).await
    }

    /// All pairs under a prefix as they were at one revision, and how many there are beyond a limit.
    async fn pairs(&self, options: &ListOptions) -> Result<(Vec<Pair>, Revision, usize)> {
        let end = prefix_end(&options.prefix);
        let mut key = match options.start_after.as_deref() {
            Some(after) if after >= options.prefix.as_str() => after_key(after),
            _ => start_key(&options.prefix),
        };
        let wanted = options.limit.unwrap_or(usize::MAX);
        let (mut pairs, mut revision, mut total) = (Vec::new(), 0, None);
        loop {
            let limit = PAGE.min(wanted - pairs.len());
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let page = RangeRequest { key, range_end: end.clone(), limit, revision, ..RangeRequest::default() };
            let page = self.range(page).await?;
            if revision == 0 {
                revision = page.header.as_ref().map(|header| header.revision).ok_or_else(malformed)?;
            }
            let total = *total.get_or_insert(usize::try_from(page.count).unwrap_or(0));
            let last = page.kvs.last().map(|pair| pair.key.clone());
            pairs.extend(page.kvs);
            match last {
                Some(last) if page.more && pairs.len() < wanted => key = successor(&last),
                _ => return Ok((pairs, revision, total)),
            }
        }
    }

    /// The oldest revision to watch from, if `from` is older.
    async fn check_history(&self, range: &Range, from: Revision) -> Result<bool> {
        let request = RangeRequest {
            key: range.key.clone(),
            revision: from.max(1),
            limit: 1,
            keys_only: true,
            ..RangeRequest::default()
        };
        match self.range(request).await {
            Ok(_) => Ok(true),
            Err(Error::Compacted { .. }) => Ok(false),
            Err(Error::Storage(reason)) if reason.contains("future revision") => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// What is left of a lease's time.
    async fn expires(&self, id: i64) -> Result<Option<u64>> {
        let request = LeaseTimeToLiveRequest { id };
        let left: LeaseTimeToLiveResponse = self.client.read("/etcdserverpb.Lease/LeaseTimeToLive", request).await?;
        Ok(expiry(Some(Duration::from_secs(u64::try_from(left.ttl).unwrap_or(0)))))
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if let Some(compactor) = &self.compactor {
            compactor.abort();
        }
    }
}

#[async_trait]
impl Store for Etcd {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>> {
        let answer = self.range(RangeRequest { key: bytes(key), ..RangeRequest::default() }).await?;
        Ok(answer.kvs.into_iter().next().and_then(key_value))
    }

    async fn list(&self, options: ListOptions) -> Result<Listing> {
        let (pairs, revision, count) = self.pairs(&options).await?;
        let more = count > pairs.len();
        Ok(Listing { items: pairs.into_iter().filter_map(key_value).collect(), revision, more, count })
    }

    async fn create(&self, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<Revision> {
        match self.put(key, value, 0, ttl).await {
            Err(Error::Conflict { .. }) => Err(Error::Exists { key: key.to_owned() }),
            result => result,
        }
    }

    async fn update(&self, key: &str, value: Bytes, expected: Revision, ttl: Option<Duration>) -> Result<Revision> {
        match expected {
            0 => Err(Error::Conflict { current: self.get(key).await? }),
            _ => self.put(key, value, expected, ttl).await,
        }
    }

    async fn delete(&self, key: &str, expected: Revision) -> Result<Revision> {
        let request = DeleteRangeRequest { key: bytes(key), range_end: Bytes::new() };
        match expected {
            0 => Err(Error::Conflict { current: self.get(key).await? }),
            _ => self.write(key, expected, Request::DeleteRange(request), None).await,
        }
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<Watch> {
        let range = Range { key: start_key(prefix), end: prefix_end(prefix) };
        let known = self.check_history(&range, from).await?;
        let (events, incoming) = mpsc::channel(watch::QUEUE);
        let (ask, asked) = mpsc::unbounded_channel();
        tokio::spawn(Follower::new(self.client.clone(), range, from, events, asked).run());
        let mut watch = Watch::new(ReceiverStream::new(incoming));
        if !known {
            return match watch.recv().await {
                Some(Err(error)) => Err(error),
                _ => Err(Error::Compacted { requested: from, oldest: from + 1 }),
            };
        }
        let mut watches = self.watches.lock();
        watches.retain(|watch| !watch.is_closed());
        watches.push(ask);
        Ok(watch)
    }

    async fn request_progress(&self) -> Result<()> {
        self.watches.lock().retain(|watch| watch.send(()).is_ok());
        Ok(())
    }

    async fn current_revision(&self) -> Result<Revision> {
        let request = RangeRequest { key: Bytes::from_static(b"\0"), limit: 1, ..RangeRequest::default() };
        self.range(request).await?.header.map(|header| header.revision).ok_or_else(malformed)
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        let revision = revision.min(self.current_revision().await?);
        let answer: Result<CompactionResponse> =
            self.client.read("/etcdserverpb.KV/Compact", CompactionRequest { revision }).await;
        match answer {
            Ok(_) | Err(Error::Compacted { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn size(&self) -> Result<u64> {
        let status: StatusResponse = self.client.read("/etcdserverpb.Maintenance/Status", StatusRequest {}).await?;
        Ok(u64::try_from(status.db_size).unwrap_or(0))
    }

    async fn snapshot(&self, writer: &mut (dyn io::Write + Send)) -> Result<Revision> {
        let (pairs, revision, _) = self.pairs(&ListOptions::default()).await?;
        let mut leases = std::collections::HashMap::from([(0, None)]);
        let mut entries = std::collections::BTreeMap::new();
        for pair in pairs {
            let expires = match leases.get(&pair.lease) {
                Some(expires) => *expires,
                None => *leases.entry(pair.lease).or_insert(self.expires(pair.lease).await?),
            };
            let Some(kv) = key_value(pair) else { continue };
            let (create_revision, mod_revision) = (kv.create_revision, kv.mod_revision);
            entries.insert(kv.key.into(), Entry { value: kv.value, create_revision, mod_revision, expires });
        }
        Snapshot { revision, entries }.write(writer)
    }
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// The first key of a prefix; etcd has no empty keys.
fn start_key(prefix: &str) -> Bytes {
    if prefix.is_empty() { Bytes::from_static(b"\0") } else { bytes(prefix) }
}

/// The first key after all those with this prefix, as etcd writes it.
fn prefix_end(prefix: &str) -> Bytes {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end.into();
        }
    }
    // Everything.
    Bytes::from_static(b"\0")
}

fn after_key(key: &str) -> Bytes {
    successor(key.as_bytes())
}

fn successor(key: &[u8]) -> Bytes {
    [key, b"\0"].concat().into()
}

/// A pair as the contract has it; keys that are no text are not ours.
fn key_value(pair: Pair) -> Option<KeyValue> {
    let key = String::from_utf8(pair.key.into()).ok()?;
    let (mod_revision, create_revision) = (pair.mod_revision, pair.create_revision);
    Some(KeyValue { key, value: pair.value, mod_revision, create_revision, stale: false })
}

fn malformed() -> Error {
    Error::Storage("etcd: an answer without a header".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_a_prefix() {
        for (prefix, start, end) in
            [("/a/", &b"/a/"[..], &b"/a0"[..]), ("", b"\0", b"\0"), ("\u{7f}", b"\x7f", b"\x80"), ("/", b"/", b"0")]
        {
            assert_eq!((&start_key(prefix)[..], &prefix_end(prefix)[..]), (start, end), "{prefix:?}");
        }
    }
}
