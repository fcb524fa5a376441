//! Arguments of `cargo xtask portability`: the trials to make.

use std::fmt;

use clap::ValueEnum;

use xtask::check::CheckStep;

/// Arguments of `cargo xtask portability`.
#[derive(Debug, clap::Args)]
pub(crate) struct PortabilityOptions {
    /// Try this suite of Debian only. May be repeated.
    #[arg(long, value_enum)]
    suite: Vec<Suite>,
    /// Try this command of the README only. May be repeated.
    #[arg(long, value_enum)]
    command: Vec<ReadmeCommand>,
    /// Try as this user only. May be repeated.
    #[arg(long, value_enum)]
    user: Vec<User>,
    /// Run this step of `cargo xtask test` only. May be repeated.
    #[arg(long, value_enum)]
    only: Vec<CheckStep>,
    /// Debian's archive or a mirror of it. The default is debootstrap's.
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,
    /// Leave each machine's folder, of about 10 GB, for a look into it.
    #[arg(long)]
    keep: bool,
}

/// A suite of Debian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// Debian 12.
    Bookworm,
    /// Debian 13.
    Trixie,
    /// Debian's unstable.
    Sid,
}

/// One of the two commands that the README begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReadmeCommand {
    /// `cargo xtask demo`.
    Demo,
    /// `cargo xtask test`.
    Test,
}

/// The user who runs the commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum User {
    /// The administrator, as in containers.
    Root,
    /// An ordinary user with a `sudo` that asks for no password.
    Sudo,
}

impl PortabilityOptions {
    pub(super) fn suites(&self) -> Vec<Suite> {
        chosen(&self.suite)
    }

    pub(super) fn users(&self) -> Vec<User> {
        chosen(&self.user)
    }

    /// The commands to try, in the README's order, each with its command line.
    pub(super) fn commands(&self) -> Vec<(ReadmeCommand, Vec<String>)> {
        let commands = chosen(&self.command).into_iter();
        commands.map(|command| (command, self.command_line(command))).collect()
    }

    pub(super) fn mirror(&self) -> Option<&str> {
        self.mirror.as_deref()
    }

    pub(super) fn keeps_machines(&self) -> bool {
        self.keep
    }

    /// The command line of `command`.
    fn command_line(&self, command: ReadmeCommand) -> Vec<String> {
        let mut text = vec!["cargo".to_owned(), "xtask".to_owned(), command.to_string()];
        if command == ReadmeCommand::Test {
            text.extend(self.only.iter().flat_map(|step| ["--only".to_owned(), step.to_string()]));
        }
        text
    }
}

/// Every value, unless some were chosen; in the order of their declaration either way.
fn chosen<T: ValueEnum + PartialEq>(wanted: &[T]) -> Vec<T> {
    let values = T::value_variants().iter();
    values.filter(|value| wanted.is_empty() || wanted.contains(value)).cloned().collect()
}

fn show(value: &impl ValueEnum, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let value = value.to_possible_value();
    f.pad(value.as_ref().map_or("", |value| value.get_name()))
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self, f)
    }
}

impl fmt::Display for ReadmeCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self, f)
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self, f)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: PortabilityOptions,
    }

    fn options(arguments: &[&str]) -> PortabilityOptions {
        Line::parse_from([&["xtask"], arguments].concat()).options
    }

    #[test]
    fn everything_is_tried_unless_something_is_chosen() {
        let all = options(&[]);
        assert_eq!(all.suites(), [Suite::Bookworm, Suite::Trixie, Suite::Sid]);
        assert_eq!(all.users(), [User::Root, User::Sudo]);
        assert_eq!(all.commands().len(), 2);
        let some = options(&["--suite", "sid", "--suite", "trixie", "--user", "sudo"]);
        assert_eq!(some.suites(), [Suite::Trixie, Suite::Sid]);
        assert_eq!(some.users(), [User::Sudo]);
    }

    #[test]
    fn steps_are_passed_on_to_test_and_not_to_demo() {
        let options = options(&["--only", "unit", "--only", "vm-verbs"]);
        assert_eq!(options.command_line(ReadmeCommand::Demo).join(" "), "cargo xtask demo");
        assert_eq!(
            options.command_line(ReadmeCommand::Test).join(" "),
            "cargo xtask test --only unit --only vm-verbs"
        );
    }
}
