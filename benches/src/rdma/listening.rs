//! Detects that a tool listens on a TCP port. The tools print nothing when they are ready.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// Maximum time until a tool listens, on an emulated machine.
const LISTEN_LIMIT: Duration = Duration::from_secs(20);

/// Between two looks, since nothing announces it.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until a tool listens on `port`.
///
/// # Errors
///
/// Returns an error if none does within the limit.
pub(super) fn wait(port: u16, who: &str) -> Result<()> {
    let end = Instant::now() + LISTEN_LIMIT;
    while !is_listening(port) {
        let waits = Instant::now() < end;
        ensure!(waits, "{who} does not listen on port {port} after {} s", LISTEN_LIMIT.as_secs());
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(())
}

fn is_listening(port: u16) -> bool {
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().any(|file| {
        // A kernel without IPv6 has one of them only.
        std::fs::read_to_string(file).is_ok_and(|table| has_listener(&table, port))
    })
}

/// Returns true if a table of the kernel's sockets has one that listens on `port`. Its second
/// column ends with the port in hexadecimal, and its fourth is the state, where 0A means listening.
fn has_listener(table: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut columns = line.split_whitespace().skip(1);
        let (local, state) = (columns.next(), columns.nth(1));
        local.is_some_and(|local| local.ends_with(&port)) && state == Some("0A")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue\n\
        \x20  0: 00000000:4855 00000000:0000 0A 00000000:00000000\n\
        \x20  1: 0101000A:1F90 0100000A:4856 01 00000000:00000000\n";

    #[test]
    fn only_sockets_that_listen_count() {
        assert!(has_listener(TABLE, 0x4855));
        assert!(!has_listener(TABLE, 8080), "it is connected");
        assert!(!has_listener(TABLE, 0x4856), "it is the other end's port");
        assert!(!has_listener("", 1));
    }

    #[tokio::test]
    async fn a_listener_of_this_process_is_seen() {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = socket.local_addr().unwrap().port();
        assert!(!is_listening(port), "the port is bound, and its socket does not listen yet");
        let _listener = socket.listen(1).unwrap();
        wait(port, "this test").unwrap();
    }
}
