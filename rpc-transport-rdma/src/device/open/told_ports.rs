//! Which ports can serve, and what changes of them.
//!
//! A server names its ports when it begins to listen. Later changes are found by searches for a
//! port, and by the events of a device in use. Each is logged once, by the first that finds it.

use std::collections::BTreeSet;

/// A device, and the description of one of its ports.
type Known = BTreeSet<(String, String)>;

/// The ports that can serve. Absent before the first search.
#[derive(Debug, Default)]
pub(super) struct ToldPorts(Option<Known>);

impl ToldPorts {
    /// Takes the ports that can serve now, those of `device` or all, and returns what appears and
    /// what vanishes with that.
    pub(super) fn update(&mut self, device: Option<&str>, usable: Known) -> [Vec<String>; 2] {
        let Some(before) = self.0.take() else {
            // The ports of one device are not all.
            self.0 = device.is_none().then_some(usable);
            return [const { Vec::new() }; 2];
        };
        let others = before.iter().filter(|(of, _)| device.is_some_and(|device| device != of));
        let now: Known = others.cloned().chain(usable).collect();
        let names = |(_, port): &(String, String)| port.clone();
        let appeared = now.difference(&before).map(names).collect();
        let vanished = before.difference(&now).map(names).collect();
        self.0 = Some(now);
        [appeared, vanished]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_reported_once() {
        let known = |ports: &[&str]| -> Known {
            ports.iter().map(|&port| (port[..1].to_owned(), port.to_owned())).collect()
        };
        let mut told = ToldPorts::default();
        let none: [Vec<String>; 2] = Default::default();
        assert_eq!(told.update(Some("a"), known(&["a:1"])), none);
        assert_eq!(told.update(None, known(&["a:1", "b:1"])), none);
        assert_eq!(told.update(None, known(&["a:1", "b:1"])), none);
        let vanished = [vec![], vec!["a:1".to_owned()]];
        assert_eq!(told.update(Some("a"), known(&[])), vanished);
        assert_eq!(told.update(None, known(&["b:1"])), none);
        let appeared = [vec!["a:2".to_owned()], vec![]];
        assert_eq!(told.update(Some("a"), known(&["a:2"])), appeared);
    }
}
