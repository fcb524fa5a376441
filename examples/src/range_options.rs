//! Options of a range beside its keys: limit, order, revision.

use farcall::Status;

use crate::proto::etcdserverpb::RangeRequest;
use crate::proto::etcdserverpb::range_request::{SortOrder, SortTarget};

/// Returns the maximum number of keys in the answer. etcd takes 0 for no limit.
pub(crate) fn limit(request: &RangeRequest) -> usize {
    match usize::try_from(request.limit) {
        _ if request.count_only => 0,
        Ok(0) | Err(_) => usize::MAX,
        Ok(limit) => limit,
    }
}

/// Refuses what a range may ask for and this store does not have.
pub(crate) fn check(request: &RangeRequest, revision: i64) -> Result<(), Status> {
    let unsupported = |what| Err(Status::unimplemented(format!("{what} is not supported")));
    if request.revision > revision {
        let text = "etcdserver: mvcc: required revision is a future revision";
        return Err(Status::out_of_range(text));
    }
    if request.revision > 0 && request.revision < revision {
        return unsupported("reading a past revision");
    }
    let by_key = request.sort_target == SortTarget::Key as i32;
    match SortOrder::try_from(request.sort_order) {
        Ok(SortOrder::None) => {}
        Ok(SortOrder::Ascend) if by_key => {}
        _ => return unsupported("an order other than ascending by key"),
    }
    let RangeRequest { min_mod_revision, max_mod_revision, .. } = *request;
    let RangeRequest { min_create_revision, max_create_revision, .. } = *request;
    match [min_mod_revision, max_mod_revision, min_create_revision, max_create_revision] {
        [0, 0, 0, 0] => Ok(()),
        _ => unsupported("a choice by revision"),
    }
}
