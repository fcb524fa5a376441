//! Machines: a bare Debian as `debootstrap` leaves it, and copies of it with what the README asks
//! for and a fresh clone. A copy each user, so that one does not find what another has installed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use farcall_testkit::process::bounded::{self, command_line};

use super::network;
use super::options::{Suite, User};
use xtask::program;

/// 60 MB of packages at 100 KB/s, and as long again to set them up.
const BOOTSTRAP_LIMIT: Duration = Duration::from_secs(1200);
const PREPARE_LIMIT: Duration = Duration::from_secs(900);
const COPY_LIMIT: Duration = Duration::from_secs(600);
const QUERY_LIMIT: Duration = Duration::from_secs(60);

/// Packages that the README tells a new user to install, beside Rust.
const PREREQUISITES: [&str; 3] = ["gcc", "libc6-dev", "ca-certificates"];

/// Folder in which debootstrap keeps a script for each suite.
const SCRIPTS: &str = "/usr/share/debootstrap/scripts";

/// Enters a machine.
const ENTER: &str = include_str!("enter.sh");

/// The number of the first ordinary user of a Debian.
const FIRST_USER: u32 = 1000;

/// The files of this host that every machine gets.
#[derive(Debug)]
pub(super) struct Source {
    /// The repository that is cloned.
    pub(super) repository: PathBuf,
    /// Its commit.
    pub(super) commit: String,
    /// The toolchain, which machines see read-only.
    pub(super) toolchain: PathBuf,
}

/// A Debian of nothing but its essential packages and apt.
#[derive(Debug)]
pub(super) struct BareDebian {
    suite: Suite,
    /// The folder of the suite, which holds its machines and logs.
    folder: PathBuf,
}

impl BareDebian {
    /// Makes one anew in `folder`, since the suite may have moved on since the last run.
    ///
    /// # Errors
    ///
    /// Returns an error if debootstrap fails. Its output is in a log.
    pub(super) fn make(suite: Suite, mirror: Option<&str>, folder: &Path) -> Result<Self> {
        let bare = Self { suite, folder: folder.to_owned() };
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        remove(&bare.root())?;
        eprintln!("xtask: {suite}: creating a bare Debian in {}", folder.display());
        // In namespaces of its own, because debootstrap leaves mounts behind when it is killed.
        let mut command = program::command("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["debootstrap", "--variant=minbase", &suite.to_string()]);
        command.arg(bare.root()).arg(mirror.unwrap_or_default());
        if !Path::new(SCRIPTS).join(suite.to_string()).exists() {
            // All suites since Debian 3.1 are made alike.
            command.arg(Path::new(SCRIPTS).join("sid"));
        }
        logged(&mut command, &folder.join("debootstrap.log"), BOOTSTRAP_LIMIT)?;
        Ok(bare)
    }

    pub(super) fn suite(&self) -> Suite {
        self.suite
    }

    fn root(&self) -> PathBuf {
        self.folder.join("bare")
    }
}

/// A machine of one user.
#[derive(Debug)]
pub(super) struct Machine {
    folder: PathBuf,
    user: User,
    toolchain: PathBuf,
}

impl Machine {
    /// Copies `bare` and brings what the README asks for and a fresh clone.
    ///
    /// # Errors
    ///
    /// Returns an error if a package cannot be installed or the repository cannot be cloned.
    pub(super) fn make(bare: &BareDebian, user: User, source: &Source) -> Result<Self> {
        let folder = bare.folder.clone();
        let machine = Self { folder, user, toolchain: source.toolchain.clone() };
        let root = machine.root();
        remove(&root)?;
        let mut copy = Command::new("cp");
        copy.args(["--archive", "--reflink=auto"]).arg(bare.root()).arg(&root);
        bounded::run(&mut copy, COPY_LIMIT)?;
        network::repeat_in(&root)?;
        let mut prepare = machine.enter(User::Root, "/", &["sh", "-eux", "-c", &preparation(user)]);
        logged(&mut prepare, &machine.log("preparation"), PREPARE_LIMIT)?;
        machine.clone_from(source)?;
        Ok(machine)
    }

    fn clone_from(&self, source: &Source) -> Result<()> {
        let clone = self.root().join(&self.user.clone_folder()[1..]);
        let git = |arguments: &[&str]| {
            let mut command = Command::new("git");
            command.args(arguments);
            command
        };
        let mut fetch = git(&["clone", "--quiet", "--no-hardlinks", "--no-checkout"]);
        bounded::run(fetch.arg(&source.repository).arg(&clone), COPY_LIMIT)?;
        let mut checkout = git(&["checkout", "--quiet", "--detach", &source.commit]);
        bounded::run(checkout.current_dir(&clone), COPY_LIMIT)?;
        if self.user == User::Sudo {
            let owner = format!("{FIRST_USER}:{FIRST_USER}");
            let mut give = Command::new("chown");
            bounded::run(give.args(["--recursive", &owner]).arg(&clone), COPY_LIMIT)?;
        }
        Ok(())
    }

