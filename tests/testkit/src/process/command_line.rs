//! A command as text.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::process::Command;

/// The command as one would type it, for messages only: quoting is for the eye.
#[must_use]
pub fn command_line(command: &Command) -> String {
    let mut line = String::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            // Writing to a string cannot fail.
            let _ = write!(line, "{}={} ", name.to_string_lossy(), quoted(value));
        }
    }
    line.push_str(&quoted(command.get_program()));
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&quoted(argument));
    }
    line
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{word}'")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_blanks_are_quoted_and_variables_come_first() {
        let mut command = Command::new("sh");
        command.args(["-c", "exit 1", ""]).env("A", "b c");
        assert_eq!(command_line(&command), "A='b c' sh -c 'exit 1' ''");
    }
}
