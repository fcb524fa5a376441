//! Hostile clients: which there are, and the process that is one of them.

use std::net::SocketAddr;
use std::sync::Arc;

use clap::ValueEnum;
use tokio::runtime::Handle;

use super::orders::{Orders, SENDING_LIMIT};
use super::peer::Record;
use super::{answers, floods, http2_clients, openings, streams};
use crate::RigError;
use crate::attack::Scale;
use crate::attack::control::answer_until_end;
use crate::conductor::message::{REPORT, line};
use crate::conductor::role::misunderstood;

/// The behavior of hostile clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Assault {
    /// MESSAGES without messages for a handler that does not read.
    EmptyMessages,
    /// The same for a method that takes one message.
    EmptyMessagesUnary,
    /// The same for no method, whose request never comes to its end.
    EmptyMessagesUnknown,
    /// Metadata with frames that have none.
    ControlMetadata,
    /// Frames of a stream far ahead of one that never comes.
    FarAhead,
    /// The maximum number of calls, with answers that are not read.
    UnreadAnswers,
    /// Few calls with large answers that are not read.
    QueuedAnswers,
    /// Connections one after the other, each of which asks for more answers than fit, and reads
    /// none.
    SlowReaders,
    /// Large frames that begin and stop.
    HalfFrame,
    /// Hellos that begin and stop.
    HalfHello,
    /// Connections that say nothing at all.
    SilentSockets,
    /// Hellos with as many offers as fit.
    ManyOffers,
    /// The maximum number of connections, silent.
    ConnectFlood,
    /// Names that break lines and colour terminals.
    LogInjection,
    /// Calls that are given up at once.
    RapidReset,
    /// Pings without a pause.
    PingFlood,
    /// Random bytes, with and without a Hello before.
    Garbage,
    /// gRPC: calls that stop at their headers.
    GrpcHeaders,
    /// gRPC: tiny frames for handlers that do not read.
    GrpcTinyFrames,
    /// gRPC: connections that do nothing.
    GrpcIdle,
    /// gRPC: answers without messages that are not taken.
    GrpcUntaken,
    /// gRPC: pongs without pings.
    GrpcPongs,
}

impl Assault {
    /// Its name on the command line.
    pub(in crate::attack) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Attacks a server, and tells how far it has come when it is asked.
///
/// # Errors
///
/// Returns an error if it is asked something that it does not know.
pub fn assault(
    runtime: &Handle,
    kind: Assault,
    victim: SocketAddr,
    scale: Scale,
) -> Result<(), RigError> {
    let record = Arc::<Record>::default();
    let orders = Orders { victim, scale, record: Arc::clone(&record) };
    runtime.spawn(async move {
        let attacking = attack(kind, orders.clone());
        // A victim that lets no connection in holds an attack up, too.
        let _ = tokio::time::timeout(2 * SENDING_LIMIT, attacking).await;
        orders.record.finish();
    });
    println!("attacking");
    answer_until_end(|text| match text {
        REPORT => line(&record.deeds()),
        other => Err(misunderstood(other)),
    })
}

/// Sends everything. Connections that stay do so in tasks of their own.
async fn attack(kind: Assault, orders: Orders) {
    match kind {
        Assault::EmptyMessages => streams::empty_messages(&orders, streams::Target::Unread).await,
        Assault::EmptyMessagesUnary => {
            streams::empty_messages(&orders, streams::Target::Unary).await;
        }
        Assault::EmptyMessagesUnknown => {
            streams::empty_messages(&orders, streams::Target::Unknown).await;
        }
        Assault::ControlMetadata => streams::control_metadata(&orders).await,
        Assault::FarAhead => streams::far_ahead(&orders).await,
        Assault::UnreadAnswers => answers::unread(&orders).await,
        Assault::QueuedAnswers => answers::queued(&orders).await,
        Assault::SlowReaders => answers::slow(&orders).await,
        Assault::HalfFrame => openings::half_frames(&orders).await,
        Assault::HalfHello => openings::half_hellos(&orders).await,
        Assault::SilentSockets => openings::silence(&orders).await,
        Assault::ManyOffers => openings::many_offers(&orders).await,
        Assault::ConnectFlood => openings::connections(&orders).await,
        Assault::LogInjection => openings::log_injection(&orders).await,
        Assault::RapidReset => floods::rapid_reset(&orders).await,
        Assault::PingFlood => floods::pings(&orders).await,
        Assault::Garbage => floods::garbage(&orders).await,
        Assault::GrpcHeaders => http2_clients::headers_alone(&orders).await,
        Assault::GrpcTinyFrames => http2_clients::tiny_frames(&orders).await,
        Assault::GrpcIdle => http2_clients::idle(&orders).await,
        Assault::GrpcUntaken => http2_clients::untaken(&orders).await,
        Assault::GrpcPongs => http2_clients::stray_pongs(&orders).await,
    }
}
