//! The method `WatchCalls`: calls of the server as they end.
//!
//! A watcher has a bounded queue. Tasks of connections put calls into it without waiting, and count
//! those that find it full. Pattern, codes and sampling are applied before a call is described, so
//! that a watcher of few calls costs the others little.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::{Stream, StreamExt as _, stream};
use rpc_core::server::{
    CallWatch, CallWatcher, EndedCallInfo, HandlerFuture, ServerCall, WATCHERS_MAX,
};
use tokio::sync::mpsc;
use tonic::{Code, Request, Response, Status};

use super::AdminState;
use super::api::{EndedCall, SERVICE, WatchCallsRequest};
use super::history::unix_ms;

/// Calls that wait for a client. Each has at most 3 KiB.
const QUEUE_LEN: usize = 512;

/// Longest pattern of methods, in bytes.
const PATTERN_LEN_MAX: usize = 256;

/// Shows calls to the client of `call`.
pub(super) fn watch(state: Arc<AdminState>, call: ServerCall) -> HandlerFuture {
    call.server_streaming(|request: Request<WatchCallsRequest>| async move {
        Ok(Response::new(calls(&state, request.into_inner())?))
    })
}

/// Returns the calls that `request` chooses.
fn calls(
    state: &AdminState,
    request: WatchCallsRequest,
) -> Result<impl Stream<Item = Result<EndedCall, Status>> + Send + use<>, Status> {
    let (watcher, queue) = Watcher::new(request)?;
    let watcher = Arc::new(watcher);
    let server = state.view.get().and_then(|view| view.core.upgrade());
    let watch = server.and_then(|server| server.watch_calls(Arc::clone(&watcher) as _));
    let watch = watch.ok_or_else(|| {
        Status::resource_exhausted(format!(
            "{WATCHERS_MAX} clients watch calls already: end one of these streams first"
        ))
    })?;
    Ok(shown(watcher, queue, watch).take_until(Box::pin(state.drained())))
}

fn shown(
    watcher: Arc<Watcher>,
    queue: mpsc::Receiver<EndedCallInfo>,
    watch: CallWatch,
) -> impl Stream<Item = Result<EndedCall, Status>> + Send + 'static {
    stream::unfold((watcher, queue, watch), |(watcher, mut queue, watch)| async {
        let call = queue.recv().await?;
        let dropped = watcher.dropped.swap(0, Ordering::Relaxed);
        Some((Ok(message(call, dropped)), (watcher, queue, watch)))
    })
}

fn message(call: EndedCallInfo, dropped: u64) -> EndedCall {
    EndedCall {
        unix_ms: unix_ms(call.at),
        method: call.method.to_owned(),
        peer: call.peer,
        transport: call.transport.to_owned(),
        code: call.code.into(),
        took_us: u64::try_from(call.took.as_micros()).unwrap_or(u64::MAX),
        requests: call.requests.0.into(),
        request_bytes: call.requests.1,
        responses: call.responses.0.into(),
        response_bytes: call.responses.1,
        metadata_keys: call.keys,
        dropped,
    }
}

/// A client that watches calls.
struct Watcher {
    choice: WatchCallsRequest,
    /// Number of calls of which it was to take its share.
    chosen: AtomicU64,
    /// Calls that found the queue full, since the last one that was sent.
    dropped: AtomicU64,
    queue: mpsc::Sender<EndedCallInfo>,
}

impl Watcher {
    fn new(mut choice: WatchCallsRequest) -> Result<(Self, mpsc::Receiver<EndedCallInfo>), Status> {
        if choice.method.len() > PATTERN_LEN_MAX {
            let message = format!("the pattern is longer than {PATTERN_LEN_MAX} bytes");
            return Err(Status::invalid_argument(message));
        }
        if choice.method.is_empty() {
            choice.method = "*".to_owned();
        }
        let has_choice = !choice.codes.is_empty();
        // All that gRPC has, at most.
        choice.codes.retain(|code| Code::from(*code) as i32 == *code);
        choice.codes.sort_unstable();
        choice.codes.dedup();
        // An empty list stands for all codes.
        if has_choice && choice.codes.is_empty() {
            return Err(Status::invalid_argument("none of the codes is gRPC's"));
        }
        let (queue, receiver) = mpsc::channel(QUEUE_LEN);
        let (chosen, dropped) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok((Self { choice, chosen, dropped, queue }, receiver))
    }

    /// Returns true for a share of its calls, by chance.
    fn is_sampled(&self) -> bool {
        let share = u64::from(self.choice.sample_ppm);
        share == 0 || mixed(self.chosen.fetch_add(1, Ordering::Relaxed)) % 1_000_000 < share
    }
}

