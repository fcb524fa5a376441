//! Hostile servers: which there are, and the process that is one of them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use prost::Message;
use rpc_core::wire::hello::{Declined, Offer};
use rpc_core::wire::{FrameHeader, FrameKind, HEADER_LEN};
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use super::frames::{self, answering, messages};
use super::http2_servers::{self, Manner};
use super::names::{self, Answers};
use super::peer::{Peer, Reading, Record};
use crate::RigError;
use crate::attack::control::answer_until_end;
use crate::attack::log_text::FORGED;
use crate::attack::{Exposure, Scale};
use crate::conductor::message::{REPORT, line};
use crate::conductor::role::misunderstood;

/// Frames that are sent at a time.
const BATCH: u64 = 1000;

/// Maximum time for a server to send everything. A client that stops reading delays it.
const SENDING_LIMIT: Duration = Duration::from_secs(20);

/// The length of a reason that no log should repeat.
const REASON_LEN: usize = 500_000;

/// The behavior of hostile servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Trap {
    /// Answers a download with MESSAGES without messages.
    EmptyDownload,
    /// Does not exist: nothing listens on its port.
    DeadPort,
    /// Accepts and closes.
    AcceptAndClose,
    /// Accepts, says Hello, and closes.
    HelloAndClose,
    /// Accepts, says Hello, and sends the client away.
    GoawayLoop,
    /// Accepts, answers one call, and closes.
    AnswerAndClose,
    /// The same over HTTP/2.
    AnswerAndCloseGrpc,
    /// A proxy that answers every call over HTTP/2 with a page.
    HtmlProxy,
    /// A name server that tells of 1,100 targets, for no time at all.
    ManyTargets,
    /// A name server that tells of 2,500 addresses, for no time at all.
    ManyAddresses,
    /// Declines upgraded paths with reasons that break lines and colour terminals.
    LogInjection,
}

impl Trap {
    /// Its name on the command line.
    pub(in crate::attack) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Returns the behavior of its victim.
    pub(in crate::attack) fn exposure(self) -> Exposure {
        match self {
            Self::EmptyDownload => Exposure::Download,
            Self::LogInjection => Exposure::Connections,
            Self::DeadPort
            | Self::AcceptAndClose
            | Self::HelloAndClose
            | Self::GoawayLoop
            | Self::AnswerAndClose => Exposure::Calls,
            Self::AnswerAndCloseGrpc => Exposure::GrpcCalls,
            Self::HtmlProxy => Exposure::Proxy,
            Self::ManyTargets => Exposure::Targets,
            Self::ManyAddresses => Exposure::Addresses,
        }
    }

