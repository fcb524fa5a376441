//! New connections while there is no RDMA to be had: over TCP, with the reason.

use std::time::Duration;

use super::call::{CallEnd, Caller, Kind};
use super::column::Column;
use super::lab::Lab;
use super::load::channel;
use crate::RigError;
use farcall_suite::OneServer as _;
use farcall_suite::proto::probe_rpc::ProbeStub;

/// Text that the reason must contain: the other end of the link has no device.
const REASON: &str = "no active RDMA port has the address";

/// The bound on a connection and a call of each kind.
const LIMIT: Duration = Duration::from_secs(30);

/// Checks that a new connection under `auto://` serves calls of every kind over TCP and says why,
/// and that one under `rdma://` fails with the reason.
pub(super) fn check(lab: &Lab) -> Result<(), RigError> {
    let unexpected = |text: String| RigError::Unexpected { role: "new connection", line: text };
    let handle = lab.runtime.handle();
    let checked = async {
        let auto = channel(Column::Auto, &lab.authority)?;
        for kind in Kind::ALL {
            let (end, said) = Caller::new(ProbeStub::new(auto.clone()), kind, 7).call().await;
            if end != CallEnd::Answered {
                return Err(unexpected(format!("auto, {kind}: {end:?}, {said:?}")));
            }
        }
        let fallback = auto.info().and_then(|info| info.fallback).unwrap_or_default();
        if !fallback.contains(REASON) {
            return Err(unexpected(format!(
                "auto: `{fallback}` instead of a reason like `{REASON}`"
            )));
        }
        let rdma = channel(Column::Rdma, &lab.authority)?;
        let (end, said) = Caller::new(ProbeStub::new(rdma), Kind::UnarySmall, 7).call().await;
        let said = said.unwrap_or_default();
        if !matches!(end, CallEnd::NotExecuted(_)) || !said.contains(REASON) {
            return Err(unexpected(format!("rdma: {end:?}, `{said}`")));
        }
        Ok(())
    };
    let bounded = async { tokio::time::timeout(LIMIT, checked).await };
    let late = |_| RigError::late("a call of each kind over a new connection", LIMIT);
    handle.block_on(bounded).map_err(late)?
}
