//! Bounded reads below a root folder. The files of a container or of an odd driver may be of any
//! kind and length: nothing here blocks on one, or takes more than a bound of it.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Bytes that are read of one file.
const FILE_MAX: u64 = 16 << 10;

/// Entries that are read of one folder.
const FOLDER_MAX: usize = 1_024;

/// The files of a host: `/`, or a folder of a test.
#[derive(Debug, Clone)]
pub(crate) struct Root(PathBuf);

impl Root {
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// Returns the trimmed text of a file; `None` if it is no regular file or cannot be read.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let path = self.path(path);
        // A pipe would block the open, and a device may do anything.
        if !fs::metadata(&path).ok()?.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        fs::File::open(path).ok()?.take(FILE_MAX).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        Some(text.trim().to_owned())
    }

    /// Returns the first line of a file, without control characters, if it is not empty.
    pub(crate) fn line(&self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        let printed = |it: char| if it == '\t' { ' ' } else { it };
        let line = text.lines().next()?.chars().map(printed).filter(|it| !it.is_control());
        let line: String = line.take(128).collect();
        (!line.is_empty()).then_some(line)
    }

    /// Returns the number that a file begins with.
    pub(crate) fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.line(path)?.split_whitespace().next()?.parse().ok()
    }

    /// Returns the names in a folder that are names of devices, in order.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(path)) else { return Vec::new() };
        let names = entries.take(FOLDER_MAX).flatten().map(|entry| entry.file_name());
        let mut names: Vec<String> =
            names.filter_map(|name| name.into_string().ok()).filter(|it| is_name(it)).collect();
        names.sort_unstable();
        names
    }

    /// Returns the last part of a link's target.
    pub(crate) fn link_name(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        let name = target.file_name()?.to_str()?;
        is_name(name).then(|| name.to_owned())
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }
}

/// Returns true for names that the kernel gives to devices and interfaces.
fn is_name(name: &str) -> bool {
    let is_part = |it: char| it.is_ascii_alphanumeric() || "_-.:@".contains(it);
    !name.is_empty() && name.len() <= 64 && !name.starts_with('.') && name.chars().all(is_part)
}

/// Opens a file as a program that uses a device does, and closes it.
pub(crate) fn try_open(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;
    let kind = fs::metadata(path)?.file_type();
    if !(kind.is_file() || kind.is_char_device()) {
        return Err(std::io::Error::other("it is not a device"));
    }
    fs::OpenOptions::new().read(true).write(true).open(path).map(drop)
}
