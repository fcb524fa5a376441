//! The other machine: a server on it and its end of the link, told what to do through the folder
//! that both machines see, which no fault on the link concerns.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::link::Link;
use crate::RigError;
use crate::conductor::message::REPORT;
use crate::conductor::process::Process;
use crate::conductor::role::misunderstood;
use crate::conductor::wait::until;

/// The variable that names the folder.
const FOLDER_VARIABLE: &str = "FARCALL_VM_SHARE";

/// Maximum time of the other machine's answer. It may still be booting.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);

/// Time that the other machine waits for the next command.
const ASK_LIMIT: Duration = Duration::from_secs(600);

/// Beginning of the answer to a command that failed.
const FAILED: &str = "failed: ";

/// The last command to the other machine.
const QUIT: &str = "quit";

/// The folder, and how far the conversation has come.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    turn: u32,
}

impl Folder {
    fn find() -> Result<Self, RigError> {
        let path = std::env::var_os(FOLDER_VARIABLE)
            .ok_or_else(|| RigError::Missing(format!("{FOLDER_VARIABLE} in its environment")))?;
        Ok(Self { path: path.into(), turn: 0 })
    }

    fn file(&self, kind: &str) -> PathBuf {
        self.path.join(format!("{kind}-{}", self.turn))
    }

    /// Writes a file that is there only when it is whole.
    fn write(&self, kind: &str, text: &str) -> io::Result<()> {
        let (file, draft) = (self.file(kind), self.file(&format!("{kind}-draft")));
        fs::write(&draft, text)?;
        fs::rename(draft, file)
    }

    fn read(&self, kind: &str, limit: Duration) -> Result<String, RigError> {
        let file = self.file(kind);
        until("a word of the other machine", limit, || Ok(file.exists()))?;
        Ok(fs::read_to_string(&file)?)
    }
}

/// The conductor's view of the other machine. Dropped, it ends the conversation.
#[derive(Debug)]
pub(super) struct FarHost {
    folder: Folder,
}

impl FarHost {
    pub(super) fn find() -> Result<Self, RigError> {
        Ok(Self { folder: Folder::find()? })
    }

    /// Runs a command there and returns the answer.
    pub(super) fn ask(&mut self, text: &str) -> Result<String, RigError> {
        self.folder.turn += 1;
        self.folder.write("ask", text)?;
        let answer = self.folder.read("answer", ANSWER_LIMIT)?;
        match answer.strip_prefix(FAILED) {
            None => Ok(answer),
            Some(text) => {
                Err(RigError::Unexpected { role: "other machine", line: text.to_owned() })
            }
        }
    }
}

impl Drop for FarHost {
    fn drop(&mut self) {
        self.folder.turn += 1;
        // Unheard, the other machine ends by itself, later.
        let _ = self.folder.write("ask", QUIT);
    }
}

/// The other machine's role: does what it is asked until it is told to quit.
pub(super) fn obey(authority: &str, link: &Link) -> Result<(), RigError> {
    let mut folder = Folder::find()?;
    let mut obedient = Obedient { authority: authority.to_owned(), link, server: None };
    loop {
        folder.turn += 1;
        let command = folder.read("ask", ASK_LIMIT)?;
        if command == QUIT {
            return Ok(());
        }
        let answer = obedient.act(&command).unwrap_or_else(|error| format!("{FAILED}{error}"));
        folder.write("answer", &answer)?;
    }
}

struct Obedient<'a> {
    authority: String,
    link: &'a Link,
    server: Option<Process>,
}

impl Obedient<'_> {
    fn act(&mut self, text: &str) -> Result<String, RigError> {
        let no_server = RigError::Ended { role: "server" };
        match text {
            "start" => {
                let (process, authority) = Process::start("server", &["serve", &self.authority])?;
                (self.server, self.authority) = (Some(process), authority);
                return Ok(self.authority.clone());
            }
            REPORT => return Ok(self.server.as_mut().ok_or(no_server)?.ask(REPORT)?),
            "kill" => self.server.take().ok_or(no_server)?.kill()?,
            "end" => self.server.take().ok_or(no_server)?.end()?,
            "down" => self.link.down()?,
            "up" => self.link.up()?,
            other => return Err(misunderstood(other)),
        }
        Ok(String::new())
    }
}

/// Returns true on the first of the two machines.
pub(super) fn is_first() -> bool {
    std::env::var("FARCALL_VM_HOST").as_deref() == Ok("0")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn folder(path: &Path) -> Folder {
        Folder { path: path.to_owned(), turn: 0 }
    }

    #[test]
    fn messages_go_through_the_folder_in_their_turn() {
        let path = std::env::temp_dir().join(format!("farcall-far-host-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let mut far = FarHost { folder: folder(&path) };
        let other = path.clone();
        let obeying = std::thread::spawn(move || {
            let mut folder = folder(&other);
            let mut heard = Vec::new();
            for answer in ["one", "failed: two"] {
                folder.turn += 1;
                heard.push(folder.read("ask", ANSWER_LIMIT).unwrap());
                folder.write("answer", answer).unwrap();
            }
            folder.turn += 1;
            heard.push(folder.read("ask", ANSWER_LIMIT).unwrap());
            heard
        });
        assert_eq!(far.ask("first").unwrap(), "one");
        assert!(far.ask("second").unwrap_err().to_string().contains("two"));
        drop(far);
        assert_eq!(obeying.join().unwrap(), ["first", "second", QUIT]);
        fs::remove_dir_all(path).unwrap();
    }
}