    /// The folder that holds it.
    pub(super) fn root(&self) -> PathBuf {
        self.folder.join(format!("machine-{}", self.user))
    }

    /// The file that takes the output of what is called `name`.
    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}-{}.log", self.user))
    }

    /// A command that runs `words` in the clone as the machine's user, as from a login.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        self.enter(self.user, &self.user.clone_folder(), arguments)
    }

    /// Every package that is installed, and those of them that were asked for by name.
    ///
    /// # Errors
    ///
    /// Returns an error if the machine cannot be asked.
    pub(super) fn packages(&self) -> Result<Packages> {
        let query = |arguments: &[&str]| {
            let printed =
                bounded::output(&mut self.enter(User::Root, "/", arguments), QUERY_LIMIT)?;
            Ok::<_, anyhow::Error>(printed.lines().map(str::to_owned).collect::<Vec<_>>())
        };
        let all = query(&["dpkg-query", "--show", "--showformat=${Package}\\n"])?.len();
        Ok(Packages { all, by_name: query(&["apt-mark", "showmanual"])? })
    }

    /// Removes its folder.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be removed.
    pub(super) fn remove(self) -> Result<()> {
        remove(&self.root())
    }

    fn enter(&self, user: User, folder: &str, arguments: &[&str]) -> Command {
        let mut command = program::command("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child"]);
        command.args(["sh", "-eu", "-c", ENTER, "enter"]);
        command.arg(self.root()).arg(&self.toolchain).arg(user.name());
        command.args(["env", "--ignore-environment", &format!("--chdir={folder}")]);
        command.args(user.environment()).args(network::variables()).args(arguments);
        command
    }
}

/// The packages installed on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Packages {
    /// Number of packages.
    pub(super) all: usize,
    /// Those that were asked for by name.
    pub(super) by_name: Vec<String>,
}

impl User {
    /// The user's name on the machine.
    fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Sudo => "newcomer",
        }
    }

    fn home(self) -> &'static str {
        match self {
            Self::Root => "/root",
            Self::Sudo => "/home/newcomer",
        }
    }

    fn clone_folder(self) -> String {
        format!("{}/farcall", self.home())
    }

    /// The environment of a login, with the toolchain on the path as rustup puts it there. Debian
    /// gives an ordinary user a path without the administrator's programs.
    fn environment(self) -> [String; 4] {
        let system = match self {
            Self::Root => "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            Self::Sudo => "/usr/local/bin:/usr/bin:/bin",
        };
        [
            format!("PATH=/opt/rust/bin:{system}"),
            format!("HOME={}", self.home()),
            format!("USER={}", self.name()),
            "LANG=C.UTF-8".to_owned(),
        ]
    }
}

/// The commands that make a bare Debian what the README asks for.
fn preparation(user: User) -> String {
    let (name, uid) = (user.name(), FIRST_USER);
    let packages = PREREQUISITES.join(" ");
    let install = "DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends";
    let script = format!("apt-get update\n{install} {packages}\n");
    match user {
        User::Root => script,
        User::Sudo => format!(
            "{script}{install} sudo\n\
             useradd --create-home --uid {uid} --user-group --shell /bin/bash {name}\n\
             echo '{name} ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/{name}\n"
        ),
    }
}

/// Runs `command` with its output in `log`, which an error names.
fn logged(command: &mut Command, log: &Path, limit: Duration) -> Result<()> {
    let output = File::create(log).with_context(|| format!("creating {}", log.display()))?;
    command.stdout(output.try_clone()?).stderr(output);
    let Err(error) = bounded::run(command, limit) else { return Ok(()) };
    eprintln!("xtask: this failed: {}", command_line(command));
    bail!("{error:#}; see {}", log.display())
}

/// Removes a machine's folder, and nothing of another file system, should one be mounted there.
fn remove(root: &Path) -> Result<()> {
    let mut command = Command::new("rm");
    command.args(["--recursive", "--force", "--one-file-system"]).arg(root);
    Ok(bounded::run(&mut command, COPY_LIMIT)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_names_what_the_machines_get() {
        let readme = include_str!("../../../../README.md");
        let command =
            format!("apt-get install --no-install-recommends {}", PREREQUISITES.join(" "));
        assert!(readme.contains(&command), "the README lacks `{command}`");
    }

    #[test]
    fn only_the_ordinary_user_needs_sudo() {
        assert!(!preparation(User::Root).contains("sudo"));
        assert!(preparation(User::Sudo).contains("NOPASSWD"));
    }
}
