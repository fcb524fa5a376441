//! A role's end of the conversation: the conductor's lines come in, answers go out. The end of the
//! input is the end of the conductor, and so of the role.

use std::io::{self, BufRead as _};

use farcall::{Listener, ServeError};
use farcall_suite::Failure;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::RigError;

/// Tells a server to end in order.
pub(super) const SHUTDOWN: &str = "shutdown";

/// The end of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// The conductor asks the role to end in order.
    Shutdown,
    /// The conductor has gone.
    Gone,
}

/// Answers the conductor's lines until one or the other end.
pub(crate) fn answer_lines(
    mut answer: impl FnMut(&str) -> Result<String, RigError>,
) -> Result<Farewell, RigError> {
    for line in io::stdin().lock().lines() {
        match line?.as_str() {
            SHUTDOWN => return Ok(Farewell::Shutdown),
            text => println!("{}", answer(text)?),
        }
    }
    Ok(Farewell::Gone)
}

/// Makes the error of a role that received an unknown command.
pub(crate) fn misunderstood(text: &str) -> RigError {
    RigError::Unexpected { role: "conductor", line: text.to_owned() }
}

/// A server that serves beside the conversation.
#[derive(Debug)]
pub(crate) struct Serving {
    shutdown: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ServeError>>,
}

impl Serving {
    pub(crate) fn start(runtime: &Handle, listener: Listener) -> Self {
        let (shutdown, ended) = oneshot::channel();
        let serving = listener.serve().with_graceful_shutdown(async { drop(ended.await) });
        Self { shutdown, task: runtime.spawn(serving) }
    }

    /// Ends as the conductor wants it: drains, or leaves everything as it is.
    pub(crate) fn end(self, runtime: &Handle, farewell: Farewell) -> Result<(), RigError> {
        if farewell == Farewell::Gone {
            return Ok(());
        }
        drop(self.shutdown);
        let served = runtime.block_on(self.task).map_err(Failure::from)?;
        Ok(served.map_err(Failure::from)?)
    }
}
