//! Detects changed files by their metadata.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::SystemTime;

/// A file's metadata, links followed. A file that replaces another one has another inode, even if
/// all else is equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp {
    modified: Option<SystemTime>,
    len: u64,
    device: u64,
    inode: u64,
}

impl From<Metadata> for Stamp {
    fn from(metadata: Metadata) -> Self {
        let (device, inode) = (metadata.dev(), metadata.ino());
        Self { modified: metadata.modified().ok(), len: metadata.len(), device, inode }
    }
}

/// The stamps of files; `None` for one that cannot be looked at.
pub(super) type Stamps = BTreeMap<PathBuf, Option<Stamp>>;

/// Looks at files.
pub(super) fn look(paths: impl IntoIterator<Item = PathBuf>) -> Stamps {
    let stamp = |path: &PathBuf| std::fs::metadata(path).ok().map(Stamp::from);
    paths.into_iter().map(|path| (stamp(&path), path)).map(|(stamp, path)| (path, stamp)).collect()
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Same,
    /// The files are not what they were, and perhaps still being written.
    Changing,
    /// They are not what they were, and have been the same for two looks.
    Changed,
}

/// Files that are looked at again and again.
#[derive(Debug)]
pub(super) struct Watched {
    /// Stamps of the last reading.
    read: Stamps,
    /// At the last look.
    last: Stamps,
}

impl Watched {
    pub(super) fn new(stamps: Stamps) -> Self {
        Self { last: stamps.clone(), read: stamps }
    }

    /// A file that is written in place is empty, or half of itself, for a moment, and may be right
    /// all the same: it is read once it has stayed the same from one look to the next.
    pub(super) fn handle_look(&mut self, now: Stamps) -> Found {
        let is_settled = now == self.last;
        self.last = now;
        match self.last == self.read {
            true => Found::Same,
            false if is_settled => Found::Changed,
            false => Found::Changing,
        }
    }

    /// Records that the files are about to be read. They are not read again before they change,
    /// whether they could be used or not.
    pub(super) fn handle_reading(&mut self, now: Stamps) {
        *self = Self::new(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(len: u64) -> Stamps {
        let stamp = Stamp { modified: None, len, device: 1, inode: 1 };
        Stamps::from([(PathBuf::from("farcall.toml"), Some(stamp))])
    }

    #[test]
    fn a_file_is_read_once_it_stays_the_same() {
        let mut watched = Watched::new(of(1));
        let mut look = |len| watched.handle_look(of(len));
        assert_eq!([1, 0, 3, 3].map(&mut look), {
            [Found::Same, Found::Changing, Found::Changing, Found::Changed]
        });
        watched.handle_reading(of(3));
        assert_eq!(watched.handle_look(of(3)), Found::Same);
        let gone = Stamps::from([(PathBuf::from("farcall.toml"), None)]);
        assert_eq!(watched.handle_look(gone.clone()), Found::Changing);
        assert_eq!(watched.handle_look(of(3)), Found::Same, "it is back");
        watched.handle_look(gone.clone());
        assert_eq!(watched.handle_look(gone), Found::Changed);
    }
}
