//! The mode and owner of a socket file, which decide who may connect.
//!
//! Names are resolved in `/etc/passwd` and `/etc/group`. For users of a directory service, give the
//! number.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

/// The access to a Unix socket: the mode and owner of its file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SocketAccess {
    /// The permissions, such as `0o660`. Defaults to those that the umask leaves.
    pub mode: Option<u32>,
    /// The user, the group or both, by name or number: `"app"`, `":www-data"` or `"app:www-data"`.
    /// Defaults to those of the process.
    pub owner: Option<String>,
}

impl SocketAccess {
    /// Returns true if nothing is set.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Sets the mode and owner of the file at `path`.
    ///
    /// # Errors
    ///
    /// Returns an error that names the setting if the user or group does not exist, or if the
    /// operating system refuses the change.
    pub(crate) fn apply(&self, path: &Path) -> io::Result<()> {
        if let Some(owner) = &self.owner {
            let refused = |error: io::Error| {
                let message = format!(
                    "socket_owner {owner:?}: {error} (a process needs CAP_CHOWN, or to be in the \
                     group)"
                );
                io::Error::new(error.kind(), message)
            };
            let (user, group) = ids(owner)?;
            chown(path, user, group).map_err(refused)?;
        }
        // The owner goes first: `chown` clears bits of the mode.
        if let Some(mode) = self.mode {
            let refused =
                |error: io::Error| io::Error::new(error.kind(), format!("socket_mode: {error}"));
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(refused)?;
        }
        Ok(())
    }
}

/// Returns the IDs of the user and the group that `owner` names.
fn ids(owner: &str) -> io::Result<(Option<u32>, Option<u32>)> {
    let (user, group) = owner.split_once(':').unwrap_or((owner, ""));
    if user.is_empty() && group.is_empty() {
        let message = "socket_owner names no user and no group: write \"app:www-data\"";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok((id(user, "user", "/etc/passwd")?, id(group, "group", "/etc/group")?))
}

fn id(name: &str, kind: &str, table: &str) -> io::Result<Option<u32>> {
    if name.is_empty() {
        return Ok(None);
    }
    if let Ok(id) = name.parse() {
        return Ok(Some(id));
    }
    let entries = fs::read_to_string(table).unwrap_or_default();
    let found = entries.lines().find_map(|line| {
        let mut parts = line.split(':');
        (parts.next() == Some(name)).then(|| parts.nth(1)?.parse().ok())?
    });
    found.map(Some).ok_or_else(|| {
        let message = format!("socket_owner: {table} has no {kind} {name:?}: give its number");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_names_or_numbers() {
        assert_eq!(ids("7:8").unwrap(), (Some(7), Some(8)));
        assert_eq!(ids(":8").unwrap(), (None, Some(8)));
        assert_eq!(ids("root").unwrap(), (Some(0), None));
        for (owner, message) in [
            ("", "names no user and no group"),
            (":", "names no user and no group"),
            ("no-such-user", "/etc/passwd has no user \"no-such-user\": give its number"),
            ("0:no such", "/etc/group has no group \"no such\""),
        ] {
            let error = ids(owner).unwrap_err();
            assert!(error.to_string().contains(message), "{error}");
        }
    }
}
