//! A simulated device as a test holds it: what can be done to it from outside.

use std::sync::Arc;
use std::time::Duration;

use super::SimVerb;
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
        self.enter(NetworkState::drop_link);
    }

    /// Takes its ports down, and brings them up again after `time`.
    pub fn flap(&self, time: Duration) {
        self.enter(|state, index| {
            state.drop_link(index);
            let at = state.now + nanos(time);
            state.agenda.schedule(at, Event::LinkUp { device: index });
        });
    }

    /// Takes the LAG port of this number, from 1, away from each of its ports, without an event.
    /// Packets that leave by it get lost. Its queue pairs leave by the next one after 100 ms, until
    /// [`link_up`](Self::link_up) brings it back.
    ///
    /// # Panics
    ///
    /// Panics if a port has no such LAG port, or no other that is left.
    pub fn lose_lag_port(&self, number: u8) {
        let index = usize::from(number).checked_sub(1).expect("LAG ports count from 1");
        self.enter(|state, device| state.lose_lag_port(device, index));
    }

    /// Brings its ports up again, and LAG ports that were lost.
    pub fn link_up(&self) {
        self.enter(NetworkState::raise_link);
    }

    /// Takes the device away for good: posts and registrations fail with `EIO`, no search finds it,
    /// and each opening of it gets an event. Work in flight is flushed.
    pub fn lose(&self) {
        self.lose_with(NetworkState::fail);
    }

    /// Takes the device away, and ends each queue pair by `end`.
    pub(crate) fn lose_with(&self, end: fn(&mut NetworkState, u32)) {
        self.enter(|state, index| {
            state.devices[index].is_lost = true;
            for context in state.contexts.values_mut().filter(|context| context.device == index) {
                context.is_dead = true;
            }
            state.raise_for_all(index, AsyncEventKind::DeviceFatal);
            for queue_pair in queue_pairs(state, index) {
                end(state, queue_pair);
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

    /// Lets its answers to READs leave that much later than the network needs, as those of a slow
    /// host do. A requester whose timeout is shorter takes them for lost.
    pub fn delay_reads(&self, delay: Duration) {
        self.enter(|state, index| state.devices[index].read_delay = nanos(delay));
    }

    /// Makes firmware commands of this kind take that long, from here on; they take no time by
    /// default. The commands of a device's own threads take it on tokio's clock. Any other thread
    /// that runs one is blocked.
    pub fn set_command_delay(&self, verb: SimVerb, delay: Duration) {
        self.enter(|state, index| state.devices[index].command_delays.insert(verb, delay));
    }

    /// Lets the firmware hang until what is given is dropped: commands of every opening are
    /// answered then, or fail with `ETIMEDOUT` after a minute. Messages and READs go on.
    ///
    /// The device's own commands wait on tokio's clock. A handshake waits on a thread that may
    /// block, in real time. A paused clock stands still meanwhile, so that a task which is to let
    /// go after a sleep never does.
    pub fn hang_firmware(&self) -> SimHold {
        SimHold::new(self.enter(|state, index| Arc::clone(&state.devices[index].firmware)))
    }

    /// Makes queries of a kind fail with an error number, from here on. The device stays open, and
    /// its traffic goes on. `None` makes them work again.
    ///
    /// Error numbers are those of the system: 5 is `EIO`, 11 is `EAGAIN`.
    pub fn fail_queries(&self, query: SimQuery, errno: Option<i32>) {
        self.enter(|state, index| {
            let failing = &mut state.devices[index].failing_queries;
            match errno {
                Some(errno) => failing.insert(query, errno),
                None => failing.remove(&query),
            }
        });
    }

    pub(crate) fn enter<R>(&self, change: impl FnOnce(&mut NetworkState, usize) -> R) -> R {
        self.fabric.enter(|state| change(state, self.index))
    }
}

fn queue_pairs(state: &NetworkState, index: usize) -> Vec<u32> {
    let all = state.queue_pairs.iter();
    all.filter(|(_, queue_pair)| queue_pair.device == index).map(|(id, _)| *id).collect()
}
