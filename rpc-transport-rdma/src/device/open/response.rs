//! The response of a device's watch to an event, decided purely.

use crate::AsyncEventKind;
use crate::verbs::AsyncEvent;

/// Number of the event that tells of another table of partitions (`IBV_EVENT_PKEY_CHANGE`).
const PARTITION_CHANGE: i32 = 12;

/// A response to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Response {
    /// It is counted, and nothing follows from it.
    Ignore,
    /// A port is back, or all are: ports are looked up anew.
    Trust(Option<u8>),
    /// A port went down: its connections end unless it comes back soon; those of all ports if the
    /// event names none.
    Suspect(Option<u8>),
    /// The addresses or partitions of ports may have changed: they are looked up anew, and
    /// connections whose own are gone end.
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

/// Returns the response to `event`.
pub(super) fn response(event: &AsyncEvent) -> Response {
    match event.kind {
        AsyncEventKind::PortActive => Response::Trust(event.port),
        AsyncEventKind::PortError => Response::Suspect(event.port),
        // A queue pair is in the partition at its place in the table, whichever that is by now.
        AsyncEventKind::GidChange
        | AsyncEventKind::LidChange
        | AsyncEventKind::Other(PARTITION_CHANGE) => Response::CheckAddresses,
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
            (AsyncEventKind::PortActive, Response::Trust(Some(2))),
            (AsyncEventKind::PortError, Response::Suspect(Some(2))),
            (AsyncEventKind::GidChange, Response::CheckAddresses),
            (AsyncEventKind::LidChange, Response::CheckAddresses),
            (AsyncEventKind::Other(PARTITION_CHANGE), Response::CheckAddresses),
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
        assert_eq!(response(&event(AsyncEventKind::PortError)), Response::Suspect(None));
    }
}
