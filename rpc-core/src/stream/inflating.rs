//! Inflating a message that has come, within the limits of the side that receives it.

use bytes::{Buf, Bytes};
use tonic::Status;

use super::session_io::SessionIo;
use crate::Method;
use crate::call::options::MessageLimit;
use crate::call::refusal;
use crate::compression::{INFLATER_HELD, inflate};
use crate::limits::memory::MemoryCharge;

/// A side's limits on the received messages of a call, and the call's name.
#[derive(Debug, Clone)]
pub(crate) struct Receiving {
    /// Limit of the stub or the service.
    pub(crate) limit: MessageLimit,
    /// The method, for errors.
    pub(crate) method: Method,
}

/// A message after it was inflated, and what it counts in the memory budget.
pub(crate) struct Inflated {
    pub(crate) message: Bytes,
    pub(crate) charge: MemoryCharge,
}

/// Inflates a message. Its length is checked, and counted in the memory budget, before there is
/// memory for it.
///
/// # Errors
///
/// When it is over a limit, when the budget has no room, and when it is not what it says.
///
/// # Cancel safety
///
/// This function is cancel safe: the memory is free at once.
pub(crate) async fn inflated(
    io: &dyn SessionIo,
    mut message: Bytes,
    Receiving { limit, method }: Receiving,
) -> Result<Inflated, Status> {
    let (what, path) = (limit.message(), method.path());
    // The header was checked for it when the frame came.
    let len = message.try_get_u64_le().unwrap_or_default();
    refusal::check_inflated(what, path, len, io.core().settled.limits.max_message_len)?;
    // What fits no address is over the limit of this side, unless that is endless.
    let whole_len = usize::try_from(len).unwrap_or(usize::MAX - 1);
    limit.check(whole_len)?;
    let charge = io.core().memory.try_take(len.saturating_add(INFLATER_HELD))?;
    match inflate(&message, whole_len).await {
        Ok(message) => Ok(Inflated { message, charge }),
        Err(words) => Err(Status::internal(format!(
            "the {what}'s message of {path} cannot be inflated: {words}"
        ))),
    }
}
