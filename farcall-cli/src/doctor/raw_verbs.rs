//! This host's ratio to raw verbs, by the programs of perftest where they are installed.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};

use super::facts::{Facts, Gid, Port};
use super::finding::Finding;
use super::loopback::Measured;

const NAME: &str = "raw verbs";

/// Maximum time of one program of perftest.
const LIMIT: Duration = Duration::from_secs(15);

/// Bytes of a program's output that are read.
const OUTPUT_MAX: u64 = 64 << 10;

/// Attempts of the client to find its server, and the time between two.
const ATTEMPTS: u32 = 20;
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A program, its arguments, and the column of its table that counts.
struct Program {
    name: &'static str,
    arguments: &'static [&'static str],
    column: usize,
}

/// Half a round trip of 64 bytes, in microseconds (`t_typical`).
const LATENCY: Program =
    Program { name: "ib_send_lat", arguments: &["-F", "-n", "1000", "-s", "64"], column: 4 };

/// READs of 256 KiB, in MB/s (`BW average`).
const BANDWIDTH: Program =
    Program { name: "ib_read_bw", arguments: &["-F", "-n", "200", "-s", "262144"], column: 3 };

/// The port of the device that has an address, as perftest names it.
struct Place {
    device: String,
    port: u8,
    gid_index: u16,
    address: IpAddr,
}

/// Compares the loopback's figures with perftest's over the same port.
pub(super) async fn compare(facts: &Facts, address: IpAddr, measured: &Measured) -> Finding {
    let Some(place) = place(facts, address) else {
        return Finding::note(NAME, format!("perftest was not run: no port by GID for {address}"));
    };
    let half = measured.round_trip.as_secs_f64() * 1e6 / 2.0;
    let latency = match run(&LATENCY, &place).await {
        Ok(latency) => latency,
        Err(reason) => return not_compared(&reason),
    };
    let bandwidth = match run(&BANDWIDTH, &place).await {
        Ok(bandwidth) => bandwidth,
        Err(reason) => return not_compared(&reason),
    };
    let megabytes = measured.megabytes;
    Finding::ok(
        NAME,
        format!(
            "half a round trip {half:.1} us, ib_send_lat {latency:.1}: ratio {:.2}; by READ \
             {megabytes:.0} MB/s, ib_read_bw {bandwidth:.0}: ratio {:.2}",
            half / latency,
            megabytes / bandwidth
        ),
    )
}

fn not_compared(reason: &str) -> Finding {
    Finding::note(NAME, reason).fix("apt-get install perftest   # then `farcall doctor` compares")
}

fn place(facts: &Facts, address: IpAddr) -> Option<Place> {
    let gid = |port: &Port| {
        let fits = |gid: &&Gid| gid.address == address && gid.is_roce_v2();
        port.gids.iter().find(fits).map(|gid| gid.index)
    };
    facts.ports().filter(|(_, port)| port.is_active()).find_map(|(device, port)| {
        let (device, gid_index) = (device.name.clone(), gid(port)?);
        Some(Place { device, port: port.number, gid_index, address })
    })
}

/// Runs a server and a client of the program, and returns the figure.
async fn run(program: &Program, place: &Place) -> Result<f64, String> {
    let name = program.name;
    let limited = tokio::time::timeout(LIMIT, run_both(program, place)).await;
    limited.unwrap_or_else(|_| Err(format!("{name} did not end within {} s", LIMIT.as_secs())))
}

async fn run_both(program: &Program, place: &Place) -> Result<f64, String> {
    let tcp_port = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(|error| error.to_string())?
        .port();
    // Both end with this value, also in the middle of a wait.
    let _server = start(program, place, tcp_port, None)?;
    for _ in 0..ATTEMPTS {
        let mut client = start(program, place, tcp_port, Some(place.address))?;
        let mut text = Vec::new();
        if let Some(stdout) = client.stdout.take() {
            let read = stdout.take(OUTPUT_MAX).read_to_end(&mut text).await;
            read.map_err(|error| error.to_string())?;
        }
        let status = client.wait().await.map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&text);
        if status.success() {
            let figure = figure(&text, program.column);
            return figure.ok_or_else(|| format!("{} printed no figure", program.name));
        }
        // Its server may not listen yet.
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
    Err(format!("{} failed", program.name))
}

fn start(
    program: &Program,
    place: &Place,
    tcp_port: u16,
    server: Option<IpAddr>,
) -> Result<Child, String> {
    let mut command = Command::new(program.name);
    command.args(["-d", &place.device, "-i", &place.port.to_string()]);
    command.args(["-x", &place.gid_index.to_string(), "-p", &tcp_port.to_string()]);
    command.args(program.arguments).args(server.map(|address| address.to_string()));
    command.stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    command.stdout(if server.is_some() { Stdio::piped() } else { Stdio::null() });
    command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "perftest is not installed".to_owned(),
        _ => format!("{}: {error}", program.name),
    })
}

/// Returns the number in a column of the row below perftest's heading.
fn figure(text: &str, column: usize) -> Option<f64> {
    let mut lines = text.lines().skip_while(|line| !line.trim_start().starts_with("#bytes"));
    lines.next()?;
    let figure: f64 = lines.next()?.split_whitespace().nth(column)?.parse().ok()?;
    (figure.is_finite() && figure > 0.0).then_some(figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_perftests_tables() {
        let latency = "---\n #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec] \n \
                       64      1000          7.10           99.00        7.82   \t 8.01\n---\n";
        assert_eq!(figure(latency, LATENCY.column), Some(7.82));
        let bandwidth = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]\n \
                         1048576    50   210.00   205.14   0.000205\n";
        assert_eq!(figure(bandwidth, BANDWIDTH.column), Some(205.14));
        for odd in
            ["", "#bytes", "#bytes\n", "#bytes\n1 2 3 4 nan", "#bytes\n1 2 3 inf 0", "\u{1b}"]
        {
            assert_eq!(figure(odd, 4), None, "{odd:?}");
        }
    }
}
