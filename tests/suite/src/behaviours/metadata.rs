//! Metadata of requests and responses.

use farcall::{Request, Trailers};

use crate::failure::{check, check_eq};
use crate::harness::stack::TrailersSeen;
use crate::proto::ReflectRequest;
use crate::{Failure, Harness};
use farcall_probe::entries::{entries, metadata, sample, sorted};

fn request(as_trailers: bool) -> Result<Request<ReflectRequest>, Failure> {
    let mut request = Request::new(ReflectRequest { as_trailers });
    *request.metadata_mut() = metadata(&sample())?;
    Ok(request)
}

pub(super) async fn metadata_crosses_both_ways(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let reply = server.probe().await?.reflect(request(false)?).await?;
    let returned = entries(reply.metadata())?;
    let trailers = reply.extensions().get::<Trailers>();
    check(trailers.is_none(), "trailers that the handler did not send", trailers)?;
    check_eq("the response's metadata", &sorted(returned), &sorted(sample()))?;
    let arrived = reply.into_inner().entries;
    check_eq("what the handler saw", &sorted(arrived), &sorted(sample()))
}

pub(super) async fn trailing_metadata_follows_a_success(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let reply = server.probe().await?.reflect(request(true)?).await?;
    let Trailers(trailers) = reply.extensions().get::<Trailers>().cloned().unwrap_or_default();
    let (apart, joined) = match server.stack().trailers() {
        TrailersSeen::Apart => (sorted(sample()), sorted(sample())),
        TrailersSeen::Joined => (Vec::new(), sorted(sample())),
        TrailersSeen::Nowhere => (Vec::new(), Vec::new()),
    };
    check_eq("the trailers", &sorted(entries(&trailers)?), &apart)?;
    let found = entries(reply.metadata())?;
    check_eq("the metadata, which has them too", &sorted(found), &joined)
}
