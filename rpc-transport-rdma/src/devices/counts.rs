//! What has happened to devices, counted.

use crate::verbs::AsyncEventKind;

/// What is known of a device that is or was in use.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceStatus {
    /// Its name.
    pub device: String,
    /// Whether it is in use now.
    pub is_open: bool,
    /// How many lanes it has.
    pub lane_count: usize,
    /// How often each kind of event has come, those of earlier openings included.
    pub events: Vec<(AsyncEventKind, u64)>,
}

impl DeviceStatus {
    /// How often events of this kind have come.
    #[must_use]
    pub fn event_count(&self, kind: AsyncEventKind) -> u64 {
        self.events.iter().find(|(other, _)| *other == kind).map_or(0, |(_, count)| *count)
    }
}

/// Counts by kind, in the order in which the kinds first came. There are few.
#[derive(Debug, Clone, Default)]
pub(super) struct EventCounts(pub(super) Vec<(AsyncEventKind, u64)>);

impl EventCounts {
    pub(super) fn count(&mut self, kind: AsyncEventKind) {
        match self.0.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, count)) => *count += 1,
            None => self.0.push((kind, 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_by_kind() {
        let mut counts = EventCounts::default();
        for kind in
            [AsyncEventKind::PortError, AsyncEventKind::Other(99), AsyncEventKind::PortError]
        {
            counts.count(kind);
        }
        let status = DeviceStatus {
            device: "mock".to_owned(),
            is_open: true,
            lane_count: 1,
            events: counts.0,
        };
        assert_eq!(status.event_count(AsyncEventKind::PortError), 2);
        assert_eq!(status.event_count(AsyncEventKind::Other(99)), 1);
        assert_eq!(status.event_count(AsyncEventKind::PortActive), 0);
    }
}
