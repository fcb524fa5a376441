//! The fate of handlers, reported to clients of another process. A first event shows that the
//! server watches: a proxy may hold headers back until a message follows them.

use std::sync::Arc;

use farcall::{Request, Response, Status, async_trait};
use futures::{StreamExt as _, stream};
use tokio::sync::Mutex;
use tonic::codegen::BoxStream;

use crate::proto::handlers_server::Handlers as HandlersRpc;
use crate::proto::{HandlerEvent, WatchRequest};
use farcall_probe::watch::{Watch, WatchEvent};

/// The service. A call of it has the events to itself.
#[derive(Debug, Clone)]
pub(super) struct Handlers(Arc<Mutex<Watch>>);

impl Handlers {
    pub(super) fn new(watch: Watch) -> Self {
        Self(Arc::new(Mutex::new(watch)))
    }
}

#[async_trait]
impl HandlersRpc for Handlers {
    type WatchStream = BoxStream<HandlerEvent>;

    async fn watch(&self, _: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let mut watch = Arc::clone(&self.0).lock_owned().await;
        // Those of calls before this one.
        while watch.try_next().is_some() {}
        let watching = HandlerEvent { what: "watching".to_owned(), ..Default::default() };
        let events = stream::unfold(watch, |mut watch| async {
            let event = watch.next().await?;
            Some((Ok(described(event)), watch))
        });
        Ok(Response::new(Box::pin(stream::iter([Ok(watching)]).chain(events))))
    }
}

fn described(event: WatchEvent) -> HandlerEvent {
    let (tag, what) = match event {
        WatchEvent::Entered(tag) => (tag, "entered"),
        WatchEvent::Answered(tag) => (tag, "answered"),
        WatchEvent::Dropped(tag) => (tag, "dropped"),
    };
    HandlerEvent { tag, what: what.to_owned() }
}
