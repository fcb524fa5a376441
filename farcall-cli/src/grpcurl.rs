//! Command lines as grpcurl has them: long flags with one dash, and the target before the verb.

use std::ffi::{OsStr, OsString};

use clap::{Arg, ArgAction, CommandFactory as _};

use crate::args::Cli;

/// The flag that marks grpcurl's order of words.
const ORDER_FLAG: &str = "--grpcurl-order";

/// Flags and shorts of all commands, each with whether it takes a value.
struct Flags {
    longs: Vec<(String, bool)>,
    shorts: Vec<(char, bool)>,
}

/// Rewrites a command line to clap's form: the command, then flags and positional arguments in
/// their order. What is neither grpcurl's nor farcall's is left for clap to name.
pub(crate) fn translate(mut line: Vec<OsString>) -> Vec<OsString> {
    if line.is_empty() {
        return line;
    }
    let rest = line.split_off(1);
    let command = Cli::command();
    let (mut arguments, positionals) = Flags::new(&command).normalize(rest);
    let Some(&first) = positionals.first() else {
        line.append(&mut arguments);
        return line;
    };
    let is_command = |name: &OsStr| {
        name == "help" || command.get_subcommands().any(|command| name == command.get_name())
    };
    if is_command(&arguments[first]) {
        let name = arguments.remove(first);
        line.push(name);
    } else if let Some(verb) = verb_behind_target(&arguments, &positionals) {
        let name = match verb {
            Some(index) => arguments.remove(index),
            None => "call".into(),
        };
        line.extend([name, ORDER_FLAG.into()]);
    }
    line.append(&mut arguments);
    line
}

/// Finds grpcurl's verb: `Some(Some(index))` of `list` or `describe`, `Some(None)` if the line is a
/// call, and `None` if the line is not grpcurl's.
fn verb_behind_target(arguments: &[OsString], positionals: &[usize]) -> Option<Option<usize>> {
    let text = |index: &usize| arguments[*index].to_str().unwrap_or_default();
    let target = positionals.first().map(text)?;
    let is_target = target.contains([':', '@', '/']);
    match positionals.get(1) {
        Some(index) if ["list", "describe"].contains(&text(index)) => Some(Some(*index)),
        Some(index) if is_target && text(index).contains(['/', '.']) => Some(None),
        _ => None,
    }
}

impl Flags {
    fn new(command: &clap::Command) -> Self {
        let mut flags = Self { longs: Vec::new(), shorts: Vec::new() };
        for command in std::iter::once(command).chain(command.get_subcommands()) {
            command.get_arguments().for_each(|argument| flags.add(argument));
        }
        flags
    }

    fn add(&mut self, argument: &Arg) {
        let has_value = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
        let aliases = argument.get_all_aliases().into_iter().flatten();
        let longs = argument.get_long().into_iter().chain(aliases);
        self.longs.extend(longs.map(|long| (long.to_owned(), has_value)));
        self.shorts.extend(argument.get_short().map(|short| (short, has_value)));
    }

    /// Gives long flags two dashes. Returns the arguments and the places of positional ones.
    fn normalize(&self, rest: Vec<OsString>) -> (Vec<OsString>, Vec<usize>) {
        let (mut arguments, mut positionals) = (Vec::new(), Vec::new());
        let mut rest = rest.into_iter();
        while let Some(argument) = rest.next() {
            let text = argument.to_str().unwrap_or_default();
            if text == "--" {
                let count = arguments.len() + 1;
                arguments.push(argument);
                arguments.extend(rest);
                positionals.extend(count..arguments.len());
                break;
            }
            let Some(flag) = text.strip_prefix('-').filter(|flag| !flag.is_empty()) else {
                positionals.push(arguments.len());
                arguments.push(argument);
                continue;
            };
            let has_value = match self.long(flag) {
                Some((name, value, takes_value)) => {
                    arguments.extend(written(name, value, takes_value));
                    takes_value && value.is_none()
                }
                None => {
                    let takes_value = self.short_needs_value(flag);
                    arguments.push(argument);
                    takes_value
                }
            };
            if has_value {
                arguments.extend(rest.next());
            }
        }
        (arguments, positionals)
    }

    /// Returns the name and the value of a known long flag without its first dash, and whether it
    /// takes a value.
    fn long<'a>(&self, flag: &'a str) -> Option<(&'a str, Option<&'a str>, bool)> {
        let flag = flag.strip_prefix('-').unwrap_or(flag);
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (flag, None),
        };
        let &(_, takes_value) = self.longs.iter().find(|(long, _)| long == name)?;
        Some((name, value, takes_value))
    }

    /// Returns true if `flag`, without its dash, is one short flag whose value comes next.
    fn short_needs_value(&self, flag: &str) -> bool {
        let mut letters = flag.chars();
        let (Some(letter), None) = (letters.next(), letters.next()) else { return false };
        self.shorts.iter().any(|&(short, takes_value)| takes_value && short == letter)
    }
}

/// Returns a long flag as clap reads it. Go's switches may have `=true` and `=false`.
fn written(name: &str, value: Option<&str>, takes_value: bool) -> Option<OsString> {
    match (value, takes_value) {
        (Some("false"), false) => None,
        (Some(value), true) => Some(format!("--{name}={value}").into()),
        (Some(value), false) if value != "true" => Some(format!("--{name}={value}").into()),
        _ => Some(format!("--{name}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> String {
        let line = line.split(' ').map(OsString::from).collect();
        let line: Vec<_> = translate(line).into_iter().map(OsString::into_string).collect();
        line.into_iter().collect::<Result<Vec<_>, _>>().unwrap().join(" ")
    }

    #[test]
    fn grpcurl_order_becomes_ours() {
        for (line, expected) in [
            ("farcall ping auto://h:1", "farcall ping auto://h:1"),
            ("farcall -plaintext h:1 list", "farcall list --grpcurl-order --plaintext h:1"),
            ("farcall h:1 list p.S", "farcall list --grpcurl-order h:1 p.S"),
            ("farcall -d {} h:1 p.S/M", "farcall call --grpcurl-order -d {} h:1 p.S/M"),
            ("farcall h:1 p.S.M", "farcall call --grpcurl-order h:1 p.S.M"),
            (
                "farcall -max-time=5 -cacert a.pem -emit-defaults -d @ h:1 p.S/M",
                "farcall call --grpcurl-order --max-time=5 --cacert a.pem --emit-defaults -d @ h:1 \
                 p.S/M",
            ),
            (
                "farcall -import-path p -proto a.proto list",
                "farcall list --import-path p --proto a.proto",
            ),
            ("farcall -protoset x describe p.M", "farcall describe --protoset x p.M"),
            ("farcall -plaintext=true h:1 list", "farcall list --grpcurl-order --plaintext h:1"),
            ("farcall -plaintext=false h:1 list", "farcall list --grpcurl-order h:1"),
            ("farcall -H k:v -vv h:1 list", "farcall list --grpcurl-order -H k:v --vv h:1"),
            ("farcall -v list h:1", "farcall list -v h:1"),
        ] {
            assert_eq!(translated(line), expected);
        }
    }

    #[test]
    fn unknown_command_is_left_for_clap_to_name() {
        for line in ["farcall pign auto://h:1", "farcall --help", "farcall -x", "farcall h:1"] {
            assert_eq!(translated(line), line);
        }
        assert_eq!(translate(Vec::new()), Vec::<OsString>::new());
    }
}
