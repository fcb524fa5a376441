//! Reading files of settings and keys, which a program reads again while it serves.
//!
//! A named pipe in the place of such a file would block its reader for ever, a device or a file of
//! `/proc` has no end, and a large file is none of these.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

/// Maximum length of a file of settings or keys in bytes.
const LEN_MAX: u64 = 1 << 20;

/// File systems of the kernel, whose files say that they are regular.
const KERNELS: [&str; 2] = ["/proc", "/sys"];

/// Reads a regular file of at most 1 MiB, links followed.
///
/// # Errors
///
/// Returns [`io::ErrorKind::InvalidInput`] with what the file is if it is anything else.
pub fn read_small_file(path: &Path) -> io::Result<Vec<u8>> {
    // Before it is opened: that would wait for the other end of a pipe.
    check(&std::fs::metadata(path)?)?;
    let file = File::open(path)?;
    check(&file.metadata()?)?;
    let mut bytes = Vec::new();
    // It may have grown meanwhile.
    file.take(LEN_MAX + 1).read_to_end(&mut bytes)?;
    check_len(bytes.len() as u64).map(|()| bytes)
}

fn check(metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    let is_kernels =
        |root: &str| std::fs::metadata(root).is_ok_and(|root| root.dev() == metadata.dev());
    let found = if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else if !kind.is_file() {
        "a device"
    } else if KERNELS.into_iter().any(is_kernels) {
        "a file of the kernel"
    } else {
        return check_len(metadata.len());
    };
    Err(invalid(format!("it is {found}: name a regular file")))
}

fn check_len(len: u64) -> io::Result<()> {
    match len <= LEN_MAX {
        true => Ok(()),
        false => Err(invalid(format!("the file has more than 1 MiB ({len} bytes)"))),
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(path: impl AsRef<Path>) -> String {
        let error = read_small_file(path.as_ref()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        error.to_string()
    }

    #[test]
    fn only_small_regular_files_are_read() {
        let folder = std::env::temp_dir().join(format!("farcall-small-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (file, link) = (folder.join("file"), folder.join("link"));
        std::fs::write(&file, vec![b'#'; 1 << 20]).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read_small_file(&link).unwrap().len(), 1 << 20);
        std::fs::write(&file, vec![b'#'; (1 << 20) + 1]).unwrap();
        assert_eq!(refusal(&file), "the file has more than 1 MiB (1048577 bytes)");
        assert_eq!(refusal(&folder), "it is a directory: name a regular file");
        assert_eq!(refusal("/dev/zero"), "it is a device: name a regular file");
        let socket = folder.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(refusal(&socket), "it is a socket: name a regular file");
        #[cfg(target_os = "linux")]
        for path in ["/proc/self/environ", "/proc/kmsg"] {
            assert_eq!(refusal(path), "it is a file of the kernel: name a regular file");
        }
        let pipe = folder.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        for path in [&pipe, &link] {
            assert_eq!(refusal(path), "it is a named pipe: name a regular file");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
