//! A stream that its client does not read holds what its windows allow, on both sides, and no more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::stream;

use super::echo::echo;
use crate::failure::check;
use crate::proto::EchoRequest;
use crate::{Failure, Harness};

/// The messages of one frame are taken from their stream before it is sent.
const GATHERED_MAX: u32 = 64;

/// The window that a stream of responses begins with: nothing is read of it, so that it stays.
const RESPONSES_MAX: u32 = 256;

/// The window of requests after as many were read: 64, and four times as many twice.
const REQUESTS_MAX: u32 = 1024;

/// Calls beside the stream; each takes a round trip, so that what can be sent has been.
const CALLS: u64 = 200;

pub(super) async fn an_unread_stream_is_produced_within_its_windows(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve().await?;
    let stub = server.stub().await?;
    let produced = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&produced);
    let endless = std::iter::repeat_with(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        EchoRequest { payload: vec![1; 30].into(), ..Default::default() }
    });
    // The server answers each message with the same, until the client stops reading.
    let unread = stub.chat(stream::iter(endless)).await?.into_inner();
    for round in 0..CALLS {
        echo(&stub, round, 100).await?;
    }
    let most = RESPONSES_MAX + REQUESTS_MAX + 2 * GATHERED_MAX;
    let count = produced.load(Ordering::Relaxed);
    check((1..=most).contains(&count), "the messages produced without a reader", count)?;
    drop(unread);
    echo(&stub, CALLS, 100).await
}
