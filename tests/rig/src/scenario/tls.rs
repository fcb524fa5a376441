//! TLS settings that are wrong, each with the sentence that a client's user reads, and certificates
//! and authorities that are rotated while calls go on.

use farcall::Channel;
use farcall::tls::{ClientTls, ClientTlsConfig, Pem};
use farcall_testkit::certificates::{Authority, Leaf};
use tokio::runtime::Handle;

use super::Shown;
use super::certificates::{CertificateFolder, issue, pems};
use super::ledger::{LedgerFile, look};
use super::load::Load;
use super::serve::{RELOAD, RELOADED};
use crate::RigError;
use crate::conductor::process::Process;
use farcall_suite::Failure;

/// The host of all servers, for which a right certificate is.
const HOST: &str = "127.0.0.1";

/// Until when a right certificate is valid, and until when an expired one was.
const YEAR: i32 = 2120;
const PAST_YEAR: i32 = 2021;

/// Calls between two steps of the rotation.
const CALLS_BETWEEN: u64 = 200;

/// The TLS state of a server.
enum Server<'a> {
    Plaintext,
    Tls(&'a Leaf),
    /// It requires certificates of an authority.
    Mutual(&'a Leaf, &'a Authority),
}

/// One row: a server, a channel, and what has to become of a call.
struct Row<'a> {
    name: &'static str,
    server: Server<'a>,
    client: Option<ClientTlsConfig>,
    /// A part of the error's message; none where the call succeeds.
    expected: Option<&'static str>,
}

pub(super) fn show(runtime: &Handle) -> Result<Shown, RigError> {
    let mut shown = Shown::default();
    show_rows(runtime, &mut shown)?;
    rotate(runtime, &mut shown)?;
    Ok(shown)
}

fn show_rows(runtime: &Handle, shown: &mut Shown) -> Result<(), RigError> {
    let (ours, others) = (Authority::new("ours")?, Authority::new("others")?);
    let right = issue(&ours, HOST, YEAR)?;
    let (expired, misnamed) = (issue(&ours, HOST, PAST_YEAR)?, issue(&ours, "a.example", YEAR)?);
    let client = |authority: &Authority| trusting(authority);
    let with_leaf = |leaf: &Leaf| {
        let (cert, key) = pems(leaf);
        trusting(&ours).with_cert(cert, key)
    };
    let (known, unknown) =
        (issue(&ours, "client.example", YEAR)?, issue(&others, "client.example", YEAR)?);
    let row = |name, server, client, expected| Row { name, server, client, expected };
    let rows = [
        row("all is right", Server::Tls(&right), Some(client(&ours)), None),
        row(
            "both sides show a certificate",
            Server::Mutual(&right, &ours),
            Some(with_leaf(&known)),
            None,
        ),
        row(
            "the wrong authority",
            Server::Tls(&right),
            Some(client(&others)),
            Some("is not from an authority that this channel trusts"),
        ),
        row(
            "an expired certificate",
            Server::Tls(&expired),
            Some(client(&ours)),
            Some("the server's certificate expired"),
        ),
        row(
            "the wrong name",
            Server::Tls(&misnamed),
            Some(client(&ours)),
            Some("the server's certificate is for a.example, not 127.0.0.1"),
        ),
        row(
            "no client certificate",
            Server::Mutual(&right, &ours),
            Some(client(&ours)),
            Some("the server requires a certificate, but this channel presented none"),
        ),
        row(
            "a client certificate of others",
            Server::Mutual(&right, &ours),
            Some(with_leaf(&unknown)),
            Some("does not trust the authority of this channel's certificate"),
        ),
        row("plaintext to TLS", Server::Tls(&right), None, Some("set `tls` on both")),
        row(
            "TLS to plaintext",
            Server::Plaintext,
            Some(client(&ours)),
            Some(
                "the server speaks farcall without TLS: remove `tls` from this channel, or set \
                  it on the server",
            ),
        ),
    ];
    for row in &rows {
        show_row(runtime, row, shown)?;
    }
    Ok(())
}

fn trusting(authority: &Authority) -> ClientTlsConfig {
    ClientTlsConfig::default().with_ca(Pem::bytes(authority.pem()))
}

