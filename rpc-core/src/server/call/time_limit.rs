//! The deadline of a call on the server, and which side set it.

use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;

use crate::call::refusal;
use crate::{CallKind, Deadline};

/// The bound on the time of a call. The side that set it and its length are kept, because the
/// status of a call that is over its time names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum TimeLimit {
    /// The call may take as long as it likes.
    None,
    /// What the client allowed.
    Client(Deadline, Duration),
    /// The server's own limit for unary calls, which passes before any deadline of the client.
    UnaryTimeout(Deadline, Duration),
}

impl TimeLimit {
    /// The limit of a call that has arrived now, from the microseconds that the client allows it,
    /// of which 0 stands for no limit, and from the server's timeout for unary calls. The clock is
    /// read only where there is one of them.
    pub(in crate::server) fn of_call(
        client_us: u64,
        kind: CallKind,
        unary_timeout: Option<Duration>,
    ) -> Self {
        let client = (client_us > 0).then(|| Duration::from_micros(client_us));
        let own = unary_timeout.filter(|_| kind == CallKind::Unary);
        let from_now = |timeout| Deadline::after(Instant::now(), timeout);
        match (client, own) {
            (Some(client), Some(own)) if own < client => Self::UnaryTimeout(from_now(own), own),
            (Some(client), _) => Self::Client(from_now(client), client),
            (None, Some(own)) => Self::UnaryTimeout(from_now(own), own),
            (None, None) => Self::None,
        }
    }

    /// The limit of a unary call whose message has not come; of any other kind the client's.
    pub(in crate::server) fn of_early(
        client: Option<(Deadline, Duration)>,
        kind: CallKind,
        unary_timeout: Option<Duration>,
    ) -> Self {
        let own = unary_timeout.filter(|_| kind == CallKind::Unary);
        match (client, own) {
            (Some((deadline, client)), own) if own.is_none_or(|own| client <= own) => {
                Self::Client(deadline, client)
            }
            (_, Some(own)) => Self::UnaryTimeout(Deadline::after(Instant::now(), own), own),
            (_, None) => Self::None,
        }
    }

    /// The instant, if there is one.
    pub(in crate::server) fn deadline(self) -> Option<Deadline> {
        match self {
            Self::None => None,
            Self::Client(deadline, _) | Self::UnaryTimeout(deadline, _) => Some(deadline),
        }
    }

    /// The status of a call that is over this limit.
    pub(in crate::server) fn exceeded(self) -> Status {
        match self {
            Self::None => refusal::deadline_exceeded(),
            Self::Client(_, timeout) => refusal::over_time(timeout, "the client's deadline"),
            Self::UnaryTimeout(_, timeout) => {
                refusal::over_time(timeout, "the server's unary_timeout")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const SECOND_US: u64 = 1_000_000;

    #[tokio::test(start_paused = true)]
    async fn the_earlier_limit_of_a_unary_call_counts() {
        let at = |count| Deadline::after(Instant::now(), count * SECOND);
        let of = |client_us| TimeLimit::of_call(client_us, CallKind::Unary, Some(2 * SECOND));
        assert_eq!(of(0), TimeLimit::UnaryTimeout(at(2), 2 * SECOND));
        assert_eq!(of(SECOND_US), TimeLimit::Client(at(1), SECOND));
        assert_eq!(of(3 * SECOND_US), TimeLimit::UnaryTimeout(at(2), 2 * SECOND));
        let words = "the call did not end within 2s (the server's unary_timeout)";
        assert_eq!(of(0).exceeded().message(), words);
        let words = "the call did not end within 1s (the client's deadline)";
        assert_eq!(of(SECOND_US).exceeded().message(), words);
    }

    #[tokio::test(start_paused = true)]
    async fn streams_have_the_clients_deadline_only() {
        let client = TimeLimit::Client(Deadline::after(Instant::now(), 3 * SECOND), 3 * SECOND);
        for kind in [CallKind::ClientStreaming, CallKind::ServerStreaming, CallKind::Streaming] {
            let of = |client_us| TimeLimit::of_call(client_us, kind, Some(SECOND));
            assert_eq!((of(0), of(3 * SECOND_US)), (TimeLimit::None, client));
        }
    }
}
