//! A server worker: it serves, and tells what that costs.

use anyhow::Result;

use super::control::{Command, Control, Reply};
use super::subject::Subject;
use super::usage::{AllocationCounter, Usage};

/// Serves at `address` until the driver is gone.
pub(super) async fn run<S: Subject>(
    subject: &S,
    address: &str,
    counter: Option<AllocationCounter>,
) -> Result<()> {
    let address = subject.serve(address).await?;
    let mut control = Control::start();
    control.say(&Reply::Ready { address })?;
    while let Some(command) = control.next().await {
        let reply = match command? {
            Command::Usage => Usage::now(counter).map(Reply::Usage),
            Command::Counts => Ok(Reply::Counted(subject.counts(&[]))),
            Command::Load(_) | Command::Hold { .. } => {
                Ok(Reply::refusal("a server makes no calls"))
            }
        };
        control.say(&reply.unwrap_or_else(|error| Reply::refusal(&format!("{error:#}"))))?;
    }
    Ok(())
}
