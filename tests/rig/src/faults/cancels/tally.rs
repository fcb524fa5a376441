//! In which moments calls were given up, counted.

use std::fmt;

use farcall::rdma::LaneInfo;

/// The shortest payload of a call that is given up: longer than everything that the neighbours of
/// its lane have on their way together, so that the lane's counters tell whose bytes they are.
pub(super) const LEN_MIN: usize = 256 << 10;

/// The end of a call, and the moment of its cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// Not at all: the answer came first.
    Answered,
    /// At its first poll, before it was sent or just when it was.
    FirstPoll,
    /// While nothing large was on its way: before the offer, in the handler, or between.
    Between,
    /// While its request was offered, or being read by the server's device.
    RequestRead,
    /// While its answer was being read by our device.
    AnswerRead,
    /// While remains of calls given up before it were on their way too: it cannot be told.
    Crowded,
}

impl Moment {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Answered, "answered"),
        (Self::FirstPoll, "given up at the first poll"),
        (Self::Between, "given up with nothing large on its way"),
        (Self::RequestRead, "given up while the request was read"),
        (Self::AnswerRead, "given up while the answer was read"),
        (Self::Crowded, "given up beside the remains of others"),
    ];

    /// The moment in which a call is given up that began on a quiet lane.
    pub(super) fn of(lane: &LaneInfo) -> Self {
        if lane.sink_bytes_in_use >= LEN_MIN as u64 {
            Self::AnswerRead
        } else if lane.source_bytes_in_use >= LEN_MIN as u64 {
            Self::RequestRead
        } else {
            Self::Between
        }
    }
}

/// Number of calls that ended in each moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally([u64; Moment::ALL.len()]);

impl Tally {
    pub(super) fn add(&mut self, moment: Moment) {
        self.0[moment as usize] += 1;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    pub(super) fn of(&self, moment: Moment) -> u64 {
        self.0[moment as usize]
    }

    pub(super) fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (moment, text) in Moment::ALL {
            writeln!(f, "  {:>7} {text}", self.of(moment))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_moment_has_a_place_of_its_own() {
        let mut tally = Tally::default();
        for (index, (moment, _)) in Moment::ALL.into_iter().enumerate() {
            assert_eq!(moment as usize, index);
            tally.add(moment);
            assert_eq!(tally.of(moment), 1);
        }
        let mut both = tally;
        both.merge(&tally);
        assert_eq!(both.total(), 12);
    }
}