fn show_row(runtime: &Handle, row: &Row<'_>, shown: &mut Shown) -> Result<(), RigError> {
    let folder = CertificateFolder::new()?;
    let ledger = LedgerFile::new()?;
    let (server, address) = start(&folder, &ledger, &row.server)?;
    let client = row.client.clone().map(ClientTls::new).transpose()?;
    let called = runtime.block_on(call(&address, client.as_ref()));
    let name = row.name;
    match (&called, row.expected) {
        (Ok(()), None) => println!("  {name:<32} the call is answered"),
        (Err(text), Some(expected)) if text.contains(expected) => {
            println!("  {name:<32} {}", text.replace(&address, "tcp://127.0.0.1:<port>"));
        }
        _ => shown.expect(false, || format!("{name}: {called:?} instead of {:?}", row.expected)),
    }
    Ok(server.end()?)
}

/// Starts a server with its files in `folder`.
fn start(
    folder: &CertificateFolder,
    ledger: &LedgerFile,
    server: &Server<'_>,
) -> Result<(Process, String), RigError> {
    let address = format!("tcp://{HOST}:0");
    let (files, ledger) =
        (folder.path().display().to_string(), ledger.path().display().to_string());
    let mut arguments = vec!["serve", address.as_str(), ledger.as_str()];
    match server {
        Server::Plaintext => {}
        Server::Tls(leaf) => {
            folder.set_leaf(leaf)?;
            arguments.extend(["--tls", files.as_str()]);
        }
        Server::Mutual(leaf, clients) => {
            folder.set_leaf(leaf)?;
            folder.set_ca(&clients.pem())?;
            arguments.extend(["--tls", files.as_str(), "--mutual"]);
        }
    }
    // What the server logs of a refusal is what `farcall/tests/messages/tls.txt` has.
    let (process, line, _log) = Process::start_logged("server", &arguments)?;
    Ok((process, line))
}

/// Connects and makes a call; the message of what fails.
async fn call(address: &str, tls: Option<&ClientTls>) -> Result<(), String> {
    let builder = Channel::builder(address).map_err(|error| error.to_string())?;
    let builder = match tls {
        Some(tls) => builder.tls(tls),
        None => builder,
    };
    let channel = builder.connect().await.map_err(|error| error.to_string())?;
    look(&channel, 1).await.map_err(|status| status.message().to_owned())
}

/// A change of files.
type FileChange<'a> = &'a dyn Fn() -> Result<(), RigError>;

/// Replaces a server's certificate, and then the authority, in steps of which none refuses anyone:
/// all trust both, the server shows the new one, none trusts the old one. A client connects in each
/// step, and the calls of one that was there before go on.
fn rotate(runtime: &Handle, shown: &mut Shown) -> Result<(), RigError> {
    let (old, new) = (Authority::new("old")?, Authority::new("new")?);
    let (folder, ledger) = (CertificateFolder::new()?, LedgerFile::new()?);
    let leaf = issue(&old, HOST, YEAR)?;
    let (mut server, address) = start(&folder, &ledger, &Server::Tls(&leaf))?;
    let trusted = folder.path().join("trusted.pem");
    std::fs::write(&trusted, old.pem())?;
    let client = ClientTls::new(ClientTlsConfig::default().with_ca(trusted.as_path()))?;
    let builder = Channel::builder(address.as_str()).map_err(Failure::from)?.tls(&client);
    let channel = runtime.block_on(builder.connect()).map_err(Failure::from)?;
    let load = Load::start(runtime, &channel);
    let steps: [(&str, FileChange<'_>); 4] = [
        ("another certificate", &|| folder.set_leaf(&issue(&old, HOST, YEAR)?)),
        ("clients trust both", &|| Ok(std::fs::write(&trusted, old.pem() + &new.pem())?)),
        ("the new authority's", &|| folder.set_leaf(&issue(&new, HOST, YEAR)?)),
        ("clients trust the new", &|| Ok(std::fs::write(&trusted, new.pem())?)),
    ];
    for (name, step) in steps {
        step()?;
        let answer = server.ask(RELOAD)?;
        shown.expect(answer == RELOADED, || format!("{name}: the server said {answer}"));
        client.reload()?;
        let connected = runtime.block_on(call(&address, Some(&client)));
        shown.expect(connected.is_ok(), || format!("{name}: {connected:?}"));
        load.go_on(CALLS_BETWEEN)?;
    }
    let counts = load.stop()?;
    let (calls, failed) = (counts.all(), counts.failed());
    println!("  rotated leaf and authority       {calls} calls under way, {failed} failed");
    shown.expect(failed == 0, || format!("{failed} calls failed while certificates changed"));
    // Who was left behind is refused.
    std::fs::write(&trusted, old.pem())?;
    client.reload()?;
    let late = runtime.block_on(call(&address, Some(&client)));
    shown.expect(late.is_err(), || "a client that trusts the old authority connects".to_owned());
    drop(channel);
    Ok(server.end()?)
}
