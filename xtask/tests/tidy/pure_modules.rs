//! What pure modules must not mention: they take values and return values, and time is an argument.

use std::path::Path;

use crate::fault::Fault;
use crate::source::{Source, find};

/// Folders, ending with a slash, and files that are pure. A new state machine belongs on this list.
const PURE: &[&str] = &[
    "rpc-core/src/wire/",
    "rpc-core/src/calls/",
    "rpc-core/src/policy/",
    "rpc-core/src/limits/quota.rs",
    "rpc-transport-rdma/src/fair/queue.rs",
    "rpc-transport-tcp/src/codec/",
    "rpc-transport-tcp/src/pacing/acks.rs",
    "rpc-transport-tcp/src/pacing/chunk_len.rs",
    "rpc-transport-tcp/src/pacing/window.rs",
    "rpc-transport-tcp/src/send/batch.rs",
    "rpc-transport-tcp/src/send/pass.rs",
    "rpc-transport-tcp/src/send/queue.rs",
    "rpc-transport-tcp/src/send/scheduler.rs",
];

/// What they must not mention outside of their tests, as words and signs with blanks between.
const FORBIDDEN: &[&str] =
    &["tokio", "std : : net", "Instant : : now", "SystemTime", "async fn", "async move", ". await"];

/// Mentions in a file that is pure.
pub(crate) fn check(source: &Source) -> Vec<Fault> {
    if !PURE.iter().any(|pure| is_below(&source.path, pure)) {
        return Vec::new();
    }
    let tokens = source.tokens();
    let tests_start = source.tests_start();
    let mut faults = Vec::new();
    for pattern in FORBIDDEN {
        for line in find(&tokens, pattern).into_iter().filter(|&line| line < tests_start) {
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
