//! Tables of the gRPC messages that this crate speaks: etcd v3 (packages `etcdserverpb` and `mvccpb`) and KMS v2 (package
//! `v2`). Field names, types and numbers are facts of the public protocols; what is not used here is left out.

use std::collections::HashMap;

use bytes::Bytes;

/// One line a message: `Name { field: RustType [prost attributes], … }`.
macro_rules! messages {
    ($($name:ident { $($field:ident : $ty:ty [$($attribute:tt)*]),* $(,)? })*) => {$(
        #[derive(Clone, PartialEq, prost::Message)]
        pub(crate) struct $name {
            $(#[prost($($attribute)*)] pub $field: $ty,)*
        }
    )*};
}

/// One line a set of alternatives: `Name { Variant(Type) [prost attributes], … }`.
macro_rules! alternatives {
    ($($name:ident { $($variant:ident($ty:ty) [$($attribute:tt)*]),* $(,)? })*) => {$(
        #[derive(Clone, PartialEq, prost::Oneof)]
        pub(crate) enum $name {
            $(#[prost($($attribute)*)] $variant($ty),)*
        }
    )*};
}

messages! {
    Header { revision: i64 [int64, tag = "3"] }
    Pair { key: Bytes [bytes = "bytes", tag = "1"], create_revision: i64 [int64, tag = "2"], mod_revision: i64 [int64, tag = "3"], version: i64 [int64, tag = "4"], value: Bytes [bytes = "bytes", tag = "5"], lease: i64 [int64, tag = "6"] }
    Event { kind: i32 [int32, tag = "1"], kv: Option<Pair> [message, optional, tag = "2"] }
    RangeRequest { key: Bytes [bytes = "bytes", tag = "1"], range_end: Bytes [bytes = "bytes", tag = "2"], limit: i64 [int64, tag = "3"], revision: i64 [int64, tag = "4"], keys_only: bool [bool, tag = "8"], count_only: bool [bool, tag = "9"] }
    RangeResponse { header: Option<Header> [message, optional, tag = "1"], kvs: Vec<Pair> [message, repeated, tag = "2"], more: bool [bool, tag = "3"], count: i64 [int64, tag = "4"] }
    PutRequest { key: Bytes [bytes = "bytes", tag = "1"], value: Bytes [bytes = "bytes", tag = "2"], lease: i64 [int64, tag = "3"] }
    PutResponse { header: Option<Header> [message, optional, tag = "1"] }
    DeleteRangeRequest { key: Bytes [bytes = "bytes", tag = "1"], range_end: Bytes [bytes = "bytes", tag = "2"] }
    DeleteRangeResponse { header: Option<Header> [message, optional, tag = "1"], deleted: i64 [int64, tag = "2"] }
    RequestOp { request: Option<Request> [oneof = "Request", tags = "1, 2, 3"] }
    ResponseOp { response: Option<Response> [oneof = "Response", tags = "1, 2, 3"] }
    Compare { result: i32 [int32, tag = "1"], target: i32 [int32, tag = "2"], key: Bytes [bytes = "bytes", tag = "3"], value: Option<Target> [oneof = "Target", tags = "4, 6"] }
    TxnRequest { compare: Vec<Compare> [message, repeated, tag = "1"], success: Vec<RequestOp> [message, repeated, tag = "2"], failure: Vec<RequestOp> [message, repeated, tag = "3"] }
    TxnResponse { header: Option<Header> [message, optional, tag = "1"], succeeded: bool [bool, tag = "2"], responses: Vec<ResponseOp> [message, repeated, tag = "3"] }
    CompactionRequest { revision: i64 [int64, tag = "1"] }
    CompactionResponse { header: Option<Header> [message, optional, tag = "1"] }
    WatchRequest { request: Option<WatchAction> [oneof = "WatchAction", tags = "1, 3"] }
    WatchCreate { key: Bytes [bytes = "bytes", tag = "1"], range_end: Bytes [bytes = "bytes", tag = "2"], start_revision: i64 [int64, tag = "3"], progress_notify: bool [bool, tag = "4"], fragment: bool [bool, tag = "8"] }
    WatchProgress {  }
    WatchResponse { header: Option<Header> [message, optional, tag = "1"], watch_id: i64 [int64, tag = "2"], created: bool [bool, tag = "3"], canceled: bool [bool, tag = "4"], compact_revision: i64 [int64, tag = "5"], cancel_reason: String [string, tag = "6"], fragment: bool [bool, tag = "7"], events: Vec<Event> [message, repeated, tag = "11"] }
    LeaseGrantRequest { ttl: i64 [int64, tag = "1"] }
    LeaseGrantResponse { header: Option<Header> [message, optional, tag = "1"], id: i64 [int64, tag = "2"], ttl: i64 [int64, tag = "3"] }
    LeaseTimeToLiveRequest { id: i64 [int64, tag = "1"] }
    LeaseTimeToLiveResponse { header: Option<Header> [message, optional, tag = "1"], id: i64 [int64, tag = "2"], ttl: i64 [int64, tag = "3"] }
    StatusRequest {  }
    StatusResponse { header: Option<Header> [message, optional, tag = "1"], db_size: i64 [int64, tag = "3"] }
    KmsStatusRequest {  }
    KmsStatusResponse { version: String [string, tag = "1"], healthz: String [string, tag = "2"], key_id: String [string, tag = "3"] }
    KmsEncryptRequest { plaintext: Bytes [bytes = "bytes", tag = "1"], uid: String [string, tag = "2"] }
    KmsEncryptResponse { ciphertext: Bytes [bytes = "bytes", tag = "1"], key_id: String [string, tag = "2"], annotations: HashMap<String, Bytes> [map = "string, bytes", tag = "3"] }
    KmsDecryptRequest { ciphertext: Bytes [bytes = "bytes", tag = "1"], uid: String [string, tag = "2"], key_id: String [string, tag = "3"], annotations: HashMap<String, Bytes> [map = "string, bytes", tag = "4"] }
    KmsDecryptResponse { plaintext: Bytes [bytes = "bytes", tag = "1"] }
    EncryptedObject { data: Bytes [bytes = "bytes", tag = "1"], key_id: String [string, tag = "2"], dek_source: Bytes [bytes = "bytes", tag = "3"], annotations: HashMap<String, Bytes> [map = "string, bytes", tag = "4"], dek_source_type: i32 [int32, tag = "5"] }
}

alternatives! {
    Request { Range(RangeRequest) [message, tag = "1"], Put(PutRequest) [message, tag = "2"], DeleteRange(DeleteRangeRequest) [message, tag = "3"] }
    Response { Range(RangeResponse) [message, tag = "1"], Put(PutResponse) [message, tag = "2"], DeleteRange(DeleteRangeResponse) [message, tag = "3"] }
    Target { Version(i64) [int64, tag = "4"], ModRevision(i64) [int64, tag = "6"] }
    WatchAction { Create(WatchCreate) [message, tag = "1"], Progress(WatchProgress) [message, tag = "3"] }
}
