//! The questions of a device's watch about its ports, and the ports whose connections wait for the
//! answer.
//!
//! The device is asked once at a time: firmware that hangs answers nothing, and any number of
//! events may come meanwhile. A question that comes up while a query is under way is answered by
//! the next one, whose answer is newer than the event. Pure: time is an argument.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::AsyncEventKind;

/// Time for which the connections of a port stay that went down. A cable that is seated anew, or a
/// bond that changes its port, is back in less, and retransmissions bridge about as much: the queue
/// pairs of a dead link give up by themselves.
pub(super) const PORT_GRACE: Duration = Duration::from_secs(2);

/// Time that a device has to say that a port is back whose grace is over.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// The questions to a device, those that wait and those under way.
#[derive(Debug, Default)]
pub(super) struct Inquiry {
    /// Ports that went down and were not reported as active since. `None` stands for all ports.
    suspects: HashMap<Option<u8>, Suspicion>,
    /// Questions of the next query.
    waiting: Questions,
    /// Questions of the query that is under way.
    under_way: Option<Questions>,
}

/// Questions to one query. Every answer tells which ports can serve.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Questions {
    /// Set if the question is which ports can serve.
    serving: bool,
    /// The event after which connections may have lost their address.
    pub(super) addresses: Option<AsyncEventKind>,
}

#[derive(Debug, Clone, Copy)]
struct Suspicion {
    stage: SuspicionStage,
    /// The end of the stage.
    until: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SuspicionStage {
    /// The port may come back.
    Grace,
    /// The next query asks for its state.
    Waiting,
    /// The query that is under way does.
    Asked,
}

impl Inquiry {
    /// A port went down, or one that is not named did.
    pub(super) fn suspect(&mut self, port: Option<u8>, now: Instant) {
        let (stage, until) = (SuspicionStage::Grace, now + PORT_GRACE);
        // A second report in a row does not lengthen the first one's grace.
        self.suspects.entry(port).or_insert(Suspicion { stage, until });
        self.waiting.serving = true;
    }

    /// A port is back, or all are.
    pub(super) fn trust(&mut self, port: Option<u8>) {
        match port {
            Some(_) => drop(self.suspects.remove(&port)),
            None => self.suspects.clear(),
        }
        self.waiting.serving = true;
    }

    /// The addresses of ports may have changed by an event of this kind.
    pub(super) fn check_addresses(&mut self, kind: AsyncEventKind) {
        self.waiting.addresses = Some(kind);
    }

    /// Begins a query if there is something to ask and no query is under way.
    pub(super) fn begin_query(&mut self) -> bool {
        let has_suspect = self.suspects.values().any(|it| it.stage == SuspicionStage::Waiting);
        if self.under_way.is_some() || !(has_suspect || self.waiting != Questions::default()) {
            return false;
        }
        self.under_way = Some(std::mem::take(&mut self.waiting));
        for suspicion in self.suspects.values_mut() {
            if suspicion.stage == SuspicionStage::Waiting {
                suspicion.stage = SuspicionStage::Asked;
            }
        }
        true
    }

    /// Ends the query. Returns its questions, and the ports whose state the answer decides.
    pub(super) fn handle_answer(&mut self) -> (Questions, Vec<Option<u8>>) {
        let questions = self.under_way.take().unwrap_or_default();
        (questions, self.take(|suspicion| suspicion.stage == SuspicionStage::Asked))
    }

    /// The next time for [`handle_deadline`](Self::handle_deadline).
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.suspects.values().map(|suspicion| suspicion.until).min()
    }

    /// Asks for the ports whose grace is over. Returns those for which the device has not answered.
    pub(super) fn handle_deadline(&mut self, now: Instant) -> Vec<Option<u8>> {
        let unanswered = self
            .take(|suspicion| suspicion.until <= now && suspicion.stage != SuspicionStage::Grace);
        for suspicion in self.suspects.values_mut().filter(|it| it.until <= now) {
            *suspicion = Suspicion { stage: SuspicionStage::Waiting, until: now + QUERY_TIMEOUT };
        }
        unanswered
    }

    fn take(&mut self, is_due: impl Fn(&Suspicion) -> bool) -> Vec<Option<u8>> {
        self.suspects.extract_if(|_, suspicion| is_due(suspicion)).map(|(port, _)| port).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: Option<u8> = Some(1);

    #[test]
    fn events_of_any_number_are_one_query_at_a_time() {
        let (mut inquiry, now) = (Inquiry::default(), Instant::now());
        assert!(!inquiry.begin_query());
        for number in 0..100 {
            inquiry.suspect(Some(number % 3), now);
            inquiry.trust(Some(number % 3));
            assert_eq!(inquiry.begin_query(), number == 0);
        }
        assert!(inquiry.handle_answer().1.is_empty());
        assert!(inquiry.begin_query(), "what came after the first query had begun");
        inquiry.handle_answer();
        assert!(!inquiry.begin_query());
    }

    #[test]
    fn an_answer_is_of_a_query_that_began_after_its_question() {
        let mut inquiry = Inquiry::default();
        inquiry.trust(PORT);
        assert!(inquiry.begin_query());
        inquiry.check_addresses(AsyncEventKind::GidChange);
        assert_eq!(inquiry.handle_answer().0.addresses, None);
        assert!(inquiry.begin_query());
        assert_eq!(inquiry.handle_answer().0.addresses, Some(AsyncEventKind::GidChange));
    }

    #[test]
    fn a_port_is_asked_for_when_its_grace_is_over() {
        let (mut inquiry, start) = (Inquiry::default(), Instant::now());
        inquiry.suspect(PORT, start);
        inquiry.suspect(PORT, start + PORT_GRACE / 2);
        assert!(inquiry.begin_query(), "which ports can serve");
        assert!(inquiry.handle_answer().1.is_empty());
        let end = inquiry.next_deadline().unwrap();
        assert_eq!(end, start + PORT_GRACE);
        assert!(inquiry.handle_deadline(end).is_empty() && inquiry.begin_query());
        assert_eq!(inquiry.handle_answer().1, [PORT]);
        assert_eq!(inquiry.next_deadline(), None);
    }

    #[test]
    fn a_port_that_comes_back_during_its_query_is_trusted() {
        let (mut inquiry, start) = (Inquiry::default(), Instant::now());
        inquiry.suspect(PORT, start);
        inquiry.handle_deadline(start + PORT_GRACE);
        assert!(inquiry.begin_query());
        inquiry.trust(PORT);
        // It goes down again: that is another grace, which the old answer says nothing about.
        inquiry.suspect(PORT, start + PORT_GRACE);
        assert!(inquiry.handle_answer().1.is_empty());
        assert_eq!(inquiry.next_deadline(), Some(start + 2 * PORT_GRACE));
    }

    #[test]
    fn firmware_that_hangs_keeps_no_port_longer() {
        let (mut inquiry, start) = (Inquiry::default(), Instant::now());
        inquiry.trust(None);
        assert!(inquiry.begin_query(), "and nothing answers it");
        inquiry.suspect(PORT, start);
        assert!(inquiry.handle_deadline(start + PORT_GRACE).is_empty() && !inquiry.begin_query());
        assert_eq!(inquiry.next_deadline(), Some(start + PORT_GRACE + QUERY_TIMEOUT));
        assert_eq!(inquiry.handle_deadline(start + PORT_GRACE + QUERY_TIMEOUT), [PORT]);
    }
}