    /// The protocol of its connections.
    fn protocol(self) -> Protocol {
        match self {
            Self::AnswerAndCloseGrpc | Self::HtmlProxy => Protocol::Http2,
            Self::ManyTargets | Self::ManyAddresses => Protocol::Dns,
            _ => Protocol::Farcall,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Farcall,
    Http2,
    Dns,
}

/// Listens on loopback, prints where, and tells what it has done when it is asked.
///
/// # Errors
///
/// Returns an error if it cannot listen, or if it is asked something that it does not know.
pub fn trap(runtime: &Handle, kind: Trap, scale: Scale) -> Result<(), RigError> {
    let record = Arc::<Record>::default();
    let address = match kind.protocol() {
        Protocol::Dns => {
            let is_targets = kind == Trap::ManyTargets;
            let answers = if is_targets { Answers::Targets } else { Answers::Addresses };
            runtime.block_on(names::listen(answers, &record))?
        }
        Protocol::Farcall | Protocol::Http2 => {
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
            let address = listener.local_addr()?;
            if kind == Trap::DeadPort {
                // Another program may take the port, which the kernel gives out in an order of its
                // own.
                drop(listener);
            } else {
                runtime.spawn(accept(listener, kind, scale, Arc::clone(&record)));
            }
            address
        }
    };
    if kind != Trap::EmptyDownload {
        record.finish();
    }
    println!("{address}");
    answer_until_end(|text| match text {
        REPORT => line(&record.deeds()),
        other => Err(misunderstood(other)),
    })
}

async fn accept(listener: TcpListener, kind: Trap, scale: Scale, record: Arc<Record>) {
    while let Ok((stream, _)) = listener.accept().await {
        let record = Arc::clone(&record);
        if kind.protocol() == Protocol::Http2 {
            record.count_opened();
            let is_proxy = kind == Trap::HtmlProxy;
            let manner = if is_proxy { Manner::HtmlProxy } else { Manner::AnswerAndClose };
            tokio::spawn(http2_servers::serve(stream, manner));
            continue;
        }
        let peer = Peer::accepted(stream, Reading::Everything, &record);
        tokio::spawn(async move {
            // The client may have closed.
            let _ = receive(peer, kind, scale, &record).await;
        });
    }
}

async fn receive(mut peer: Peer, kind: Trap, scale: Scale, record: &Record) -> io::Result<()> {
    if matches!(kind, Trap::AcceptAndClose | Trap::DeadPort) {
        return Ok(());
    }
    peer.read_hello().await?;
    match kind {
        Trap::LogInjection => {
            peer.send(&answering(accepted(), declined())).await?;
            return Ok(());
        }
        _ => peer.send(&answering(None, Vec::new())).await?,
    }
    match kind {
        Trap::GoawayLoop => {
            peer.send(&frames::bare(FrameKind::GoAway, 0, 0)).await?;
            // What the client sent before it read that goes back, as an honest server has it.
            while let Some(call) = read_request(&mut peer).await? {
                peer.send(&frames::not_executed(call)).await?;
            }
        }
        Trap::AnswerAndClose => {
            if let Some(call) = read_request(&mut peer).await? {
                peer.send(&frames::answered(call)).await?;
            }
        }
        Trap::EmptyDownload => {
            let sending = send_empty_messages(&mut peer, scale);
            let sent = tokio::time::timeout(SENDING_LIMIT, sending).await;
            record.finish();
            match sent {
                Ok(Err(_)) => peer.count_closed(),
                Ok(Ok(())) | Err(_) => peer.stay().await,
            }
        }
        _ => {}
    }
    Ok(())
}

/// The id of the next call; none when the client has nothing more to say.
async fn read_request(peer: &mut Peer) -> io::Result<Option<u64>> {
    loop {
        let frame = match peer.read_record().await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            frame => frame?,
        };
        let header = FrameHeader::parse(frame.get(..HEADER_LEN).unwrap_or_default());
        let header = header.map_err(io::Error::other)?;
        if header.kind == FrameKind::Request {
            return Ok(Some(header.call));
        }
    }
}

async fn send_empty_messages(peer: &mut Peer, scale: Scale) -> io::Result<()> {
    let Some(call) = read_request(peer).await? else { return Ok(()) };
    let one = messages(call, 1, b"", &[0; 4]);
    peer.send(&[frames::bare(FrameKind::Headers, call, 0), one].concat()).await?;
    let frame_len = messages(call, 0, b"", b"").len() as u64;
    for batch in 0..scale.pick(24 << 20, 256 << 20) / (frame_len * BATCH) {
        let begin = 2 + batch * BATCH;
        let frames: Vec<u8> =
            (begin..begin + BATCH).flat_map(|seq| messages(call, seq, b"", b"")).collect();
        peer.flood(&frames).await?;
    }
    Ok(())
}

/// Reasons that are written for the client's log.
fn declined() -> Vec<Declined> {
    let reasons = [
        format!("no\n{FORGED} connected to 10.0.0.1"),
        "\u{1b}[2J\u{1b}[31mred\u{1b}]0;title\u{7}\u{202e}desrever".to_owned(),
        "r".repeat(REASON_LEN),
    ];
    // `Declined::new` cuts what it is given. An offer has the same fields on the wire.
    let declined = |reason: String| {
        let raw = Offer { name: format!("rdma\n{FORGED}"), blob: reason.into() };
        Declined::decode(&*raw.encode_to_vec()).unwrap_or_default()
    };
    reasons.into_iter().map(declined).collect()
}

/// A path that was not offered, by a name that is written for the client's log.
fn accepted() -> Option<Offer> {
    Some(Offer { name: format!("\u{1b}[31m\n{FORGED}"), blob: bytes::Bytes::new() })
}
