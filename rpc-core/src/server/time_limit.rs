//! When a call ends at the latest, and which side set that limit.

use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;

use crate::{CallKind, Deadline, refusal};

/// The bound on the time of a call. The side that set it is kept, because the status of a call
/// that is over its time names the setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeLimit {
    /// The call may take as long as it likes.
    None,
    /// The deadline that the client sent.
    Client(Deadline),
    /// The server's own limit for unary calls, which passes before any deadline of the client.
    UnaryTimeout(Deadline),
}

impl TimeLimit {
    /// The limit of a call that has arrived now, from the client's deadline and from the server's
    /// timeout for unary calls. The clock is read only where there is such a timeout.
    pub(super) fn of_call(
        client: Option<Deadline>,
        kind: CallKind,
        unary_timeout: Option<Duration>,
    ) -> Self {
        let own = match (kind, unary_timeout) {
            (CallKind::Unary, Some(timeout)) => Some(Deadline::after(Instant::now(), timeout)),
            _ => None,
        };
        match (client, own) {
            (Some(client), Some(own)) if own < client => Self::UnaryTimeout(own),
            (Some(client), _) => Self::Client(client),
            (None, Some(own)) => Self::UnaryTimeout(own),
            (None, None) => Self::None,
        }
    }

    /// The instant, if there is one.
    pub(super) fn deadline(self) -> Option<Deadline> {
        match self {
            Self::None => None,
            Self::Client(deadline) | Self::UnaryTimeout(deadline) => Some(deadline),
        }
    }

    /// The status of a call that is over this limit.
    pub(super) fn exceeded(self) -> Status {
        match self {
            Self::None | Self::Client(_) => refusal::deadline_exceeded(),
            Self::UnaryTimeout(_) => refusal::over_unary_timeout(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn the_earlier_limit_of_a_unary_call_counts() {
        let in_seconds = |count| Deadline::after(Instant::now(), count * SECOND);
        let of = |client| TimeLimit::of_call(client, CallKind::Unary, Some(2 * SECOND));
        assert_eq!(of(None), TimeLimit::UnaryTimeout(in_seconds(2)));
        assert_eq!(of(Some(in_seconds(1))), TimeLimit::Client(in_seconds(1)));
        assert_eq!(of(Some(in_seconds(3))), TimeLimit::UnaryTimeout(in_seconds(2)));
        assert!(of(None).exceeded().message().contains("unary_timeout"));
    }

    #[tokio::test(start_paused = true)]
    async fn streams_have_the_clients_deadline_only() {
        let client = Deadline::after(Instant::now(), 3 * SECOND);
        for kind in [CallKind::ClientStreaming, CallKind::ServerStreaming, CallKind::Streaming] {
            let of = |client| TimeLimit::of_call(client, kind, Some(SECOND));
            assert_eq!((of(None), of(Some(client))), (TimeLimit::None, TimeLimit::Client(client)));
        }
    }
}
