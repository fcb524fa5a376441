//! The future events of a simulated network, in order of time.

use std::collections::BTreeMap;

use super::lag_port::LagPortId;
use super::numbers::Nanos;

/// Something that will happen.
#[derive(Debug)]
pub(crate) enum Event {
    /// A request reaches the peer of a queue pair.
    Arrive(Packet),
    /// The peer's answer comes back.
    Answer(Packet, Answer),
    /// The acknowledgement timeout of a queue pair may have passed.
    Timeout { queue_pair: u32 },
    /// A queue pair has waited for a receiver that was not ready.
    Resume { queue_pair: u32, attempt: u32 },
    /// Flushes the send queue of a queue pair in the error state.
    Flush { queue_pair: u32 },
    /// Flushes the receive in progress of a queue pair in the error state, which was its last.
    LastReceive { queue_pair: u32 },
    /// The queue pairs of a device's LAG ports that were lost move to others.
    MoveLagPorts { device: usize },
    /// The link of a device comes back.
    LinkUp { device: usize },
    /// The event of a completion queue that was armed comes through.
    Notify { completion_queue: u32 },
}

/// A request of a queue pair on the wire, or its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    pub(crate) queue_pair: u32,
    /// Position among the requests that go over the wire.
    pub(crate) sequence: u32,
    /// Packets of an earlier attempt mean nothing.
    pub(crate) attempt: u32,
    /// LAG port of its sender.
    pub(crate) lag_port: LagPortId,
    /// Traffic class of its sender.
    pub(crate) traffic_class: u8,
}

/// An answer of a peer.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It is done; for a READ, with the bytes.
    Done(Option<Box<[u8]>>),
    /// It had no receive posted and is to be asked again after a while.
    NotReady { wait: Nanos },
    /// It refused, with a status as verbs numbers it.
    Refused(u32),
}

/// Events by time, and by the order of scheduling where the times are equal.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    events: BTreeMap<(Nanos, u64), Event>,
    scheduled: u64,
}

impl Agenda {
    pub(crate) fn schedule(&mut self, at: Nanos, event: Event) {
        self.events.insert((at, self.scheduled), event);
        self.scheduled += 1;
    }

    /// Returns the time of the next event.
    pub(crate) fn next_time(&self) -> Option<Nanos> {
        self.events.keys().next().map(|(at, _)| *at)
    }

    /// Takes the next event that is due at `now`, with its time.
    pub(crate) fn take_due(&mut self, now: Nanos) -> Option<(Nanos, Event)> {
        let entry = self.events.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((at, _), event) = entry.remove_entry();
        Some((at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_by_the_order_of_scheduling() {
        let mut agenda = Agenda::default();
        for (at, queue_pair) in [(5, 1), (3, 2), (5, 3), (9, 4)] {
            agenda.schedule(at, Event::Flush { queue_pair });
        }
        assert_eq!(agenda.next_time(), Some(3));
        let due = std::iter::from_fn(|| agenda.take_due(5));
        let due: Vec<_> = due
            .map(|(at, event)| match event {
                Event::Flush { queue_pair } => (at, queue_pair),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(due, [(3, 2), (5, 1), (5, 3)]);
        assert_eq!(agenda.next_time(), Some(9));
    }
}
