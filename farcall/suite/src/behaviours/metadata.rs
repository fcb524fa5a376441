//! Metadata of requests and responses.

use farcall::{Request, Trailers};

use crate::failure::{check, check_eq};
use crate::probe::{entries, metadata};
use crate::proto::{MetadataEntry, ReflectRequest};
use crate::{Failure, Harness};

/// ASCII, binary with every byte, an empty value of each kind, and keys that occur repeatedly.
pub(super) fn sample() -> Vec<MetadataEntry> {
    let entry = |key: &str, value: &[u8]| MetadataEntry {
        key: key.to_owned(),
        value: value.to_vec().into(),
    };
    let every_byte: Vec<u8> = (0..=255).collect();
    vec![
        entry("x-plain", b"with spaces, \"quotes\" and ~tilde"),
        entry("x-empty", b""),
        entry("x-repeated", b"first"),
        entry("x-repeated", b"second"),
        entry("x-repeated", b"first"),
        entry("x-every-bin", &every_byte),
        entry("x-empty-bin", b""),
        entry("x-repeated-bin", &[0]),
        entry("x-repeated-bin", &[255, 0]),
    ]
}

/// Keys in order; the values of one key keep the order in which they were added.
pub(super) fn sorted(mut entries: Vec<MetadataEntry>) -> Vec<MetadataEntry> {
    entries.sort_by(|one, other| one.key.cmp(&other.key));
    entries
}

fn request(as_trailers: bool) -> Result<Request<ReflectRequest>, Failure> {
    let mut request = Request::new(ReflectRequest { as_trailers });
    *request.metadata_mut() = metadata(&sample())?;
    Ok(request)
}

pub(super) async fn metadata_crosses_both_ways(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve().await?;
    let reply = server.stub().await?.reflect(request(false)?).await?;
    let returned = entries(reply.metadata())?;
    let trailers = reply.extensions().get::<Trailers>();
    check(trailers.is_none(), "trailers that nobody sent", trailers)?;
    check_eq("the response's metadata", &sorted(returned), &sorted(sample()))?;
    let arrived = reply.into_inner().entries;
    check_eq("what the handler saw", &sorted(arrived), &sorted(sample()))
}

pub(super) async fn trailing_metadata_follows_a_success(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve().await?;
    let reply = server.stub().await?.reflect(request(true)?).await?;
    let Trailers(trailers) = reply.extensions().get::<Trailers>().cloned().unwrap_or_default();
    check_eq("the trailers", &sorted(entries(&trailers)?), &sorted(sample()))?;
    let merged = entries(reply.metadata())?;
    check_eq("the metadata, which has them too", &sorted(merged), &sorted(sample()))
}
