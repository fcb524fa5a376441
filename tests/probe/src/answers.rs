//! Answers of the service: payloads and statuses that the requests describe.

use farcall::{Code, Status};

use super::entries::metadata;
use crate::proto::{EchoReply, FailRequest, ProduceRequest};
use farcall_testkit::calls::payload;

/// The payload that a request describes.
pub(super) fn produce(request: ProduceRequest) -> Result<EchoReply, Status> {
    let ProduceRequest { seed, len } = request;
    let len = usize::try_from(len).map_err(|_| Status::out_of_range("no memory is that large"))?;
    Ok(EchoReply { payload: payload(seed, len), tail: bytes::Bytes::new() })
}

/// The status that a request describes.
pub(super) fn failure(request: FailRequest) -> Result<Status, Status> {
    let FailRequest { code, message, details, metadata: entries } = request;
    let metadata = metadata(&entries)?;
    Ok(Status::with_details_and_metadata(Code::from_i32(code), message, details, metadata))
}
