//! Lines of the log that a peer can cause as often as it likes go through `limited_log!`.
//!
//! Whether a peer can cause a line, a machine does not know. So every other line of INFO and above
//! is on a list, with the reason why a peer cannot repeat it at will.

use crate::fault::Fault;
use crate::source::{Source, find};

/// The crates that run with peers.
const CRATES: &[&str] = &[
    "rpc-core/src/",
    "rpc-transport-grpc/src/",
    "rpc-transport-tcp/src/",
    "rpc-transport-rdma/src/",
    "farcall/src/",
    "farcall-etcd/src/",
    "farcall-xds/src/",
];

/// Macros that write lines, as tokens with blanks between them.
const WRITERS: &[&str] = &["error !", "warn !", "info !", "event !"];

/// Number of unlimited lines that a file may write, with the reason.
const FREE: &[(&str, usize, &str)] = &[
    ("rpc-core/src/limits/log.rs", 3, "the limit itself"),
    ("rpc-core/src/call/log.rs", 1, "`LogLimit::admit` just before it, a kind for each status"),
    ("rpc-core/src/connect/upgrade.rs", 3, "once a listener"),
    ("rpc-core/src/server/call/record.rs", 1, "the access log, which its operator asked for"),
    ("rpc-core/src/limits/shared.rs", 2, "policy::line_limit: once a minute"),
    ("rpc-core/src/handoff/monitor.rs", 1, "once a process"),
    ("rpc-transport-grpc/src/target/ping_pace.rs", 1, "a doubling, until pings are a year apart"),
    ("farcall/src/settings/reload/reloader.rs", 3, "the operator's file, which no peer changes"),
    ("farcall/src/settings/rdma/not_built_in.rs", 1, "once a load of the operator's file"),
    ("rpc-transport-rdma/src/worker/driver.rs", 1, "the end of a lane"),
    ("rpc-transport-rdma/src/proto/rndv/memory_windows.rs", 1, "a fault of the device"),
    ("rpc-transport-rdma/src/device/open/watch.rs", 1, "the end of a device"),
    ("rpc-transport-rdma/src/sys/provider/pages.rs", 1, "a fault of the kernel"),
    ("rpc-transport-rdma/src/verbs/queue_pair.rs", 1, LEAKED),
    ("rpc-transport-rdma/src/verbs/simulated/memory.rs", 1, LEAKED),
    ("rpc-transport-rdma/src/sys/provider/ibverbs/completion_queue.rs", 2, LEAKED),
    ("rpc-transport-rdma/src/sys/provider/ibverbs/context.rs", 2, LEAKED),
    ("rpc-transport-rdma/src/sys/provider/ibverbs/memory.rs", 2, LEAKED),
    ("rpc-transport-rdma/src/sys/provider/ibverbs/provider.rs", 1, "once a process"),
    ("rpc-transport-rdma/src/sys/provider/ibverbs/queue_pair.rs", 1, LEAKED),
    ("rpc-transport-rdma/src/sys/provider/ibverbs/shared_receive_queue.rs", 1, LEAKED),
];

/// A peer cannot have a device fail, and there are no more lines than objects of a device.
const LEAKED: &str = "an object of a device that failed to go away";

/// Lines that are not limited, where there are more of them than the list has, or fewer.
pub(crate) fn check(source: &Source) -> Vec<Fault> {
    let is_test = source.path.ends_with("_tests.rs") || source.path.ends_with("/tests.rs");
    if is_test || !CRATES.iter().any(|place| source.path.starts_with(place)) {
        return Vec::new();
    }
    let (tokens, tests_start) = (source.tokens(), source.tests_start());
    let lines = WRITERS.iter().flat_map(|writer| find(&tokens, writer));
    let mut lines: Vec<usize> = lines.filter(|&line| line < tests_start).collect();
    lines.sort_unstable();
    let free = FREE.iter().find(|(path, ..)| *path == source.path);
    let count = free.map_or(0, |(_, count, _)| *count);
    if lines.len() == count {
        return Vec::new();
    }
    let what = format!(
        "{} lines of the log are not limited, where {count} are expected: write them with \
         `limited_log!`, or say in xtask/tests/tidy why no peer can repeat them",
        lines.len()
    );
    vec![Fault::new(&source.path, lines.first().copied().unwrap_or(1), what)]
}

mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Source::new(path, text)).into_iter().map(|fault| fault.line).collect()
    }

    #[test]
    fn lines_that_are_not_limited_are_found() {
        for writer in ["tracing::warn!", "tracing::error!", "info!", "tracing::event!"] {
            let text = format!("fn f() {{\n    {writer}(\"a\");\n}}\n");
            assert_eq!(lines("rpc-core/src/client/a.rs", &text), [2], "{text}");
            assert!(lines("tests/suite/src/a.rs", &text).is_empty());
            assert!(lines("rpc-core/src/client/a_tests.rs", &text).is_empty());
        }
        let limited = "fn f() { limited_log!(log, WARN, \"a\", b); tracing::debug!(\"c\"); }";
        assert!(lines("rpc-core/src/client/a.rs", limited).is_empty());
    }

    #[test]
    fn a_file_on_the_list_may_have_as_many_as_it_says() {
        let (path, count, _) = FREE[0];
        let text = |count: usize| "fn f() { tracing::warn!(\"a\"); }\n".repeat(count);
        assert!(lines(path, &text(count)).is_empty());
        assert_eq!(lines(path, &text(count + 1)), [1]);
        assert_eq!(lines(path, &text(count - 1)).len(), 1, "the list is true");
    }
}
