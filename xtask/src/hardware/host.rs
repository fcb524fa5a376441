//! The two hosts: one runs the rows, the other is reached by ssh.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use farcall_testkit::process::ProcessError;
use farcall_testkit::process::bounded::Running;

/// A look at a file, or the start of a program.
pub(super) const SHORT: Duration = Duration::from_secs(60);

/// Copying the programs to the other host.
const COPY_LIMIT: Duration = Duration::from_secs(300);

/// The folder in which a host's own is made.
const SHARED_FOLDER: &str = "/tmp";

/// Time after which a host reverts a change by itself: longer than the load of a row.
const REVERT_SECONDS: u64 = 400;

/// The programs that the rows run on both hosts.
pub(super) const PROGRAMS: [&str; 2] = ["farcall", "farcall-bench"];

/// Functions for every script: the network device that leads to an address or has it, and the RDMA
/// device on a network device.
const PRELUDE: &str = r#"
netdev_to() { ip -o route get "$1" | sed -n 's/.* dev \([^ ]*\).*/\1/p'; }
netdev_of() { ip -o address show to "$1" | awk 'NR == 1 { print $2 }'; }
device_on() {
    local file name
    for file in /sys/class/infiniband/*/ports/*/gid_attrs/ndevs/*; do
        # An entry without a GID cannot be read. There are up to 1,024, so no process is started.
        { read -r name <"$file"; } 2>/dev/null && [ "$name" = "$1" ] || continue
        file=${file#/sys/class/infiniband/}
        echo "${file%%/*}"
        return
    done
}
"#;

/// One of the hosts.
#[derive(Debug)]
pub(super) struct Host {
    /// The command that runs a script on it; empty on this host.
    reach: Vec<String>,
    /// Address on the RDMA network.
    pub(super) address: String,
    /// A folder for logs.
    folder: String,
    /// The folder with the programs.
    programs: PathBuf,
}

impl Host {
    /// This host, with the address from which it reaches `peer`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no route to `peer`.
    pub(super) fn here(peer: &str, programs: &Path) -> Result<Self> {
        let mut host = Self::new(Vec::new(), String::new(), programs)?;
        let script = format!("ip -o route get {peer} | sed -n 's/.* src \\([^ ]*\\).*/\\1/p'");
        host.address = host.run(&script, SHORT)?.trim().to_owned();
        ensure!(!host.address.is_empty(), "this host has no route to {peer}");
        Ok(host)
    }

    /// The host `name`, which `ssh` reaches.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be reached, or has no bash.
    pub(super) fn there(ssh: &str, name: &str, address: &str, programs: &Path) -> Result<Self> {
        let reach = ssh.split_whitespace().chain([name]).map(str::to_owned).collect();
        Self::new(reach, address.to_owned(), programs)
    }

    fn new(reach: Vec<String>, address: String, programs: &Path) -> Result<Self> {
        let programs = programs.to_owned();
        let mut host = Self { reach, address, folder: SHARED_FOLDER.into(), programs };
        let folder = host.run("mktemp -d /tmp/farcall-hardware.XXXXXX", SHORT)?;
        host.folder = folder.trim().to_owned();
        Ok(host)
    }

    /// Copies the programs to it, and uses those from now on.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read here or written there.
    pub(super) fn copy_programs(&mut self) -> Result<()> {
        for program in PROGRAMS {
            self.copy(&self.programs.join(program), program)?;
        }
        self.programs = PathBuf::from(&self.folder);
        Ok(())
    }

    /// Copies a program to its folder, and returns the path of it there.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read here or written there.
    pub(super) fn copy(&self, file: &Path, name: &str) -> Result<PathBuf> {
        let target = format!("{}/{name}", self.folder);
        let receive = format!("cat >{target} && chmod +x {target}");
        // Commands start without standard input; bash opens the file for ssh.
        let mut command = Command::new("bash");
        command.args(["-c", r#"exec "${@:2}" <"$1""#, "copy"]).arg(file);
        command.args(&self.reach).arg(receive);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::start(&mut command)?
            .output(COPY_LIMIT)
            .with_context(|| format!("copying {}", file.display()))?;
        Ok(target.into())
    }

    /// Runs a bash script there and returns what it prints. `$dir` is a folder for logs, `$bin` the
    /// folder of the programs.
    ///
    /// # Errors
    ///
    /// Returns an error with the script's standard error if it fails or takes longer than `limit`.
    pub(super) fn run(&self, script: &str, limit: Duration) -> Result<String> {
        let (folder, programs) = (&self.folder, quoted(&self.programs.display().to_string()));
        let script = format!("dir={folder}\nbin={programs}\n{PRELUDE}\n{script}");
        let mut command = match &self.reach[..] {
            [] => {
                let mut command = Command::new("bash");
                command.arg("-c");
                command
            }
            [program, arguments @ ..] => {
                let mut command = Command::new(program);
                command.args(arguments);
                command
            }
        };
        command.arg(script).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = match Running::start(&mut command)?.output(limit) {
            // Without the script, which may be long.
            Err(ProcessError::Failed { status, errors, .. }) => {
                bail!("{}: {status}: {errors}", self.name())
            }
            output => output.with_context(|| self.name())?,
        };
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    fn name(&self) -> String {
        match self.reach.last() {
            None => "on this host".into(),
            Some(name) => format!("on {name}"),
        }
    }

    /// Starts a server of the benchmark at an address of this host, and returns the address that
    /// clients call. It ends with [`stop`](Self::stop), and after 10 minutes.
    ///
    /// # Errors
    ///
    /// Returns an error with the server's log if it does not listen within 20 seconds.
    pub(super) fn serve(&self, address: &str, options: &str) -> Result<String> {
        let address = match address.contains(':') {
            true => format!("[{address}]"),
            false => address.to_owned(),
        };
        let script = format!(
            r#"
            rm -f "$dir/server.log"
            "$bin/farcall-bench" server auto://{address}:0 {options} \
                >"$dir/server.log" 2>&1 </dev/null &
            echo $! >"$dir/server.pid"
            for _ in {{1..200}}; do
                grep -m 1 '^listening on' "$dir/server.log" && exit
                sleep 0.1
            done
            cat "$dir/server.log" >&2
            exit 1"#
        );
        let printed = self.run(&script, SHORT)?;
        match printed.trim().strip_prefix("listening on ") {
            Some(address) => Ok(address.to_owned()),
            None => bail!("the server printed `{}`", printed.trim()),
        }
    }

    /// Returns the next line with the state of a server that was started with `--state`.
    ///
    /// # Errors
    ///
    /// Returns an error if the server prints none within 10 seconds.
    pub(super) fn state(&self) -> Result<String> {
        let script = r#"
            count() { grep -c '^state: ' "$dir/server.log"; }
            before=$(count)
            for _ in {1..100}; do
                [ "$(count)" -gt "$before" ] && break
                sleep 0.1
            done
            [ "$(count)" -gt "$before" ] || { cat "$dir/server.log" >&2; exit 1; }
            grep '^state: ' "$dir/server.log" | tail -n 1"#;
        Ok(self.run(script, SHORT)?.trim().to_owned())
    }

    /// Ends the server.
    ///
    /// # Errors
    ///
    /// Returns an error if the host cannot be reached.
    pub(super) fn stop(&self) -> Result<()> {
        let script = r#"kill -9 "$(cat "$dir/server.pid")" 2>/dev/null
            rm -f "$dir/server.pid""#;
        self.run(script, SHORT).map(drop)
    }

    /// Changes the host's network with `apply`. The host itself reverts it after a while, in case
    /// nothing here can any more; [`undo`](Self::undo) does so before.
    ///
    /// # Errors
    ///
    /// Returns an error if the change fails.
    pub(super) fn change(&self, apply: &str, revert: &str) -> Result<()> {
        let (apply, revert) = (quoted(apply), quoted(revert));
        let script = format!(
            r#"bash -ec {apply} || exit
            echo {revert} >"$dir/revert"
            nohup bash -c "sleep {REVERT_SECONDS}; $(cat "$dir/revert")" \
                >/dev/null 2>&1 </dev/null &
            echo $! >"$dir/revert.pid""#
        );
        self.run(&script, SHORT).map(drop)
    }

    /// Reverts the last [`change`](Self::change), if there was one.
    ///
    /// # Errors
    ///
    /// Returns an error if the host cannot be reached, or the change cannot be reverted.
    pub(super) fn undo(&self) -> Result<()> {
        let script = r#"[ -e "$dir/revert" ] || exit 0
            kill "$(cat "$dir/revert.pid")" 2>/dev/null
            bash -c "$(cat "$dir/revert")" && rm "$dir/revert""#;
        self.run(script, SHORT).map(drop)
    }

    /// Returns the memory that the server has pinned for devices, in KiB.
    ///
    /// # Errors
    ///
    /// Returns an error if the server is gone.
    pub(super) fn pinned_kib(&self) -> Result<f64> {
        let script = r#"sed -n 's/^VmPin:[[:space:]]*\([0-9]*\) kB/\1/p' \
            "/proc/$(cat "$dir/server.pid")/status""#;
        let printed = self.run(script, SHORT)?;
        printed.trim().parse().with_context(|| format!("VmPin is `{}`", printed.trim()))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Without a folder of its own there is no server, and no file of ours that names one.
        if self.folder == SHARED_FOLDER {
            return;
        }
        // The host may be gone, and what is left is a folder of /tmp.
        drop(self.stop());
        drop(self.undo());
        drop(self.run(r#"rm -rf "$dir""#, SHORT));
    }
}

/// Returns `text` as one word of a shell.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
