//! etcd's `KV` service over a store in memory.

use bytes::Bytes;
use farcall::tonic::codegen::BoxStream;
use farcall::{Request, Response, Status, async_trait};
use parking_lot::Mutex;

use crate::proto::etcdserverpb::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, PutRequest,
    PutResponse, RangeRequest, RangeResponse, RangeStreamResponse, ResponseHeader, TxnRequest,
    TxnResponse, kv_server,
};
use crate::{KeyRange, Store, range_options};

/// The service. What it does not do it refuses, and ignores nothing.
#[derive(Debug, Default)]
pub struct Kv {
    store: Mutex<Store>,
}

fn header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader { cluster_id: 1, member_id: 1, revision, raft_term: 1 })
}

fn key_range(key: Bytes, range_end: Bytes) -> Result<KeyRange, Status> {
    if key.is_empty() {
        return Err(Status::invalid_argument("etcdserver: key is not provided"));
    }
    Ok(KeyRange::new(key, range_end))
}

#[async_trait]
impl kv_server::Kv for Kv {
    type RangeStreamStream = BoxStream<RangeStreamResponse>;

    async fn range(
        &self,
        request: Request<RangeRequest>,
    ) -> Result<Response<RangeResponse>, Status> {
        let request = request.into_inner();
        let store = self.store.lock();
        range_options::check(&request, store.revision())?;
        let limit = range_options::limit(&request);
        let mut found = store.range(&key_range(request.key, request.range_end)?, limit);
        drop(store);
        if request.keys_only {
            found.kvs.iter_mut().for_each(|kv| kv.value = Bytes::new());
        }
        let more = !request.count_only && found.kvs.len() < found.count;
        let count = i64::try_from(found.count).unwrap_or(i64::MAX);
        let header = header(found.revision);
        Ok(Response::new(RangeResponse { header, kvs: found.kvs, more, count }))
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let PutRequest { key, value, lease, prev_kv, ignore_value, ignore_lease } =
            request.into_inner();
        if key.is_empty() {
            return Err(Status::invalid_argument("etcdserver: key is not provided"));
        }
        if lease != 0 {
            return Err(Status::not_found("etcdserver: requested lease not found"));
        }
        if ignore_value || ignore_lease {
            return Err(Status::unimplemented("keeping a value or a lease is not supported"));
        }
        let change = self.store.lock().put(key, value);
        let prev_kv = change.previous.filter(|_| prev_kv);
        Ok(Response::new(PutResponse { header: header(change.revision), prev_kv }))
    }

    async fn delete_range(
        &self,
        request: Request<DeleteRangeRequest>,
    ) -> Result<Response<DeleteRangeResponse>, Status> {
        let DeleteRangeRequest { key, range_end, prev_kv } = request.into_inner();
        let range = key_range(key, range_end)?;
        let change = self.store.lock().delete(&range);
        let deleted = i64::try_from(change.previous.len()).unwrap_or(i64::MAX);
        let prev_kvs = if prev_kv { change.previous } else { Vec::new() };
        let header = header(change.revision);
        Ok(Response::new(DeleteRangeResponse { header, deleted, prev_kvs }))
    }

    async fn range_stream(
        &self,
        _: Request<RangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        Err(Status::unimplemented("RangeStream is not supported"))
    }

    async fn txn(&self, _: Request<TxnRequest>) -> Result<Response<TxnResponse>, Status> {
        Err(Status::unimplemented("Txn is not supported"))
    }

    async fn compact(
        &self,
        _: Request<CompactionRequest>,
    ) -> Result<Response<CompactionResponse>, Status> {
        Err(Status::unimplemented("Compact is not supported"))
    }
}
