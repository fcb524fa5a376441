//! The requests of a send queue that the device has, in order.
//!
//! A queue because send queues complete in order: a completion also ends everything before it,
//! which is how requests come back that asked for no completion of their own. Pure, and generic
//! over what a request is.

use std::collections::VecDeque;

use super::WorkId;

/// Requests in flight, each with its position in the sequence of all requests.
#[derive(Debug)]
pub(super) struct InFlight<T> {
    entries: VecDeque<Entry<T>>,
    /// Position of the front entry, or of the next when there is none.
    front: u16,
    signaled: usize,
}

#[derive(Debug)]
struct Entry<T> {
    request: T,
    is_signaled: bool,
}

impl<T> InFlight<T> {
    /// Room for `capacity` requests, which must be fewer than there are positions.
    pub(super) fn with_capacity(capacity: usize) -> Self {
        assert!(capacity < usize::from(WorkId::POSITIONS), "{capacity} requests in flight");
        Self { entries: VecDeque::with_capacity(capacity), front: 0, signaled: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The position that the next request will have.
    pub(super) fn next_position(&self) -> u16 {
        // The length is below POSITIONS, which is at most half of what a u16 holds.
        #[allow(clippy::cast_possible_truncation)]
        let len = self.entries.len() as u16;
        (self.front + len) % WorkId::POSITIONS
    }

    pub(super) fn push(&mut self, request: T, is_signaled: bool) {
        self.signaled += usize::from(is_signaled);
        self.entries.push_back(Entry { request, is_signaled });
    }

    /// Takes back the last `count` requests, which the device did not accept, last first.
    pub(super) fn take_back(&mut self, count: usize) -> impl Iterator<Item = T> {
        let count = count.min(self.entries.len());
        (0..count).map_while(|_| {
            let entry = self.entries.pop_back()?;
            self.signaled -= usize::from(entry.is_signaled);
            Some(entry.request)
        })
    }

    /// Returns the number of requests that end with the completion of the one at `position`. `None`
    /// if that is not in flight.
    pub(super) fn ended_by(&self, position: u16) -> Option<usize> {
        let distance = (position + WorkId::POSITIONS - self.front) % WorkId::POSITIONS;
        let distance = usize::from(distance);
        (position < WorkId::POSITIONS && distance < self.entries.len()).then_some(distance + 1)
    }

    /// Takes the first request.
    pub(super) fn pop(&mut self) -> Option<T> {
        let entry = self.entries.pop_front()?;
        self.front = (self.front + 1) % WorkId::POSITIONS;
        self.signaled -= usize::from(entry.is_signaled);
        Some(entry.request)
    }

    /// Returns true if some request in flight will report its success.
    pub(super) fn has_signaled(&self) -> bool {
        self.signaled > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_ends_everything_up_to_it() {
        let mut in_flight = InFlight::with_capacity(8);
        for request in 0..5 {
            assert_eq!(in_flight.next_position(), request);
            in_flight.push(request, request == 4);
        }
        assert_eq!(in_flight.ended_by(2), Some(3));
        assert_eq!(in_flight.ended_by(5), None, "not posted");
        assert_eq!(
            (in_flight.pop(), in_flight.pop(), in_flight.pop()),
            (Some(0), Some(1), Some(2))
        );
        assert_eq!(in_flight.ended_by(2), None, "ended before");
        assert_eq!(in_flight.ended_by(4), Some(2));
        assert!(in_flight.has_signaled());
    }

    #[test]
    fn positions_wrap() {
        let mut in_flight = InFlight::with_capacity(4);
        for _ in 0..u32::from(WorkId::POSITIONS) * 2 + 7 {
            let position = in_flight.next_position();
            in_flight.push((), true);
            assert_eq!(in_flight.ended_by(position), Some(1));
            in_flight.pop().unwrap();
            assert_eq!(in_flight.ended_by(position), None);
        }
        assert_eq!(in_flight.next_position(), 7);
        assert!(!in_flight.has_signaled());
    }

    #[test]
    fn what_was_not_accepted_comes_back_last_first() {
        let mut in_flight = InFlight::with_capacity(4);
        for request in 0..4 {
            in_flight.push(request, request == 3);
        }
        assert_eq!(in_flight.take_back(2).collect::<Vec<_>>(), [3, 2]);
        assert_eq!((in_flight.len(), in_flight.next_position()), (2, 2));
        assert!(!in_flight.has_signaled());
    }
}
