//! The messages of calls that failed, each once.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// Maximum number of messages to print.
const SHOWN_MAX: usize = 12;

/// The distinct messages of failed calls, which tasks share.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<BTreeSet<String>>);

impl Failures {
    pub(crate) fn add(&self, message: String) {
        self.0.lock().insert(message);
    }

    /// Returns the first messages, and the number of the others.
    pub(crate) fn shown(&self) -> Vec<String> {
        let messages = self.0.lock();
        let mut shown: Vec<_> = messages.iter().take(SHOWN_MAX).cloned().collect();
        if messages.len() > SHOWN_MAX {
            shown.push(format!("and in {} other ways", messages.len() - SHOWN_MAX));
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_shown_once_and_counted_beyond_the_bound() {
        let failures = Failures::default();
        (0..3).for_each(|_| failures.add("the same".to_owned()));
        assert_eq!(failures.shown(), ["the same"]);
        (0..SHOWN_MAX).for_each(|number| failures.add(number.to_string()));
        assert_eq!(failures.shown().last().unwrap(), "and in 1 other ways");
    }
}
