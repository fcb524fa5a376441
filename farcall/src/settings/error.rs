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
pub struct SettingsError(Box<SettingsFault>);

/// The fault behind an error.
#[derive(Error)]
pub(super) enum SettingsFault {
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
    File(Misplaced),
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
pub(super) struct Misplaced {
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

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for SettingsError {}

impl From<SettingsFault> for SettingsError {
    fn from(fault: SettingsFault) -> Self {
        Self(Box::new(fault))
    }
}

rpc_core::readable_debug!(SettingsError, SettingsFault, Misplaced);

fn lines(mistakes: &[SettingsError]) -> String {
    mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

impl Diagnostic for SettingsError {
    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.misplaced().map(|misplaced| &misplaced.source as _)
    }

    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        let SettingsFault::Several { mistakes } = self.fault() else { return None };
        Some(Box::new(mistakes.iter().map(|mistake| mistake as &dyn Diagnostic)))
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let misplaced = self.misplaced()?;
        let label = LabeledSpan::underline(misplaced.place.clone());
        Some(Box::new(std::iter::once(label)))
    }
}

impl SettingsError {
    /// Returns the line of the file, from 1. `None` where no place of the file is at fault; the
    /// first of several.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.first().map(|misplaced| misplaced.line)
    }

    /// Returns the column, in characters from 1.
    #[must_use]
    pub fn column(&self) -> Option<usize> {
        self.first().map(|misplaced| misplaced.column)
    }

    /// Returns the key with its tables, as `targets.inventory.timeout`. `None` also where the text
    /// is not TOML.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.first().map(|misplaced| &*misplaced.key).filter(|key| !key.is_empty())
    }

    /// The fault behind the error.
    pub(super) fn fault(&self) -> &SettingsFault {
        &self.0
    }

    fn misplaced(&self) -> Option<&Misplaced> {
        match self.fault() {
            SettingsFault::File(misplaced) => Some(misplaced),
            _ => None,
        }
    }

    /// The place of the error, or of the first of several.
    fn first(&self) -> Option<&Misplaced> {
        match self.fault() {
            SettingsFault::Several { mistakes } => mistakes.first()?.misplaced(),
            _ => self.misplaced(),
        }
    }

    /// Joins one or more mistakes in the order of their places. Duplicates are dropped, because a
    /// mistake in the defaults is one of every target.
    pub(super) fn joined(mut mistakes: Vec<Self>) -> Self {
        let place = |error: &Self| match error.misplaced() {
            Some(misplaced) => (0, misplaced.place.start),
            None => (1, 0),
        };
        mistakes.sort_by_key(place);
        let mut texts = BTreeSet::new();
        mistakes.retain(|error| texts.insert(error.to_string()));
        match mistakes.len() {
            1 => mistakes.remove(0),
            _ => SettingsFault::Several { mistakes }.into(),
        }
    }

    pub(super) fn unreadable(path: &Path, reason: std::io::Error) -> Self {
        SettingsFault::Unreadable { path: path.to_owned(), reason }.into()
    }
}
