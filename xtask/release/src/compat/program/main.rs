//! Calls between two versions of farcall, over the paths of its arguments. It exits with 1 when a
//! check fails.

use std::process::ExitCode;
use std::time::Duration;

/// Checks the other side's server with one side's client, and returns the number of failed checks.
macro_rules! check {
    ($client:ident, $server:ident, $address:expr) => {{
        let names = (stringify!($client), stringify!($server));
        match $server::serve($address).await {
            Err(reason) => report(names, $address, &[("listening", Err(reason))]),
            Ok(running) => {
                let (drain, gate, waiting) = (&running.drain, &running.gate, &running.waiting);
                let mut checks = $client::check(&running.address, drain, gate, waiting).await;
                let ended = tokio::time::timeout(Duration::from_secs(30), running.serving).await;
                let ended = ended.map_err(|_| "the server does not stop".to_owned());
                checks.push(("end", ended.map(drop)));
                report(names, $address, &checks)
            }
        }
    }};
}

fn report(
    (client, server): (&str, &str),
    address: &str,
    checks: &[(&str, Result<(), String>)],
) -> usize {
    let scheme = address.split("://").next().unwrap_or_default();
    let failed: Vec<_> =
        checks.iter().filter_map(|(name, checked)| Some((name, checked.as_ref().err()?))).collect();
    let passed = checks.len() - failed.len();
    println!("{client} client, {server} server, {scheme}: {passed} of {} passed", checks.len());
    for (name, reason) in &failed {
        println!("  {name}: {reason}");
    }
    failed.len()
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut failed = 0;
    for address in std::env::args().skip(1) {
        failed += check!(then, now, &address);
        failed += check!(now, then, &address);
    }
    ExitCode::from(u8::from(failed > 0))
}
