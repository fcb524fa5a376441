//! Names that are none, and the reference of all tables.

use std::fmt::Write;

use rpc_core::settings::{Description, Effect};

/// Says that a name is none of those that there are, and which one was probably meant.
pub(super) fn unknown<'a>(
    kind: &str,
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> String {
    let near = known.clone().map(|it| (strsim::damerau_levenshtein(name, it), it)).min();
    match near {
        Some((distance, near)) if distance <= 1 + name.len() / 4 => {
            format!("there is no {kind} `{name}`: did you mean `{near}`?")
        }
        Some(_) => {
            let known: Vec<_> = known.collect();
            format!("there is no {kind} `{name}` here, only {}", known.join(", "))
        }
        None => format!("there is no {kind} `{name}`, nor any other"),
    }
}

/// Writes each key with its documentation and its default, all commented out. `effect` holds for
/// all keys of the table.
pub(super) fn describe(path: &str, table: &Description, effect: Effect, out: &mut String) {
    if table.keys.is_empty() && table.groups.is_empty() {
        return;
    }
    if !path.is_empty() {
        out.push('\n');
        describe_docs(table.docs, out);
        let _ = writeln!(out, "[{path}]");
    }
    for key in &table.keys {
        out.push('\n');
        describe_docs(key.docs, out);
        let mark = match key.effect.within(effect) {
            Effect::Live => "  # live",
            Effect::Start | Effect::CodeOnly => "",
        };
        let _ = writeln!(out, "# {} = {}{mark}", key.name, key.shown.text);
    }
    for group in table.groups.iter().filter(|group| !group.heading.is_empty()) {
        let dot = if path.is_empty() { "" } else { "." };
        let path = format!("{path}{dot}{}", group.heading);
        describe(&path, &group.table, group.effect.within(effect), out);
    }
}

/// The first paragraph: what follows is for programmers.
fn describe_docs(docs: &[&str], out: &mut String) {
    for line in docs.iter().take_while(|line| !line.is_empty()) {
        let _ = writeln!(out, "#{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_the_one_that_was_meant() {
        let known = ["max_calls", "max_message_len"];
        let meant = |name| unknown("setting", name, known.into_iter());
        assert_eq!(meant("max_call"), "there is no setting `max_call`: did you mean `max_calls`?");
        assert!(meant("colour").ends_with("only max_calls, max_message_len"));
    }
}
