//! By which path the values have travelled, from what the transport has counted.

use farcall::TransportStats;

/// Names the path of `value_count` values each way: how the transport calls it when all of them
/// travelled as small frames, or all as large ones.
#[must_use]
pub(crate) fn path(transport: &str, counted: &TransportStats, value_count: u64) -> &'static str {
    let (small, large) = match transport {
        "rdma" => ("eager", "READ"),
        "tcp" => ("whole", "pieces"),
        _ => ("queue", "queue"),
    };
    match (counted.large_sent, counted.large_received) {
        (0, 0) => small,
        (sent, received) if sent == value_count && received == value_count => large,
        _ => "mixed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_what_was_counted() {
        let counted = |large_sent, large_received| TransportStats {
            large_sent,
            large_received,
            ..TransportStats::default()
        };
        assert_eq!(path("rdma", &counted(0, 0), 5), "eager");
        assert_eq!(path("rdma", &counted(5, 5), 5), "READ");
        assert_eq!(path("tcp", &counted(5, 5), 5), "pieces");
        assert_eq!(path("tcp", &counted(5, 4), 5), "mixed");
        assert_eq!(path("inproc", &counted(0, 0), 5), "queue");
    }
}
