//! The program whose metrics Prometheus scrapes, and a scrape of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// Ends a process with its owner.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn scrape_shows_the_calls_of_the_server() {
    let mut server = Command::new(env!("CARGO_BIN_EXE_metrics"));
    let server = server.args(["tcp://127.0.0.1:0", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn();
    let mut server = Ended(server.expect("the server starts"));
    let mut lines = BufReader::new(server.0.stdout.take().expect("it is piped")).lines();
    let mut after = |prefix: &str| {
        let line = lines.next().expect("it prints a line").expect("that is text");
        line.strip_prefix(prefix).expect("the server says where").to_owned()
    };
    let (address, page) = (after("serving "), after("metrics at http://"));
    for _ in 0..2 {
        let called = Command::new(env!("CARGO_BIN_EXE_hello-client")).arg(&address).output();
        assert!(called.expect("the client runs").status.success());
    }

    let host = page.strip_suffix("/metrics").expect("it is the page of metrics");
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nhost: {host}\r\n\r\n").unwrap();
    let mut scraped = String::new();
    stream.read_to_string(&mut scraped).unwrap();
    for line in [
        "# TYPE grpc_server_call_duration_seconds histogram",
        "grpc_server_call_started_total{grpc_method=\"hello.Greeter/SayHello\"} 2",
        "farcall_server_calls_running{server=\"greeter\"} 0",
    ] {
        assert!(scraped.lines().any(|it| it == line), "{line}\n{scraped}");
    }
}
