//! Payloads of all sizes, byte for byte.

use bytes::Bytes;

use crate::failure::check;
use crate::harness::either::EitherProbe;
use crate::payload::{check_payload, payload};
use crate::proto::EchoRequest;
use crate::{Failure, Harness};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Around what transports treat differently: nothing, less than a header, a page or a slot, the
/// border between whole and in pieces on TCP, and what no slot holds.
const SIZES: [usize; 13] = [
    0,
    1,
    31,
    32,
    33,
    4 * KIB - 1,
    4 * KIB,
    4 * KIB + 1,
    64 * KIB - 1,
    64 * KIB,
    64 * KIB + 1,
    MIB,
    8 * MIB,
];

/// Around the border itself: a frame is a header and a few bytes of protobuf longer than this.
const OVERHEAD_MAX: usize = 64;

/// Makes one call and checks its answer.
pub(super) async fn echo(
    stub: impl Into<EitherProbe>,
    seed: u64,
    len: usize,
) -> Result<(), Failure> {
    let expected = payload(seed, len);
    let request = EchoRequest { payload: expected.clone(), tail: Bytes::new() };
    let reply = stub.into().echo(request).await?.into_inner();
    check_payload("the payload", &reply.payload, &expected)
}

pub(super) async fn a_payload_of_any_size_comes_back_unchanged(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let stub = server.probe().await?;
    let border = 64 * KIB - OVERHEAD_MAX..64 * KIB;
    for (seed, len) in SIZES.into_iter().chain(border).enumerate() {
        echo(&stub, seed as u64, len).await?;
    }
    Ok(())
}

pub(super) async fn a_payload_of_64_mib_comes_back_unchanged(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let stub = server.probe().await?;
    echo(&stub, 64, 64 * MIB).await
}

/// Two fields lie in the answer's memory as they lay on the wire: next to each other, with only
/// the second one's tag and length between.
pub(super) async fn payloads_alias_the_memory_they_were_received_into(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let stub = server.probe().await?;
    for len in [KIB, MIB] {
        let (first, second) = (payload(1, len), payload(2, len));
        let request = EchoRequest { payload: first.clone(), tail: second.clone() };
        let reply = stub.echo(request).await?.into_inner();
        check_payload("the payload", &reply.payload, &first)?;
        check_payload("the tail", &reply.tail, &second)?;
        let end_of_first = reply.payload.as_ptr_range().end.addr();
        let gap = reply.tail.as_ptr().addr().wrapping_sub(end_of_first);
        check((1..=5).contains(&gap), "the bytes between the two fields", gap)?;
    }
    Ok(())
}
