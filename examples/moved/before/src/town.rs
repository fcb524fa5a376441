//! The service of a town, with a method of each kind.

/// What is generated of `tour.proto`.
#[allow(missing_docs, unreachable_pub, reason = "it is generated")]
pub(crate) mod proto {
    tonic::include_proto!("tour");
}

use std::pin::Pin;

use proto::town_server;
use proto::{Distance, District, Note, Place, Sight};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};

/// The sights: how far they are to the east and to the north, and their names.
const SIGHTS: [(i32, i32, &str); 4] =
    [(-3, 1, "mill"), (0, 0, "fountain"), (2, 5, "tower"), (7, 2, "harbour")];

/// The town.
#[derive(Debug)]
pub(crate) struct Town;

fn sight((east, north, name): (i32, i32, &str)) -> Sight {
    Sight { name: name.to_owned(), place: Some(Place { east, north }) }
}

#[tonic::async_trait]
impl town_server::Town for Town {
    type WalkStream = Pin<Box<dyn Stream<Item = Result<Sight, Status>> + Send>>;
    type ChatStream = Pin<Box<dyn Stream<Item = Result<Note, Status>> + Send>>;

    async fn look(&self, request: Request<Place>) -> Result<Response<Sight>, Status> {
        let Place { east, north } = request.into_inner();
        let found = SIGHTS.into_iter().find(|sight| (sight.0, sight.1) == (east, north));
        let found =
            found.ok_or_else(|| Status::not_found(format!("nothing at {east}, {north}")))?;
        Ok(Response::new(sight(found)))
    }

    async fn walk(&self, request: Request<District>) -> Result<Response<Self::WalkStream>, Status> {
        let District { from_east, to_east } = request.into_inner();
        let seen = SIGHTS.into_iter().filter(move |sight| (from_east..=to_east).contains(&sight.0));
        Ok(Response::new(Box::pin(tokio_stream::iter(seen.map(|found| Ok(sight(found)))))))
    }

    async fn record(
        &self,
        request: Request<Streaming<Place>>,
    ) -> Result<Response<Distance>, Status> {
        let mut places = request.into_inner();
        let (mut distance, mut last) = (Distance::default(), None::<Place>);
        while let Some(place) = places.message().await? {
            if let Some(last) = last {
                distance.blocks +=
                    last.east.abs_diff(place.east) + last.north.abs_diff(place.north);
            }
            distance.places += 1;
            last = Some(place);
        }
        Ok(Response::new(distance))
    }

    async fn chat(
        &self,
        request: Request<Streaming<Note>>,
    ) -> Result<Response<Self::ChatStream>, Status> {
        let mut written: Vec<Note> = Vec::new();
        let read = request.into_inner().map(move |note| {
            let note = note?;
            let before = written.iter().filter(|other| other.place == note.place);
            let text = before.map(|other| other.text.as_str()).collect::<Vec<_>>().join("; ");
            let answer = Note { place: note.place, text };
            written.push(note);
            Ok(answer)
        });
        Ok(Response::new(Box::pin(read)))
    }
}
