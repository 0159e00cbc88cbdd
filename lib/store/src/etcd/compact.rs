//! Compaction of etcd's history, by one server at a time: they agree through a key whose version counts the compactions and
//! whose value is the revision of the latest one. It is the key that kube-apiserver uses, so both can share an etcd.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::client::Client;
use super::{TXN, malformed};
use crate::contract::Revision;
use crate::error::{Error, Result};
use crate::messages::{
    CompactionRequest, CompactionResponse, Compare, PutRequest, RangeRequest, Request, RequestOp, Response, Target,
    TxnRequest, TxnResponse,
};

const KEY: Bytes = Bytes::from_static(b"compact_rev_key");

/// Where this server is in the common series of compactions.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Turn {
    /// Version of the key that was last seen.
    version: i64,
    /// Revision of the store at that time: what is older than one interval now.
    revision: Revision,
}

/// Compacts for ever: what is older than one to two intervals goes. A failure is reported and tried again.
pub(super) async fn run(client: Arc<Client>, interval: Duration) {
    let mut turn = Turn::default();
    loop {
        tokio::time::sleep(interval).await;
        match take_turn(&client, turn).await {
            Ok(next) => turn = next,
            Err(error) => tracing::warn!(%error, "etcd was not compacted, trying again in {interval:?}"),
        }
    }
}

async fn take_turn(client: &Client, turn: Turn) -> Result<Turn> {
    let answer: TxnResponse = client.conditional(TXN, transaction(turn), &mut false).await?;
    let revision = answer.header.as_ref().map(|header| header.revision).ok_or_else(malformed)?;
    if !answer.succeeded {
        // Another server was here since: it compacts.
        let found = answer.responses.into_iter().next().and_then(|answer| answer.response);
        let Some(Response::Range(range)) = found else { return Err(malformed()) };
        let version = range.kvs.first().map_or(0, |pair| pair.version);
        return Ok(Turn { version, revision });
    }
    if turn.revision != 0 {
        let request = CompactionRequest { revision: turn.revision };
        let compacted: Result<CompactionResponse> = client.read("/etcdserverpb.KV/Compact", request).await;
        match compacted {
            Ok(_) => tracing::debug!(revision = turn.revision, "etcd compacted"),
            Err(Error::Compacted { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Turn { version: turn.version + 1, revision })
}

/// Takes the turn if nobody has since.
fn transaction(turn: Turn) -> TxnRequest {
    let put = PutRequest { key: KEY, value: turn.revision.to_string().into(), lease: 0 };
    let read = RangeRequest { key: KEY, ..RangeRequest::default() };
    TxnRequest {
        compare: vec![Compare { result: 0, target: 0, key: KEY, value: Some(Target::Version(turn.version)) }],
        success: vec![RequestOp { request: Some(Request::Put(put)) }],
        failure: vec![RequestOp { request: Some(Request::Range(read)) }],
    }
}
