//! What an asynchronous event asks for. Pure.

use crate::verbs::{AsyncEvent, AsyncEventKind};

/// What to do about an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Response {
    /// It is counted, and nothing follows from it.
    Ignore,
    /// Ports may be usable that were not: they are looked up anew.
    LookAgain,
    /// The connections of a port end; those of all ports if the event names none.
    EndPort(Option<u8>),
    /// The addresses of ports may have changed: connections whose own is gone end.
    CheckAddresses,
    /// The connection of a queue pair ends.
    EndQueuePair(u32),
    /// A queue that connections share is broken: the workers of the device end.
    EndWorkers,
    /// The device is gone.
    EndDevice,
    /// A shared receive queue runs low.
    Replenish,
    /// A queue pair in the error state takes no more receives.
    EndReceives(u32),
}

/// What `event` asks for.
pub(super) fn response(event: &AsyncEvent) -> Response {
    match event.kind {
        AsyncEventKind::PortActive => Response::LookAgain,
        AsyncEventKind::PortError => Response::EndPort(event.port),
        AsyncEventKind::GidChange | AsyncEventKind::LidChange => Response::CheckAddresses,
        AsyncEventKind::QueuePairFatal
        | AsyncEventKind::QueuePairRequestError
        | AsyncEventKind::QueuePairAccessError => {
            event.queue_pair_number.map_or(Response::Ignore, Response::EndQueuePair)
        }
        AsyncEventKind::CompletionQueueError | AsyncEventKind::SharedReceiveQueueError => {
            Response::EndWorkers
        }
        AsyncEventKind::DeviceFatal => Response::EndDevice,
        AsyncEventKind::ReceiveLimit => Response::Replenish,
        // It may never come: what waits for it has a bound.
        AsyncEventKind::LastReceiveReached => {
            event.queue_pair_number.map_or(Response::Ignore, Response::EndReceives)
        }
        AsyncEventKind::Other(_) => Response::Ignore,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: AsyncEventKind) -> Response {
        response(&AsyncEvent { kind, port: Some(2), queue_pair_number: Some(17) })
    }

    #[test]
    fn each_kind_of_event_has_its_response() {
        let expected = [
            (AsyncEventKind::CompletionQueueError, Response::EndWorkers),
            (AsyncEventKind::SharedReceiveQueueError, Response::EndWorkers),
            (AsyncEventKind::QueuePairFatal, Response::EndQueuePair(17)),
            (AsyncEventKind::QueuePairRequestError, Response::EndQueuePair(17)),
            (AsyncEventKind::QueuePairAccessError, Response::EndQueuePair(17)),
            (AsyncEventKind::DeviceFatal, Response::EndDevice),
            (AsyncEventKind::PortActive, Response::LookAgain),
            (AsyncEventKind::PortError, Response::EndPort(Some(2))),
            (AsyncEventKind::GidChange, Response::CheckAddresses),
            (AsyncEventKind::LidChange, Response::CheckAddresses),
            (AsyncEventKind::ReceiveLimit, Response::Replenish),
            (AsyncEventKind::LastReceiveReached, Response::EndReceives(17)),
            (AsyncEventKind::Other(99), Response::Ignore),
        ];
        for (kind, response) in expected {
            assert_eq!(of(kind), response, "{kind:?}");
        }
    }

    #[test]
    fn an_event_without_its_subject_harms_nothing_else() {
        let event = |kind| AsyncEvent { kind, port: None, queue_pair_number: None };
        assert_eq!(response(&event(AsyncEventKind::QueuePairFatal)), Response::Ignore);
        assert_eq!(response(&event(AsyncEventKind::PortError)), Response::EndPort(None));
    }
}
