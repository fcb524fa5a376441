//! Judges a row: the measured costs against its bounds.

use std::time::Duration;

use super::hostile::Trap;
use super::log_text::{LINE_LEN_MAX, LINES_MAX, LogFindings};
use super::message::{Deeds, Standing, Summary};
use super::row::{Bounds, Row, Scene};
use super::scale::Scale;

/// Maximum slowdown of honest calls under attack: the factor at the 99th percentile; up to a second
/// is always allowed. On a busy machine that is no measurement. Beyond this bound honest callers
/// would not speak of service.
const SLOWER_MAX: u64 = 50;
const SLOW_US: u64 = 1_000_000;

/// The calls that an honest client has to make in each period. Its tasks make hundreds.
const CALLS_MIN: u64 = 10;

/// The measurements of a row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Observed {
    /// Honest calls before the attack, during it, and after the attacker has gone.
    pub(super) before: Summary,
    pub(super) during: Summary,
    pub(super) after: Summary,
    pub(super) memory: Memory,
    /// The processor time that the attack cost the victim, honest calls not counted.
    pub(super) cpu: Duration,
    pub(super) deeds: Deeds,
    /// Number of the victim's attempts to connect to its hostile server.
    pub(super) attempts: Option<u64>,
    /// The server's own state at the end of the attack.
    pub(super) standing: Standing,
    pub(super) log: LogFindings,
    /// Why the attack was cut short.
    pub(super) cut_short: Option<String>,
}

/// A victim's resident memory in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Memory {
    pub(super) before: u64,
    pub(super) peak: u64,
    pub(super) after: u64,
}

impl Memory {
    fn growth_mib(self) -> u64 {
        self.peak.saturating_sub(self.before) >> 10
    }
}

impl Observed {
    /// The processor time for each byte of the attack, in nanoseconds.
    pub(super) fn cpu_ns_per_byte(&self) -> Option<u64> {
        let nanos = u64::try_from(self.cpu.as_nanos()).unwrap_or(u64::MAX);
        nanos.checked_div(self.deeds.sent)
    }
}

/// In what a row did not hold.
pub(super) fn judge(row: &Row, scale: Scale, observed: &Observed) -> Vec<String> {
    let mut complaints: Vec<String> = observed.cut_short.iter().cloned().collect();
    complaints.extend(honest_calls(observed));
    complaints.extend(costs(&row.bounds, scale, observed));
    complaints.extend(log(&observed.log));
    let exposed = match row.scene {
        Scene::BlockingHandler => Some("calls of the handler that blocks failed"),
        Scene::Client(Trap::HtmlProxy) => Some("calls did not end with the status of a page"),
        _ => None,
    };
    if let Some(exposed) = exposed
        && observed.during.exposed_errors > 0
    {
        complaints.push(format!("{} {exposed}", observed.during.exposed_errors));
    }
    complaints
}

fn honest_calls(observed: &Observed) -> Vec<String> {
    let mut complaints = Vec::new();
    let periods = [
        ("before the attack", &observed.before),
        ("during the attack", &observed.during),
        ("after the attack", &observed.after),
    ];
    for (when, summary) in periods {
        let Summary { calls, errors, newcomers, newcomer_errors, .. } = *summary;
        let text = summary.first_error.as_deref().unwrap_or("no message");
        if errors > 0 {
            complaints
                .push(format!("{errors} of {} honest calls failed {when}: {text}", calls + errors));
        }
        if newcomer_errors > 0 {
            let all = newcomers + newcomer_errors;
            complaints.push(format!("{newcomer_errors} of {all} newcomers failed {when}: {text}"));
        }
        if calls < CALLS_MIN {
            complaints.push(format!("only {calls} honest calls were answered {when}"));
        }
    }
    let max = observed.before.p99_us.saturating_mul(SLOWER_MAX).max(SLOW_US);
    let p99 = observed.during.p99_us;
    if p99 > max {
        complaints.push(format!("the p99 of honest calls was {p99} us, and {max} us at most"));
    }
    complaints
}

fn costs(bounds: &Bounds, scale: Scale, observed: &Observed) -> Vec<String> {
    let mut complaints = Vec::new();
    let growth = observed.memory.growth_mib();
    if growth > bounds.growth_mib {
        let max = bounds.growth_mib;
        complaints.push(format!("the victim grew by {growth} MiB, and {max} MiB at most"));
    }
    if let (Some(max), Some(cost)) = (bounds.cpu_ns_per_byte, observed.cpu_ns_per_byte())
        && cost > max
    {
        complaints.push(format!("a byte cost the victim {cost} ns, and {max} ns at most"));
    }
    if let (Some((quick, full)), Some(attempts)) = (bounds.attempts, observed.attempts) {
        let max = scale.pick(quick, full);
        if attempts > max {
            complaints.push(format!("the victim connected {attempts} times, and {max} at most"));
        }
    }
    let Deeds { opened, closed, .. } = observed.deeds;
    if bounds.closed.is_due(scale) && closed < opened {
        complaints.push(format!("{} of {opened} hostile connections were kept", opened - closed));
    }
    complaints
}

