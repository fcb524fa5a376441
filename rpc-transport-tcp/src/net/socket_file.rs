//! The file of a Unix socket. A listener takes it over if no other process has it, and removes its
//! own.
//!
//! A killed server leaves its file behind, and the operating system then refuses to bind the path.
//! Connecting identifies such a file: no process accepts. Names that begin with `@` are abstract:
//! they have no file, and disappear with their socket.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use socket2::SockAddr;
use tokio::net::{UnixListener, UnixSocket};

use super::socket_access::SocketAccess;

/// Maximum length of a socket's path in bytes: `sun_path` of unix(7) without its terminating zero.
/// The BSDs and macOS have four bytes less.
const PATH_LEN_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// Converts a name to the operating system's form: the path, or a zero byte and the abstract name.
///
/// # Errors
///
/// Returns an error if the name is empty, contains a zero byte or is too long, or if it is abstract
/// on a system other than Linux.
pub(crate) fn native(name: &str) -> io::Result<PathBuf> {
    let invalid = |message: String| io::Error::new(io::ErrorKind::InvalidInput, message);
    if name.is_empty() || name == "@" {
        return Err(invalid("the address of a Unix socket needs a path or a name".to_owned()));
    }
    if name.contains('\0') {
        return Err(invalid("the path of a Unix socket cannot contain a zero byte".to_owned()));
    }
    if name.len() > PATH_LEN_MAX {
        let len = name.len();
        let message =
            format!("the path has {len} bytes; a Unix socket's path has at most {PATH_LEN_MAX}");
        return Err(invalid(message));
    }
    match name.strip_prefix('@') {
        Some(_) if cfg!(not(target_os = "linux")) => Err(invalid(format!(
            "the abstract name {name} needs Linux: give the path of a socket, as unix:///run/app"
        ))),
        Some(name) => Ok(format!("\0{name}").into()),
        None => Ok(name.into()),
    }
}

/// Returns the path of a bound socket, or its abstract name after an `@`.
pub(crate) fn name_of(address: &SockAddr) -> Option<String> {
    let path = address.as_pathname().map(|path| path.to_string_lossy().into_owned());
    path.or_else(|| {
        let name = address.as_abstract_namespace()?;
        Some(format!("@{}", String::from_utf8_lossy(name)))
    })
}

/// A guard that removes a socket's own file on drop, unless another process has replaced it.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file.
    identity: (u64, u64),
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).ok() == Some(self.identity) {
            // Fails if the folder has become read-only. The next listener then finds a stale file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Maximum number of connections that wait to be accepted. The kernel lowers it to its own limit.
const BACKLOG: u32 = 4096;

/// Listens on a name. Replaces a socket file without a listener, and applies `access` before the
/// first client can connect.
///
/// # Errors
///
/// Returns [`io::ErrorKind::AddrInUse`] if a process listens there or the file is not a socket;
/// otherwise the operating system's error.
pub(crate) fn bind(
    name: &str,
    access: &SocketAccess,
) -> io::Result<(UnixListener, Option<SocketFile>)> {
    let path = native(name)?;
    if name.starts_with('@') {
        if !access.is_default() {
            let message = "an abstract name has no file: remove socket_mode and socket_owner";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        return Ok((UnixListener::bind(path)?, None));
    }
    let mut socket = UnixSocket::new_stream()?;
    match socket.bind(&path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            remove_stale(&path)?;
            // Another process may bind the path first. This bind then fails, as it should.
            socket = UnixSocket::new_stream()?;
            socket.bind(&path)?;
        }
        other => other?,
    }
    // From here on, the guard removes the file if a later step fails.
    let file = SocketFile::new(&path)?;
    // The kernel refuses clients until `listen`, so none connects with the old permissions.
    access.apply(&path)?;
    Ok((socket.listen(BACKLOG)?, Some(file)))
}

/// Removes the socket file `path` if no process listens on it.
///
/// Two servers may find the same stale file, and one may already have replaced it when the other
/// removes it. The file is therefore renamed first, and checked again under a name that only this
/// process uses.
fn remove_stale(path: &Path) -> io::Result<()> {
    let in_use = |message| Err(io::Error::new(io::ErrorKind::AddrInUse, message));
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return in_use("a file that is not a socket is in the way");
    }
    if !is_stale(path)? {
        return in_use("another process listens there");
    }
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}", std::process::id()));
    let aside = PathBuf::from(aside);
    match fs::rename(path, &aside) {
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    }
    if is_stale(&aside).unwrap_or(true) {
        return fs::remove_file(&aside);
    }
    // The renamed file turned out to be live. Renaming it back gives its server the path again.
    fs::rename(&aside, path)?;
    in_use("another process listens there")
}

fn is_stale(path: &Path) -> io::Result<bool> {
    match UnixStream::connect(path) {
        Ok(_) => Ok(false),
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Ok(true),
            // A listener whose queue is full.
            io::ErrorKind::WouldBlock => Ok(false),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("farcall-socket-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[tokio::test]
    async fn a_stale_file_is_replaced_and_a_live_one_is_not() {
        let folder = folder("stale");
        let path = folder.join("socket");
        let name = path.to_str().unwrap();
        // The standard library's listener leaves its file behind.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let (listener, file) = bind(name, &SocketAccess::default()).unwrap();
        let error = bind(name, &SocketAccess::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(error.to_string(), "another process listens there");
        drop((listener, file));
        assert!(!path.exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test]
    async fn a_file_that_is_not_a_socket_is_left_alone() {
        let folder = folder("plain");
        let path = folder.join("precious");
        fs::write(&path, "data").unwrap();
        let error = bind(path.to_str().unwrap(), &SocketAccess::default()).unwrap_err();
        assert_eq!(error.to_string(), "a file that is not a socket is in the way");
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
        fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test]
    async fn only_its_own_file_is_removed() {
        let folder = folder("own");
        let path = folder.join("socket");
        let bound = bind(path.to_str().unwrap(), &SocketAccess::default()).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(bound);
        assert!(path.exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test]
    async fn faults_in_a_name_are_reported() {
        let long = "x".repeat(108);
        for (name, message) in [("", "needs a path"), ("@", "needs a path"), (&long, "108 bytes")] {
            let error = bind(name, &SocketAccess::default()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(message), "{error}");
        }
        let error = bind("/nowhere/at/all", &SocketAccess::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn mode_and_owner_are_set_before_clients_connect() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = folder("access");
        let path = folder.join("socket");
        let own = fs::metadata(&folder).unwrap();
        for mode in [0o600, 0o666, 0o660] {
            let owner = Some(format!("{}:{}", own.uid(), own.gid()));
            let access = SocketAccess { mode: Some(mode), owner };
            let bound = bind(path.to_str().unwrap(), &access).unwrap();
            let metadata = fs::metadata(&path).unwrap();
            assert_eq!(metadata.permissions().mode() & 0o777, mode);
            assert_eq!((metadata.uid(), metadata.gid()), (own.uid(), own.gid()));
            UnixStream::connect(&path).unwrap();
            drop(bound);
        }
        let access = SocketAccess { owner: Some("no-such-user".into()), ..Default::default() };
        let error = bind(path.to_str().unwrap(), &access).unwrap_err();
        assert!(error.to_string().contains("has no user \"no-such-user\""), "{error}");
        assert!(!path.exists());
        #[cfg(target_os = "linux")]
        assert!(bind("@farcall-access", &access).unwrap_err().to_string().contains("no file"));
        fs::remove_dir_all(folder).unwrap();
    }
}
