//! How many attempts beside the first ones a channel may still make.

use std::fmt;

use tower::retry::budget::{Budget as _, TpsBudget};

use crate::Method;
use crate::metrics::{RetryKind, retry_denied};
use crate::policy::retry::config::RetryBudget;
use crate::policy::retry::throttling::Tokens;

/// What is left of a [`RetryBudget`].
pub(super) enum Budget {
    Rate(TpsBudget),
    Tokens(Tokens),
}

impl Budget {
    pub(super) fn new(budget: RetryBudget) -> Self {
        match budget {
            RetryBudget::Rate(rate) => {
                Self::Rate(TpsBudget::new(rate.period, rate.min_per_second, rate.ratio))
            }
            RetryBudget::Tokens(rules) => Self::Tokens(Tokens::new(rules)),
        }
    }

    /// A call begins.
    pub(super) fn called(&self) {
        if let Self::Rate(rate) = self {
            rate.deposit();
        }
    }

    /// An attempt has ended, and says nothing against its server.
    pub(super) fn succeeded(&self) {
        if let Self::Tokens(tokens) = self {
            tokens.succeeded();
        }
    }

    /// An attempt has ended with a status that its policy names.
    pub(super) fn failed(&self) {
        if let Self::Tokens(tokens) = self {
            tokens.failed();
        }
    }

    /// Takes the right to one attempt beside the first of a call of `method`, and counts it when
    /// there is none.
    pub(super) fn take_for(&self, method: &Method, kind: RetryKind) -> bool {
        let is_allowed = self.take();
        if !is_allowed {
            retry_denied(method, kind);
        }
        is_allowed
    }

    /// Takes the right to one attempt beside the first; false when there is none.
    fn take(&self) -> bool {
        match self {
            Self::Rate(rate) => rate.withdraw(),
            Self::Tokens(tokens) => tokens.allow(),
        }
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(_) => f.write_str("Rate"),
            Self::Tokens(tokens) => tokens.fmt(f),
        }
    }
}