impl CallWatcher for Watcher {
    fn wants(&self, method: &'static str, code: Code) -> bool {
        let WatchCallsRequest { method: pattern, codes, .. } = &self.choice;
        let is_own = SERVICE.methods.iter().any(|own| own.path == method);
        let has_code = codes.is_empty() || codes.contains(&(code as i32));
        !is_own && has_code && matches(pattern, method) && self.is_sampled()
    }

    fn take(&self, call: EndedCallInfo) {
        if self.queue.try_send(call).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watcher").field(&self.choice).finish()
    }
}

/// Returns a number whose bits all depend on all bits of `number` (splitmix64).
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Returns true if the path of a method matches `pattern`, either with a first slash or without.
fn matches(pattern: &str, path: &str) -> bool {
    let pattern = pattern.strip_prefix('/').unwrap_or(pattern).as_bytes();
    let path = path.strip_prefix('/').unwrap_or(path).as_bytes();
    let (mut at, mut reached) = (0, 0);
    // The last `*`, and the part of the path that it stands for so far. An earlier one need not
    // stand for more: what follows it has matched.
    let mut star = None;
    while reached < path.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, reached));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == path[reached] => {
                (at, reached) = (at + 1, reached + 1);
            }
            _ => {
                let Some((star_at, stands_to)) = star else { return false };
                star = Some((star_at, stands_to + 1));
                (at, reached) = (star_at + 1, stands_to + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn choice(method: &str, codes: &[i32], sample_ppm: u32) -> WatchCallsRequest {
        WatchCallsRequest { method: method.into(), codes: codes.to_vec(), sample_ppm }
    }

    fn info() -> EndedCallInfo {
        EndedCallInfo {
            at: SystemTime::UNIX_EPOCH,
            method: "/shop.Cart/Get",
            peer: String::new(),
            transport: "tcp",
            code: Code::Ok,
            took: Duration::ZERO,
            requests: (1, 1),
            responses: (1, 1),
            keys: Vec::new(),
        }
    }

    #[test]
    fn patterns_match_whole_paths() {
        for (pattern, expected) in [
            ("*", true),
            ("shop.*", true),
            ("/shop.*", true),
            ("shop.Cart/Get", true),
            ("*Get", true),
            ("*.C?rt/*t", true),
            ("*a*t*", true),
            ("**", true),
            ("shop.Cart/Ge", false),
            ("hop.Cart/Get", false),
            ("*.Card/*", false),
            ("", false),
            ("shop.Cart/Get?", false),
        ] {
            assert_eq!(matches(pattern, "/shop.Cart/Get"), expected, "{pattern}");
        }
        assert!(matches("unknown", "unknown"));
    }

    #[test]
    fn code_and_pattern_choose_calls_of_other_services() {
        let wants = |choice, method, code| Watcher::new(choice).unwrap().0.wants(method, code);
        assert!(wants(choice("", &[], 0), "/a.B/C", Code::Ok));
        assert!(!wants(choice("", &[], 0), "/farcall.admin.v1.Admin/GetSnapshot", Code::Ok));
        assert!(wants(choice("a.*", &[5, 99], 0), "/a.B/C", Code::NotFound));
        assert!(!wants(choice("a.*", &[5], 0), "/a.B/C", Code::Ok));
        assert!(!wants(choice("b.*", &[5], 0), "/a.B/C", Code::NotFound));
        let long = Watcher::new(choice(&"a".repeat(257), &[], 0)).map(drop);
        assert_eq!(long.unwrap_err().code(), Code::InvalidArgument);
    }

    #[test]
    fn sample_is_the_share_of_the_calls() {
        let (watcher, _queue) = Watcher::new(choice("", &[], 10_000)).unwrap();
        let taken = (0..100_000).filter(|_| watcher.wants("/a.B/C", Code::Ok)).count();
        assert!((900..1100).contains(&taken), "{taken} of 100,000 at 1 %");
    }

    #[test]
    fn full_queue_counts_what_it_drops() {
        let (watcher, mut queue) = Watcher::new(choice("", &[], 0)).unwrap();
        for _ in 0..QUEUE_LEN + 3 {
            watcher.take(info());
        }
        assert_eq!(watcher.dropped.load(Ordering::Relaxed), 3);
        assert!(queue.try_recv().is_ok());
        watcher.take(info());
        assert_eq!(watcher.dropped.load(Ordering::Relaxed), 3);
    }
}
