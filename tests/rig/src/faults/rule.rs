//! The rule of a column in a row: the failures that a fault may cause. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use farcall::Code;

use super::call::{CallEnd, Kind};
use super::column::Column;
use super::sample::{Sample, Times};

/// Permission for calls to fail while the fault is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fails {
    /// No call may: the fault is one that the transport rides over.
    Never,
    /// A call may end with `UNAVAILABLE`.
    May,
    /// Calls have to end with `UNAVAILABLE`: there is no server to answer.
    Must,
    /// Like [`Fails::Must`], and each failure must say that no handler has seen the call: the
    /// server left in order.
    MustUnseen,
}

/// The rule of a row in one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) fails: Fails,
    /// The bound on every call.
    pub(super) longest: Duration,
    /// Within what time, while the fault is still there, calls of every kind have to succeed for
    /// good; `None` when they need not.
    pub(super) goes_on: Option<Duration>,
    /// Within what time after the fault was lifted calls of every kind have to succeed for good.
    pub(super) again: Duration,
    /// Within what time after that the connection has to be over its best path again.
    pub(super) home: Duration,
}

/// The observed calls of one kind over one column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) answered: u64,
    pub(super) failed: BTreeMap<i32, u64>,
    /// Of those that failed, how many said that no handler has seen them.
    pub(super) unseen: u64,
    pub(super) wrong: u64,
    pub(super) endless: u64,
    pub(super) longest: Duration,
    /// From the fault to the first success that had not begun before it.
    pub(super) goes_on: Option<Duration>,
    /// From the end of the fault to the first success that had not begun before it.
    pub(super) again: Option<Duration>,
}

/// The line of a kind and column; of what ended before the fault only failures count.
pub(super) fn line(samples: &[Sample], column: Column, kind: Kind, times: Times) -> Line {
    let mut line = Line::default();
    for sample in samples.iter().filter(|it| it.column == column && it.kind == kind) {
        if sample.ended < times.broken && sample.end == CallEnd::Answered {
            continue;
        }
        line.longest = line.longest.max(sample.ended - sample.began);
        match sample.end {
            CallEnd::Answered => line.answered += 1,
            CallEnd::WrongBytes => line.wrong += 1,
            CallEnd::Endless => line.endless += 1,
            CallEnd::NotExecuted(code) | CallEnd::Failed(code) => {
                *line.failed.entry(code).or_default() += 1;
                line.unseen += u64::from(matches!(sample.end, CallEnd::NotExecuted(_)));
            }
        }
    }
    line.goes_on = first_success(samples, column, kind, times.broken);
    line.again = first_success(samples, column, kind, times.mended);
    line
}

/// After what time a call ended well that had not begun before `since`.
fn first_success(
    samples: &[Sample],
    column: Column,
    kind: Kind,
    since: Instant,
) -> Option<Duration> {
    let is_one = |it: &&Sample| {
        (it.column, it.kind, it.end) == (column, kind, CallEnd::Answered) && it.began >= since
    };
    samples.iter().filter(is_one).map(|it| it.ended - since).min()
}

/// Returns true if calls of every kind over a column have succeeded since `since`.
pub(super) fn has_succeeded(samples: &[Sample], column: Column, since: Instant) -> bool {
    Kind::ALL.iter().all(|&kind| first_success(samples, column, kind, since).is_some())
}

/// Returns the violations of a column's rule by its samples, as text.
pub(super) fn complaints(
    samples: &[Sample],
    column: Column,
    times: Times,
    rule: &Rule,
) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut complain = |kind: Kind, text: String| complaints.push(format!("{kind}: {text}"));
    for kind in Kind::ALL {
        let line = line(samples, column, kind, times);
        if line.wrong > 0 {
            complain(kind, format!("{} answers with wrong bytes", line.wrong));
        }
        if line.endless > 0 {
            complain(kind, format!("{} calls did not end", line.endless));
        }
        if line.longest > rule.longest {
            let (longest, allowed) = (line.longest, rule.longest);
            complain(kind, format!("a call took {longest:.1?}, allowed are {allowed:?}"));
        }
        let seconds = |it: Option<Duration>| it.map_or("never".into(), |it| format!("{it:.1?}"));
        if let Some(bound) = rule.goes_on.filter(|bound| line.goes_on.is_none_or(|it| it > *bound))
        {
            let goes_on = seconds(line.goes_on);
            complain(kind, format!("went on after {goes_on}, allowed are {bound:?}"));
        }
        if line.again.is_none_or(|again| again > rule.again) {
            let (again, allowed) = (seconds(line.again), rule.again);
            complain(kind, format!("succeeded again after {again}, allowed are {allowed:?}"));
        }
        for text in failures(samples, column, kind, times, rule) {
            complain(kind, text);
        }
    }
    let failed = |sample: &&Sample| sample.column == column && sample.end.code().is_some();
    let must = matches!(rule.fails, Fails::Must | Fails::MustUnseen);
    if must && samples.iter().filter(failed).count() == 0 {
        complaints.push("no call failed, so that the fault was none".to_owned());
    }
    complaints
}

