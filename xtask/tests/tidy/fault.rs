//! A report of a rule.

use std::fmt;

/// A place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The file, relative to the workspace.
    pub(crate) file: String,
    /// The line, from 1.
    pub(crate) line: usize,
    /// Description of the fault.
    pub(crate) what: String,
}

impl Fault {
    /// A fault at a line of a file.
    pub(crate) fn new(file: &str, line: usize, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// Fails the test with all faults, if there are any.
pub(crate) fn assert_none(faults: impl IntoIterator<Item = Fault>) {
    let lines: Vec<String> = faults.into_iter().map(|fault| fault.to_string()).collect();
    assert!(lines.is_empty(), "{} faults\n{}", lines.len(), lines.join("\n"));
}
