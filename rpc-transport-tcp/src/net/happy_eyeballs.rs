//! A race among the addresses of one server: "Happy Eyeballs" (RFC 8305).

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until};

/// Maximum delay between two attempts.
const ATTEMPT_DELAY_MAX: Duration = Duration::from_millis(250);

/// Minimum delay between two attempts: the lowest that RFC 8305 recommends.
const ATTEMPT_DELAY_MIN: Duration = Duration::from_millis(100);

/// Time within which attempts to all addresses start, if the delays between them allow it.
const ALL_WITHIN: Duration = Duration::from_secs(1);

/// Time for a server to answer on an open stream before the race tries the next address.
///
/// RFC 8305 starts the next attempt before the end of the handshake. This handshake takes several
/// round trips.
const ANSWER_DELAY: Duration = Duration::from_secs(1);

/// Connects to the first address that accepts and whose server completes its handshake.
///
/// If an attempt fails or takes too long, the race tries the next address. Address families
/// alternate. While a server has time to answer, the race opens no other stream. The first success
/// drops all other attempts.
///
/// # Errors
///
/// Returns the first error if all attempts fail, or `None` if there is no address.
///
/// # Cancel safety
///
/// This function is cancel safe: it drops all attempts.
pub(super) async fn connect<S, T, E, O, F>(
    addresses: Vec<SocketAddr>,
    open: impl Fn(SocketAddr) -> O,
    finish: impl Fn(S) -> F,
) -> Result<T, Option<E>>
where
    O: Future<Output = Result<S, E>>,
    F: Future<Output = Result<T, E>>,
{
    let delay = attempt_delay(addresses.len());
    let mut waiting: VecDeque<_> = interleaved(addresses).into();
    let (mut opening, mut finishing) = (FuturesUnordered::new(), FuturesUnordered::new());
    // The addresses of the attempts in `opening`, which the futures do not reveal.
    let mut begun = Vec::new();
    let (mut next_at, mut failure) = (Instant::now(), None);
    loop {
        if next_at <= Instant::now()
            && let Some(address) = waiting.pop_front()
        {
            begun.push(address);
            let opened = open(address);
            opening.push(async move { (address, opened.await) });
            next_at = Instant::now() + delay;
        }
        // Biased: a finished handshake wins over a stream that opened at the same time.
        let error = tokio::select! {
            biased;
            Some(finished) = finishing.next() => match finished {
                Ok(connected) => return Ok(connected),
                Err(error) => error,
            },
            Some((address, opened)) = opening.next() => match opened {
                // The server accepted, so racing attempts only load the network. Their addresses
                // return to the front of the queue, in case this server never answers.
                Ok(stream) => {
                    opening.clear();
                    begun.retain(|it| *it != address);
                    begun.drain(..).rev().for_each(|it| waiting.push_front(it));
                    finishing.push(finish(stream));
                    next_at = Instant::now() + ANSWER_DELAY;
                    continue;
                }
                Err(error) => {
                    begun.retain(|it| *it != address);
                    error
                }
            },
            () = sleep_until(next_at), if !waiting.is_empty() => continue,
            else => return Err(failure),
        };
        // Keeps the first error: it belongs to the preferred address, and users know that one best.
        failure.get_or_insert(error);
        next_at = Instant::now();
    }
}

fn attempt_delay(address_count: usize) -> Duration {
    let count = u32::try_from(address_count).unwrap_or(u32::MAX).max(1);
    (ALL_WITHIN / count).clamp(ATTEMPT_DELAY_MIN, ATTEMPT_DELAY_MAX)
}

/// Alternates the families of the addresses, beginning with the first one's. Each family keeps its
/// order.
fn interleaved(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let begins_with_ipv4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let count = addresses.len();
    let (first, second): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|it| it.is_ipv4() == begins_with_ipv4);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut ordered = Vec::with_capacity(count);
    while ordered.len() < count {
        ordered.extend(first.next().into_iter().chain(second.next()));
    }
    ordered
}

