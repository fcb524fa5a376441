//! What has happened to devices, counted.

use crate::AsyncEventKind;

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
    use crate::DeviceStatus;

    #[test]
    fn events_are_counted_by_kind() {
        let mut counts = EventCounts::default();
        for kind in
            [AsyncEventKind::PortError, AsyncEventKind::Other(99), AsyncEventKind::PortError]
        {
            counts.count(kind);
        }
        let status = DeviceStatus {
            device: "sim".to_owned(),
            is_open: true,
            lane_count: 1,
            events: counts.0,
        };
        assert_eq!(status.event_count(AsyncEventKind::PortError), 2);
        assert_eq!(status.event_count(AsyncEventKind::Other(99)), 1);
        assert_eq!(status.event_count(AsyncEventKind::PortActive), 0);
    }
}
