//! An error of a configuration, and its place.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};
use thiserror::Error;

/// A configuration that cannot be used.
///
/// Its text names the file with line and column, or the variable of the environment, the key, and
/// what would be right. As a [`miette::Diagnostic`] it shows the line, too.
#[derive(Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        reason: std::io::Error,
    },
    /// The file says what cannot be.
    #[error(transparent)]
    File(Box<Misplaced>),
    /// A variable of the environment says what cannot be.
    #[error("environment variable {variable}: {message}")]
    Variable {
        /// The variable's name.
        variable: String,
        /// Description of the fault and of what would be right.
        message: String,
    },
    /// The settings cannot be watched.
    #[error("cannot watch {origin}: {reason}")]
    Unwatchable {
        /// The file.
        origin: String,
        /// Why not.
        reason: String,
    },
    /// Several mistakes, in the order of the file. Each has a line of the text.
    #[error("{}", lines(mistakes))]
    Several {
        /// The mistakes, at least two.
        mistakes: Vec<SettingsError>,
    },
    /// The program asks for a name that the configuration does not have.
    #[error("{origin}: {message}")]
    Missing {
        /// The file.
        origin: String,
        /// Description of what is missing and what exists.
        message: String,
    },
}

/// An error at a place of the file.
pub struct Misplaced {
    message: String,
    key: String,
    place: Range<usize>,
    line: usize,
    column: usize,
    source: NamedSource<String>,
}

impl Misplaced {
    pub(super) fn new(
        origin: &str,
        text: &str,
        place: Range<usize>,
        key: String,
        message: String,
    ) -> Self {
        // A place is where a character begins; one beyond the text is the end.
        let before = text.get(..place.start).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let column = before[line_start..].chars().count() + 1;
        let source = NamedSource::new(origin, text.to_owned());
        Self { message, key, place, line, column, source }
    }

    /// The line, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// The column, in characters from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        self.column
    }

    /// The key with its tables, as `targets.inventory.timeout`; empty where the text is not TOML.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, key, line, column, source, .. } = self;
        write!(f, "{}:{line}:{column}: ", source.name())?;
        if !key.is_empty() {
            write!(f, "{key}: ")?;
        }
        f.write_str(message)
    }
}

impl std::error::Error for Misplaced {}

rpc_core::readable_debug!(SettingsError, Misplaced);

fn lines(mistakes: &[SettingsError]) -> String {
    mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

impl Diagnostic for SettingsError {
    fn source_code(&self) -> Option<&dyn SourceCode> {
        match self {
            Self::File(misplaced) => Some(&misplaced.source),
            _ => None,
        }
    }

    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        let Self::Several { mistakes } = self else { return None };
        Some(Box::new(mistakes.iter().map(|mistake| mistake as &dyn Diagnostic)))
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let Self::File(misplaced) = self else { return None };
        let label = LabeledSpan::underline(misplaced.place.clone());
        Some(Box::new(std::iter::once(label)))
    }
}

impl SettingsError {
    /// Joins one or more mistakes in the order of their places. Duplicates are dropped, because a
    /// mistake in the defaults is one of every target.
    pub(super) fn joined(mut mistakes: Vec<Self>) -> Self {
        let place = |error: &Self| match error {
            Self::File(misplaced) => (0, misplaced.place.start),
            _ => (1, 0),
        };
        mistakes.sort_by_key(place);
        let mut texts = BTreeSet::new();
        mistakes.retain(|error| texts.insert(error.to_string()));
        match mistakes.len() {
            1 => mistakes.remove(0),
            _ => Self::Several { mistakes },
        }
    }

    pub(super) fn unreadable(path: &Path, reason: std::io::Error) -> Self {
        Self::Unreadable { path: path.to_owned(), reason }
    }
}