pub(super) fn without_address() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the name has no address")
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::pending;

    use tokio::time::sleep;

    use super::*;

    /// Runs the race without handshakes.
    async fn connect<T, F: Future<Output = io::Result<T>>>(
        addresses: Vec<SocketAddr>,
        open: impl Fn(SocketAddr) -> F,
    ) -> io::Result<T> {
        let opened = super::connect(addresses, open, |opened| async { Ok(opened) }).await;
        opened.map_err(|error| error.unwrap_or_else(without_address))
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// Returns numbered addresses of one family.
    fn numbered(count: u16) -> Vec<SocketAddr> {
        (1..=count).map(|port| SocketAddr::from(([10, 0, 0, 1], port))).collect()
    }

    fn refused() -> io::Error {
        io::ErrorKind::ConnectionRefused.into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_is_skipped_after_250_ms() {
        let (began, tried) = (Instant::now(), RefCell::new(Vec::new()));
        let open = |address: SocketAddr| {
            tried.borrow_mut().push((address.port(), began.elapsed().as_millis()));
            async move { if address.port() == 3 { Ok(address) } else { pending().await } }
        };
        assert_eq!(connect(numbered(4), open).await.unwrap().port(), 3);
        assert_eq!(*tried.borrow(), [(1, 0), (2, 250), (3, 500)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_live_address_after_nine_silent_ones_takes_a_second() {
        let began = Instant::now();
        let open = |address: SocketAddr| async move {
            if address.port() == 10 { Ok(()) } else { pending().await }
        };
        connect(numbered(10), open).await.unwrap();
        assert_eq!(began.elapsed(), Duration::from_millis(900));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_address_is_skipped_at_once() {
        let began = Instant::now();
        let open = |address: SocketAddr| async move {
            if address.port() == 4 { Ok(()) } else { Err(refused()) }
        };
        connect(numbered(4), open).await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn an_early_attempt_may_still_win() {
        let open = |address: SocketAddr| async move {
            match address.port() {
                1 => sleep(Duration::from_secs(2)).await,
                _ => pending().await,
            }
            Ok(address)
        };
        assert_eq!(connect(numbered(3), open).await.unwrap().port(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn losers_are_dropped() {
        let alive = std::rc::Rc::new(());
        let open = |address: SocketAddr| {
            let alive = std::rc::Rc::clone(&alive);
            async move {
                let _alive = alive;
                if address.port() == 3 { Ok(()) } else { pending().await }
            }
        };
        connect(numbered(4), open).await.unwrap();
        assert_eq!(std::rc::Rc::strong_count(&alive), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_error_belongs_to_the_first_address() {
        let open = |address: SocketAddr| async move {
            Err::<(), _>(if address.port() == 1 { refused() } else { io::Error::other("no route") })
        };
        let error = connect(numbered(3), open).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let none = connect(Vec::new(), open).await.unwrap_err();
        assert_eq!(none.to_string(), "the name has no address");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_silent_after_accept_is_skipped_in_a_second() {
        let (began, tried) = (Instant::now(), RefCell::new(Vec::new()));
        let open = |address: SocketAddr| {
            tried.borrow_mut().push((address.port(), began.elapsed().as_millis()));
            async move { Ok::<_, io::Error>(address.port()) }
        };
        let finish = |port| async move { if port == 3 { Ok(port) } else { pending().await } };
        assert_eq!(super::connect(numbered(4), open, finish).await.unwrap(), 3);
        assert_eq!(*tried.borrow(), [(1, 0), (2, 1000), (3, 2000)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_server_wins_over_a_silent_one() {
        let open = |address: SocketAddr| async move { Ok::<_, io::Error>(address.port()) };
        let finish = |port| async move {
            match port {
                1 => sleep(Duration::from_secs(5)).await,
                _ => pending().await,
            }
            Ok(port)
        };
        assert_eq!(super::connect(numbered(2), open, finish).await.unwrap(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_handshake_is_skipped_at_once() {
        let began = Instant::now();
        let open = |address: SocketAddr| async move { Ok(address.port()) };
        let finish = |port| async move { if port == 3 { Ok(port) } else { Err(refused()) } };
        assert_eq!(super::connect(numbered(3), open, finish).await.unwrap(), 3);
        assert_eq!(began.elapsed(), Duration::ZERO);
        let error = super::connect(numbered(2), open, finish).await.unwrap_err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    /// The first address drops SYNs; the second accepts and stays silent.
    #[tokio::test(start_paused = true)]
    async fn attempts_dropped_for_an_open_stream_are_retried() {
        let tried = RefCell::new(Vec::new());
        let open = |address: SocketAddr| {
            tried.borrow_mut().push(address.port());
            let is_first = tried.borrow().len() == 1;
            async move {
                if is_first {
                    pending::<()>().await;
                }
                Ok::<_, io::Error>(address.port())
            }
        };
        let finish = |port| async move { if port == 1 { Ok(port) } else { pending().await } };
        assert_eq!(super::connect(numbered(2), open, finish).await.unwrap(), 1);
        assert_eq!(*tried.borrow(), [1, 2, 1]);
    }

    #[test]
    fn families_alternate_from_the_first_address() {
        let given = ["[::1]:1", "[::1]:2", "[::1]:3", "1.1.1.1:1", "1.1.1.1:2"].map(address);
        let expected = ["[::1]:1", "1.1.1.1:1", "[::1]:2", "1.1.1.1:2", "[::1]:3"].map(address);
        assert_eq!(interleaved(given.to_vec()), expected);
        let (v4, v6) = (address("1.1.1.1:1"), address("[::1]:1"));
        assert_eq!(interleaved(vec![v4, v6]), [v4, v6]);
        assert_eq!(interleaved(Vec::new()), []);
    }
}
