//! The mode and the owner of a socket's file: they decide which processes may connect.
//!
//! Names are looked up in `/etc/passwd` and `/etc/group`. A user of a directory service has a
//! number.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

/// Who may connect to a Unix socket: the mode and the owner of its file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SocketAccess {
    /// The permissions, as `0o660`. What the umask leaves unless it is set.
    pub mode: Option<u32>,
    /// The user, the group or both, as `"app"`, `":www-data"` or `"app:www-data"`, by name or by
    /// number. Those of the process unless it is set.
    pub owner: Option<String>,
}

impl SocketAccess {
    /// Returns true if nothing is set.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Gives the file at `path` its mode and owner.
    ///
    /// # Errors
    ///
    /// Returns an error that names the setting if there is no such user or group, or if the
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
        // After the owner: to change that clears bits of the mode.
        if let Some(mode) = self.mode {
            let refused =
                |error: io::Error| io::Error::new(error.kind(), format!("socket_mode: {error}"));
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(refused)?;
        }
        Ok(())
    }
}

/// Returns the numbers of the user and of the group that `owner` names.
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
