//! Small calls and messages, one after the other, for tests that count what one of them costs.

use bytes::Bytes;
use farcall::Status;
use futures::stream;

use crate::proto::EchoRequest;
use crate::proto::probe_rpc::ProbeStub;

/// Bytes in each message.
const PAYLOAD_LEN: usize = 64;

/// Returns a payload that all requests share.
#[must_use]
pub fn shared_payload() -> Bytes {
    Bytes::from(vec![7; PAYLOAD_LEN])
}

/// Calls that are made one after the other.
///
/// # Errors
///
/// Returns the error of the first call that fails.
///
/// # Panics
///
/// Panics if an echo is of another length than what was sent; so does [`chat`].
pub async fn unary(stub: &ProbeStub, payload: &Bytes, count: u64) -> Result<(), Status> {
    for _ in 0..count {
        let request = EchoRequest { payload: payload.clone(), tail: Bytes::new() };
        let reply = stub.echo(request).await?.into_inner();
        assert_eq!(reply.payload.len(), PAYLOAD_LEN);
    }
    Ok(())
}

/// Messages of one stream that goes there and back.
///
/// # Errors
///
/// Returns the error of the call.
///
/// # Panics
///
/// Also when not as many come back as were sent.
pub async fn chat(stub: &ProbeStub, payload: &Bytes, count: u64) -> Result<(), Status> {
    let messages = stream::iter(requests(payload, count));
    let mut replies = stub.chat(messages).await?.into_inner();
    let mut received = 0;
    while let Some(reply) = replies.message().await? {
        assert_eq!(reply.payload.len(), PAYLOAD_LEN);
        received += 1;
    }
    assert_eq!(received, count);
    Ok(())
}

/// Returns `count` requests with the payload.
pub fn requests(payload: &Bytes, count: u64) -> impl Iterator<Item = EchoRequest> + use<> {
    let payload = payload.clone();
    (0..count).map(move |_| EchoRequest { payload: payload.clone(), tail: Bytes::new() })
}