/// The failures that nothing explains.
fn failures(
    samples: &[Sample],
    column: Column,
    kind: Kind,
    times: Times,
    rule: &Rule,
) -> Vec<String> {
    let until = match rule.goes_on {
        Some(bound) => times.broken + bound,
        None => times.mended + rule.again,
    };
    let mut text = BTreeMap::<String, u64>::new();
    for sample in samples.iter().filter(|it| it.column == column && it.kind == kind) {
        let Some(code) = sample.end.code() else { continue };
        let place = if sample.ended < times.broken {
            " before the fault"
        } else if rule.fails == Fails::Never {
            ""
        } else if code != Code::Unavailable {
            ", which is not UNAVAILABLE"
        } else if rule.fails == Fails::MustUnseen && !matches!(sample.end, CallEnd::NotExecuted(_))
        {
            " without saying that no handler has seen it"
        } else if sample.began > until {
            " when calls had to succeed again"
        } else {
            continue;
        };
        *text.entry(format!("{code:?}{place}")).or_default() += 1;
    }
    text.into_iter().map(|(text, count)| format!("{count} calls ended with {text}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const UNAVAILABLE: i32 = Code::Unavailable as i32;

    fn rule(fails: Fails) -> Rule {
        Rule { fails, longest: 3 * SECOND, goes_on: None, again: 2 * SECOND, home: SECOND }
    }

    /// The fault is there from second 10 to second 20.
    struct Scene {
        start: Instant,
        samples: Vec<Sample>,
    }

    impl Scene {
        /// Every kind has answers before the fault and one second after it.
        fn new() -> Self {
            let mut scene = Self { start: Instant::now(), samples: Vec::new() };
            for kind in Kind::ALL {
                scene.add(kind, 5, 6, CallEnd::Answered);
                scene.add(kind, 20, 21, CallEnd::Answered);
            }
            scene
        }

        fn add(&mut self, kind: Kind, began: u32, ended: u32, end: CallEnd) {
            let (began, ended) = (self.start + began * SECOND, self.start + ended * SECOND);
            self.samples.push(Sample { column: Column::Tcp, kind, began, ended, end });
        }

        fn complaints(&self, rule: &Rule) -> Vec<String> {
            let (broken, mended) = (self.start + 10 * SECOND, self.start + 20 * SECOND);
            complaints(&self.samples, Column::Tcp, Times { broken, mended }, rule)
        }
    }

    #[test]
    fn answers_alone_are_fine_unless_calls_had_to_fail() {
        let scene = Scene::new();
        assert_eq!(scene.complaints(&rule(Fails::Never)), [""; 0]);
        assert_eq!(scene.complaints(&rule(Fails::May)), [""; 0]);
        assert_eq!(scene.complaints(&rule(Fails::Must)).len(), 1);
    }

    #[test]
    fn unavailable_is_fine_only_while_the_fault_explains_it() {
        let mut scene = Scene::new();
        scene.add(Kind::Bidi, 12, 13, CallEnd::Failed(UNAVAILABLE));
        assert_eq!(scene.complaints(&rule(Fails::Must)), [""; 0]);
        assert_eq!(scene.complaints(&rule(Fails::Never)).len(), 1);
        assert_eq!(scene.complaints(&rule(Fails::MustUnseen)).len(), 1);
        scene.add(Kind::Bidi, 23, 24, CallEnd::Failed(UNAVAILABLE));
        let late = scene.complaints(&rule(Fails::May));
        assert!(late[0].contains("when calls had to succeed again"), "{late:?}");
    }

    #[test]
    fn failures_before_the_fault_are_never_fine() {
        let mut scene = Scene::new();
        scene.add(Kind::Bidi, 7, 8, CallEnd::Failed(UNAVAILABLE));
        let early = scene.complaints(&rule(Fails::May));
        assert!(early[0].contains("before the fault"), "{early:?}");
    }

    #[test]
    fn other_codes_wrong_bytes_and_calls_without_end_are_never_fine() {
        for end in [CallEnd::Failed(Code::Internal as i32), CallEnd::WrongBytes, CallEnd::Endless] {
            let mut scene = Scene::new();
            scene.add(Kind::UnaryUp, 12, 13, end);
            assert_eq!(scene.complaints(&rule(Fails::May)).len(), 1, "{end:?}");
        }
    }

    #[test]
    fn a_late_answer_is_a_failure() {
        let mut scene = Scene::new();
        scene.add(Kind::UnaryUp, 12, 16, CallEnd::Answered);
        let long = scene.complaints(&rule(Fails::May));
        assert!(long[0].contains("took"), "{long:?}");
    }

    #[test]
    fn calls_have_to_succeed_again_and_soon() {
        let mut scene = Scene::new();
        scene.samples.retain(|it| it.kind != Kind::Bidi || it.ended < scene.start + 10 * SECOND);
        assert_eq!(scene.complaints(&rule(Fails::May)).len(), 1);
        scene.add(Kind::Bidi, 22, 23, CallEnd::Answered);
        assert_eq!(scene.complaints(&rule(Fails::May)).len(), 1);
        scene.add(Kind::Bidi, 20, 22, CallEnd::Answered);
        assert_eq!(scene.complaints(&rule(Fails::May)), [""; 0]);
    }

    #[test]
    fn calls_have_to_go_on_under_the_fault_where_the_rule_says_so() {
        let mut scene = Scene::new();
        let goes_on = Rule { goes_on: Some(2 * SECOND), ..rule(Fails::May) };
        assert_eq!(scene.complaints(&goes_on).len(), Kind::ALL.len());
        for kind in Kind::ALL {
            scene.add(kind, 11, 12, CallEnd::Answered);
        }
        assert_eq!(scene.complaints(&goes_on), [""; 0]);
        scene.add(Kind::Bidi, 14, 15, CallEnd::Failed(UNAVAILABLE));
        assert_eq!(scene.complaints(&goes_on).len(), 1);
    }
}
