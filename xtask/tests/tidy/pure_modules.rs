//! Names that pure modules must not mention: they take values and return values, and time is an
//! argument.

use std::path::Path;

use crate::fault::Fault;
use crate::source::{Source, find};

/// Folders, ending with a slash, and files that are pure. A new state machine belongs on this list.
const PURE: &[&str] = &[
    "rpc-core/src/wire/",
    "rpc-core/src/calls/",
    "rpc-core/src/policy/",
    "rpc-core/src/balance/",
    "rpc-core/src/limits/quota.rs",
    "rpc-transport-rdma/src/quota/queue.rs",
    "rpc-transport-rdma/src/quota/slots.rs",
    RDMA_PROTO,
    "rpc-transport-tcp/src/codec/",
    "rpc-transport-tcp/src/pacing/acks.rs",
    "rpc-transport-tcp/src/pacing/chunk_len.rs",
    "rpc-transport-tcp/src/pacing/window.rs",
    "rpc-transport-tcp/src/send/batch.rs",
    "rpc-transport-tcp/src/send/pass.rs",
    "rpc-transport-tcp/src/send/queue.rs",
    "rpc-transport-tcp/src/send/scheduler.rs",
];

/// The state machines of an RDMA connection, which know no object of verbs and no registered
/// memory.
const RDMA_PROTO: &str = "rpc-transport-rdma/src/proto/";

/// Further names that these must not mention.
const FORBIDDEN_IN_RDMA_PROTO: &[&str] = &[
    "QueuePair",
    "CompletionQueue",
    "SharedReceiveQueue",
    "Work",
    "crate : : memory",
    "crate : : connection",
    "crate : : worker",
];

/// The one thing of tokio that is no more than a value.
const INSTANT: &str = "tokio : : time : : Instant";

/// Names that they must not mention outside of their tests, as tokens with blanks between them.
const FORBIDDEN: &[&str] =
    &["tokio", "std : : net", "Instant : : now", "SystemTime", "async fn", "async move", ". await"];

/// Mentions in a file that is pure.
pub(crate) fn check(source: &Source) -> Vec<Fault> {
    if !PURE.iter().any(|pure| is_below(&source.path, pure)) || source.path.ends_with("tests.rs") {
        return Vec::new();
    }
    let tokens = source.tokens();
    let tests_start = source.tests_start();
    let instants = find(&tokens, INSTANT);
    let in_proto = if is_below(&source.path, RDMA_PROTO) { FORBIDDEN_IN_RDMA_PROTO } else { &[] };
    let mut faults = Vec::new();
    for pattern in FORBIDDEN.iter().chain(in_proto) {
        let is_instant = |line| *pattern == "tokio" && instants.contains(&line);
        let lines = find(&tokens, pattern).into_iter();
        for line in lines.filter(|&line| line < tests_start && !is_instant(line)) {
            let what = format!("a pure module mentions `{}`", pattern.replace(" : : ", "::"));
            faults.push(Fault::new(&source.path, line, what));
        }
    }
    faults
}

/// Entries of the list that name nothing, as after a move.
pub(crate) fn check_list(root: &Path) -> Vec<Fault> {
    let is_missing = |pure: &&&str| !root.join(pure).exists();
    let missing = PURE.iter().filter(is_missing);
    missing
        .map(|pure| Fault::new(pure, 1, "is on the list of pure modules, but not there"))
        .collect()
}

fn is_below(path: &str, pure: &str) -> bool {
    if pure.ends_with('/') { path.starts_with(pure) } else { path == pure }
}

mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Source::new(path, text)).into_iter().map(|fault| fault.line).collect()
    }

    #[test]
    fn io_clocks_and_tasks_are_found() {
        for text in [
            "use tokio::sync::mpsc;",
            "use std::net::TcpStream;",
            "fn f() { let now = Instant::now(); }",
            "use std::time::SystemTime;",
            "async fn f() {}",
        ] {
            assert_eq!(lines("rpc-core/src/wire/a.rs", text), [1], "{text}");
            assert!(lines("rpc-core/src/client.rs", text).is_empty());
        }
    }

    #[test]
    fn an_instant_is_a_value_and_objects_of_verbs_are_none() {
        let path = "rpc-transport-rdma/src/proto/a.rs";
        assert!(lines(path, "use tokio::time::Instant;").is_empty());
        for text in ["use tokio::time::sleep;", "fn f(a: QueuePair) {}", "use crate::memory::A;"] {
            assert_eq!(lines(path, text), [1], "{text}");
            assert!(lines("rpc-transport-rdma/src/connection/a.rs", text).is_empty());
        }
        assert!(lines("rpc-transport-rdma/src/proto/a_tests.rs", "use tokio::task;").is_empty());
    }

    #[test]
    fn comments_and_tests_may_mention_anything() {
        let text = "//! Nothing of tokio.\nfn f(now: Instant) {}\n\
                    #[cfg(test)]\nmod tests {\n    use tokio::a;\n}\n";
        assert!(lines("rpc-core/src/wire/a.rs", text).is_empty());
    }

    #[test]
    fn a_list_that_names_nothing_is_noticed() {
        assert_eq!(check_list(Path::new("/no/such/folder")).len(), PURE.len());
    }

    #[test]
    fn a_file_is_not_a_prefix() {
        assert!(is_below("a/b.rs", "a/b.rs") && is_below("a/b/c.rs", "a/b/"));
        assert!(!is_below("a/b.rs.rs", "a/b.rs"));
    }
}
