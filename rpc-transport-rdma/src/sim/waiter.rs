//! Waiting for something on a simulated network.
//!
//! A waiting task sleeps until the network's next event is due and then makes it happen, so that
//! the network needs no task of its own and belongs to no runtime.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep_until};

use super::fabric::Fabric;
use super::state::NetworkState;
use crate::verbs::VerbsError;

/// The place of the one task that waits for a queue's or a device's events.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    sleep: Mutex<Option<Pin<Box<Sleep>>>>,
}

impl Waiter {
    /// Polls for what `take` takes from the network. `id` is the object that is waited for.
    pub(crate) fn poll<T>(
        &self,
        fabric: &Fabric,
        id: u32,
        context: &mut Context<'_>,
        mut take: impl FnMut(&mut NetworkState) -> Option<T>,
    ) -> Poll<Result<T, VerbsError>> {
        if Handle::try_current().is_err() {
            return Poll::Ready(Err(VerbsError::NoRuntime));
        }
        let mut sleep = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let entered = fabric.enter(|state| match take(state) {
                Some(taken) => {
                    state.stop_waiting(id);
                    Ok(taken)
                }
                None => Err(state.wait(id, context.waker().clone())),
            });
            let next = match entered {
                Ok(taken) => return Poll::Ready(Ok(taken)),
                Err(next) => next,
            };
            // Made anew each time: the last one may belong to another runtime.
            *sleep = next.map(|at| Box::pin(sleep_until(fabric.instant(at))));
            let Some(sleep) = &mut *sleep else { return Poll::Pending };
            if sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }
}