fn log(findings: &LogFindings) -> Vec<String> {
    let LogFindings { lines, longest, controls, forged } = *findings;
    let mut complaints = Vec::new();
    if lines > LINES_MAX {
        complaints.push(format!("the victim's log has {lines} lines, and {LINES_MAX} at most"));
    }
    if controls > 0 {
        complaints.push(format!("{controls} control characters are in the victim's log"));
    }
    if forged > 0 {
        complaints.push(format!("{forged} lines of the victim's log are the peer's"));
    }
    if longest > LINE_LEN_MAX {
        complaints.push(format!("a line of the victim's log has {longest} bytes"));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attack::hostile::Assault;
    use crate::attack::row::{Closed, Quick, Rules};

    const ROW: Row = Row {
        name: "row",
        what: "",
        scene: Scene::Server(Assault::Garbage, Rules::Default),
        bounds: Bounds {
            growth_mib: 10,
            cpu_ns_per_byte: Some(100),
            attempts: Some((5, 10)),
            closed: Closed::AllInTime,
            why: "",
        },
        quick: Quick::Shown,
    };

    fn good() -> Observed {
        let honest = Summary { calls: 100, p99_us: 1000, newcomers: 3, ..Summary::default() };
        Observed {
            before: honest.clone(),
            during: honest.clone(),
            after: honest,
            memory: Memory { before: 1 << 10, peak: 11 << 10, after: 1 << 10 },
            cpu: Duration::from_micros(100),
            deeds: Deeds { opened: 2, closed: 2, sent: 1000, is_done: true },
            attempts: Some(5),
            ..Observed::default()
        }
    }

    /// Returns the complaints about a good row after this change.
    fn complaints(change: impl FnOnce(&mut Observed)) -> Vec<String> {
        let mut observed = good();
        change(&mut observed);
        judge(&ROW, Scale::Quick, &observed)
    }

    #[test]
    fn a_row_within_its_bounds_holds() {
        assert_eq!(judge(&ROW, Scale::Quick, &good()), Vec::<String>::new());
        assert_eq!(judge(&ROW, Scale::Full, &good()), Vec::<String>::new());
    }

    #[test]
    fn each_bound_is_one_complaint() {
        type Change = fn(&mut Observed);
        let changes: [(Change, &str); 12] = [
            (|it| it.during.errors = 1, "1 of 101 honest calls failed during the attack"),
            (|it| it.after.newcomer_errors = 1, "1 of 4 newcomers failed after the attack"),
            (|it| it.before.calls = 0, "only 0 honest calls were answered before the attack"),
            (|it| it.during.p99_us = 1_000_001, "p99 of honest calls was 1000001 us"),
            (|it| it.memory.peak = 12 << 10, "grew by 11 MiB"),
            (|it| it.cpu = Duration::from_millis(1), "cost the victim 1000 ns"),
            (|it| it.attempts = Some(6), "connected 6 times, and 5 at most"),
            (|it| it.log.controls = 1, "1 control characters"),
            (|it| it.log.forged = 1, "1 lines"),
            (|it| it.log.longest = 5000, "has 5000 bytes"),
            (|it| it.log.lines = 101, "has 101 lines, and 100 at most"),
            (|it| it.cut_short = Some("ceiling".to_owned()), "ceiling"),
        ];
        for (change, text) in changes {
            let complaints = complaints(change);
            assert_eq!(complaints.len(), 1, "{complaints:?}");
            assert!(complaints[0].contains(text), "{complaints:?} has no `{text}`");
        }
    }

    #[test]
    fn the_short_form_allows_connections_left_open() {
        let mut observed = good();
        observed.deeds.closed = 0;
        assert!(judge(&ROW, Scale::Quick, &observed).is_empty());
        assert_eq!(judge(&ROW, Scale::Full, &observed).len(), 1);
    }

    #[test]
    fn calls_that_block_have_to_succeed() {
        let mut observed = good();
        observed.during.exposed_errors = 1;
        assert!(judge(&ROW, Scale::Quick, &observed).is_empty());
        let blocking = Row { scene: Scene::BlockingHandler, ..ROW };
        assert_eq!(judge(&blocking, Scale::Quick, &observed).len(), 1);
    }
}
