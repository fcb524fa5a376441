//! gRPC's route guide: what is where, and what travellers tell each other.

/// Code generated from `route_guide.proto`.
#[allow(missing_docs, unreachable_pub, reason = "it is generated")]
pub(crate) mod proto {
    tonic::include_proto!("routeguide");
}

use std::pin::Pin;
use std::time::Instant;

use proto::route_guide_server::RouteGuide;
use proto::{Feature, Point, Rectangle, RouteNote, RouteSummary};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// The features: their latitudes and longitudes in ten millionths of a degree, and their names.
const FEATURES: [(i32, i32, &str); 4] = [
    (525_162_800, 133_777_000, "Brandenburg Gate"),
    (525_208_000, 134_094_000, "Television Tower"),
    (525_050_000, 134_396_000, "Oberbaum Bridge"),
    (524_034_000, 130_386_000, "Sanssouci"),
];

/// The mean radius of the earth in metres.
const EARTH_RADIUS: f64 = 6_371_000.0;

/// Maximum number of answers in a chat that wait for its traveller.
const ANSWERS_MAX: usize = 16;

/// The guide.
#[derive(Debug)]
pub(crate) struct Guide;

fn feature(place: &Point) -> Option<Feature> {
    let at = |known: &(i32, i32, &str)| (known.0, known.1) == (place.latitude, place.longitude);
    FEATURES.into_iter().find(at).map(named)
}

fn named((latitude, longitude, name): (i32, i32, &str)) -> Feature {
    Feature { name: name.to_owned(), location: Some(Point { latitude, longitude }) }
}

/// The distance between two points along the surface, in metres: the haversine formula.
fn distance(from: Point, to: Point) -> f64 {
    let radians = |e7: i32| (f64::from(e7) / 1e7).to_radians();
    let (from_latitude, to_latitude) = (radians(from.latitude), radians(to.latitude));
    let half = |from: f64, to: f64| ((to - from) / 2.0).sin().powi(2);
    let across = half(radians(from.longitude), radians(to.longitude));
    let chord = half(from_latitude, to_latitude) + from_latitude.cos() * to_latitude.cos() * across;
    2.0 * EARTH_RADIUS * chord.sqrt().asin()
}

/// Answers each note with those that the traveller wrote at the same place before.
async fn converse(
    mut notes: Streaming<RouteNote>,
    answers: &mpsc::Sender<Result<RouteNote, Status>>,
) -> Result<(), Status> {
    let mut written: Vec<RouteNote> = Vec::new();
    while let Some(note) = notes.message().await? {
        for earlier in written.iter().filter(|earlier| earlier.location == note.location) {
            let answered = answers.send(Ok(earlier.clone())).await;
            answered.map_err(|_| Status::cancelled("the traveller has gone"))?;
        }
        written.push(note);
    }
    Ok(())
}

#[tonic::async_trait]
impl RouteGuide for Guide {
    type ListFeaturesStream = Pin<Box<dyn Stream<Item = Result<Feature, Status>> + Send>>;
    type RouteChatStream = Pin<Box<dyn Stream<Item = Result<RouteNote, Status>> + Send>>;

    async fn get_feature(&self, request: Request<Point>) -> Result<Response<Feature>, Status> {
        let place = request.into_inner();
        // As its .proto has it, a feature without a name stands for none.
        let unnamed = Feature { name: String::new(), location: Some(place) };
        Ok(Response::new(feature(&place).unwrap_or(unnamed)))
    }

    async fn list_features(
        &self,
        request: Request<Rectangle>,
    ) -> Result<Response<Self::ListFeaturesStream>, Status> {
        let Rectangle { lo: Some(one), hi: Some(other) } = request.into_inner() else {
            return Err(Status::invalid_argument("a rectangle has two corners"));
        };
        let between = |a: i32, b: i32| a.min(b)..=a.max(b);
        let latitudes = between(one.latitude, other.latitude);
        let longitudes = between(one.longitude, other.longitude);
        let inside = FEATURES
            .into_iter()
            .filter(move |known| latitudes.contains(&known.0) && longitudes.contains(&known.1));
        Ok(Response::new(Box::pin(tokio_stream::iter(inside.map(named).map(Ok)))))
    }

    async fn record_route(
        &self,
        request: Request<Streaming<Point>>,
    ) -> Result<Response<RouteSummary>, Status> {
        let (mut points, began) = (request.into_inner(), Instant::now());
        let (mut summary, mut last, mut metres) = (RouteSummary::default(), None, 0.0);
        while let Some(point) = points.message().await? {
            summary.point_count += 1;
            summary.feature_count += i32::from(feature(&point).is_some());
            metres += last.map_or(0.0, |last| distance(last, point));
            last = Some(point);
        }
        // As long as the earth's circumference, which a route may go round 53 times.
        #[expect(clippy::cast_possible_truncation, reason = "the largest is what it becomes then")]
        let metres = metres.round() as i32;
        summary.distance = metres;
        summary.elapsed_time = i32::try_from(began.elapsed().as_secs()).unwrap_or(i32::MAX);
        Ok(Response::new(summary))
    }

    async fn route_chat(
        &self,
        request: Request<Streaming<RouteNote>>,
    ) -> Result<Response<Self::RouteChatStream>, Status> {
        let (send, answers) = mpsc::channel(ANSWERS_MAX);
        tokio::spawn(async move {
            if let Err(status) = converse(request.into_inner(), &send).await {
                // The traveller may have gone.
                let _ = send.send(Err(status)).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}
