//! Finding programs: on the path, or among the administrator's programs, which an ordinary user's
//! path lacks.

use std::path::PathBuf;
use std::process::Command;

/// Finds the program `name` on the search path.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// A command that runs the program `name`. One that is nowhere fails when it is started, by its
/// name.
pub fn command(name: &str) -> Command {
    find(name).map_or_else(|| Command::new(name), Command::new)
}
