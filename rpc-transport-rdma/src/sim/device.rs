//! A simulated device as a test holds it: what can be done to it from outside.

use std::sync::Arc;
use std::time::Duration;

use super::fabric::Fabric;
use super::hold::SimHold;
use super::port::SimQuery;
use super::state::{Event, NetworkState, nanos};
use crate::AsyncEventKind;

/// A device of a simulated network. Clones are the same device.
#[derive(Debug, Clone)]
pub struct SimDevice {
    fabric: Arc<Fabric>,
    index: usize,
}

/// The fate of work in flight when a device is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SimLoss {
    /// It is flushed.
    Flushed,
    /// Nothing is heard of it; only destroying its queue pair ends it.
    Silent,
}

impl SimDevice {
    pub(crate) fn new(fabric: Arc<Fabric>, index: usize) -> Self {
        Self { fabric, index }
    }

    /// The name by which it is opened.
    #[must_use]
    pub fn name(&self) -> String {
        self.enter(|state, index| state.devices[index].config.name.clone())
    }

    /// Takes its ports down: from here on nothing gets in or out, what is on its way is lost, and
    /// everybody who has it open gets an event. Queue pairs notice by their timeouts.
    pub fn link_down(&self) {
        self.enter(|state, index| state.drop_link(index));
    }

    /// Takes its ports down, and brings them up again after `time`.
    pub fn flap(&self, time: Duration) {
        self.enter(|state, index| {
            state.drop_link(index);
            let at = state.now + nanos(time);
            state.agenda.schedule(at, Event::LinkUp { device: index });
        });
    }

    /// Brings its ports up again.
    pub fn link_up(&self) {
        self.enter(|state, index| state.raise_link(index));
    }

    /// Takes the device away for good: posts and registrations fail with `EIO`, no search finds it,
    /// and each opening of it gets an event.
    pub fn lose(&self, loss: SimLoss) {
        self.enter(|state, index| {
            state.devices[index].is_lost = true;
            for context in state.contexts.values_mut().filter(|context| context.device == index) {
                context.is_dead = true;
            }
            state.raise_for_all(index, AsyncEventKind::DeviceFatal);
            for queue_pair in queue_pairs(state, index) {
                match loss {
                    SimLoss::Flushed => state.fail(queue_pair),
                    SimLoss::Silent => state.silence(queue_pair),
                }
            }
        });
    }

    /// Puts a device of the same name and addresses in place of one that was lost. What was open
    /// stays lost.
    pub fn replace(&self) {
        self.enter(|state, index| state.devices[index].is_lost = false);
    }

    /// Breaks all its queue pairs, each with an event.
    pub fn break_queue_pairs(&self) {
        self.enter(|state, index| {
            for queue_pair in queue_pairs(state, index) {
                state.break_down(queue_pair);
            }
        });
    }

    /// Breaks all its completion queues, each with an event, and the queue pairs that complete
    /// into them: polling them is an error from here on.
    pub fn break_completion_queues(&self) {
        self.enter(|state, index| {
            let queues = state.completion_queues.iter();
            let queues = queues.filter(|(_, queue)| queue.device == index);
            let queues: Vec<u32> = queues.map(|(id, _)| *id).collect();
            queues.into_iter().for_each(|id| state.break_completion_queue(id));
        });
    }

    /// Lets its answers to READs leave that much later than the network needs, as those of a slow
    /// host do. A requester whose timeout is shorter takes them for lost.
    pub fn delay_reads(&self, delay: Duration) {
        self.enter(|state, index| state.devices[index].read_delay = nanos(delay));
    }

    /// Lets the next `count` destructions of its queue pairs fail.
    pub fn fail_destructions(&self, count: u32) {
        self.enter(|state, index| state.devices[index].failing_destructions = count);
    }

    /// Lets queries of a kind fail with an error number, from here on, while the device stays open
    /// and carries traffic. `None` lets them work again.
    pub fn fail_queries(&self, query: SimQuery, errno: Option<i32>) {
        self.enter(|state, index| {
            let failing = &mut state.devices[index].failing_queries;
            match errno {
                Some(errno) => failing.insert(query, errno),
                None => failing.remove(&query),
            }
        });
    }

    /// Lets registrations from here on take until what is given is dropped.
    #[must_use]
    pub fn hold_registrations(&self) -> SimHold {
        SimHold::new(self.enter(|state, index| Arc::clone(&state.devices[index].gate)))
    }

    pub(crate) fn enter<R>(&self, change: impl FnOnce(&mut NetworkState, usize) -> R) -> R {
        self.fabric.enter(|state| change(state, self.index))
    }
}

fn queue_pairs(state: &NetworkState, index: usize) -> Vec<u32> {
    let all = state.queue_pairs.iter();
    all.filter(|(_, queue_pair)| queue_pair.device == index).map(|(id, _)| *id).collect()
}
