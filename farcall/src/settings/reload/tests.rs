//! The report of a reload for every key.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::changes::{HeldBack, LogFilter, SettingChange, TakesEffect, changes};
use crate::Settings;
use crate::settings::loaded::Loaded;
use crate::settings::property_tests::{VALUES, assignments};
use crate::settings::tests::{assert_is_file, uncommented};

fn read(text: &str) -> Option<Loaded> {
    Loaded::read("farcall.toml", text, std::iter::empty()).ok()
}

/// Returns the changes for a program that applies the filter of its log.
fn changed(old: &Loaded, new: &Loaded) -> Vec<SettingChange> {
    changes(old, new, &HeldBack { log_filter: LogFilter::Hooked, ..HeldBack::default() })
}

const ADDRESSES: &str =
    "targets.inventory.address = \"tcp://h:1\"\nservers.orders.address = \"tcp://h:1\"\n";

/// Values beside those of any kind, so that each key has one that is not its default.
const MORE: &[&str] = &[
    "\"required\"",
    "\"optional\"",
    "\"address\"",
    "\"auto\"",
    "\"round_robin\"",
    "[\"ABORTED\"]",
    "[\"mlx5_1\"]",
    "[\"https://app.example\"]",
    "[\"10.0.0.0/24\"]",
    "\"unix:///a\"",
    "\"0600\"",
    "\"any.example\"",
    "\"5s\"",
];

/// Every key of the reference, with its tables.
fn keys() -> Vec<String> {
    let (mut table, mut keys) = (String::new(), Vec::new());
    for line in Settings::reference().lines() {
        if let Some(name) = line.strip_prefix('[') {
            table = name.trim_end_matches(']').to_owned();
        } else if let Some((key, _)) = line.strip_prefix("# ").and_then(|it| it.split_once(" = ")) {
            keys.push(format!("{table}.{key}"));
        }
    }
    // There are fewer without TLS.
    assert!(keys.len() > 80, "{keys:?}");
    keys
}

/// The reference with another value of a key than its default.
fn with_another(key: &str, old: &Loaded) -> Loaded {
    let (table, name) = key.rsplit_once('.').unwrap();
    let reference = uncommented(&Settings::reference());
    let mut here = "";
    let line = reference.lines().position(|line| {
        here = line.strip_prefix('[').map_or(here, |table| table.trim_end_matches(']'));
        here == table && line.starts_with(&format!("{name} = "))
    });
    let line = line.unwrap_or_else(|| panic!("{key} is in the reference"));
    let mut others = VALUES.iter().chain(MORE).filter_map(|value| {
        let set = format!("{name} = {value}");
        let lines = reference.lines().enumerate();
        let lines = lines.map(|(at, text)| if at == line { set.as_str() } else { text });
        read(&lines.collect::<Vec<_>>().join("\n"))
    });
    let other = others.find(|new| !changed(old, new).is_empty());
    other.unwrap_or_else(|| panic!("no other value is known for {key}"))
}

/// `tests/messages/reload.txt` has it for people to read.
#[test]
fn every_key_is_applied_at_once_or_at_the_next_start() {
    let old = read(&uncommented(&Settings::reference())).unwrap();
    let [mut now, mut at_start] = ["# Now\n\n", "\n# At the next start\n\n"].map(str::to_owned);
    for key in keys() {
        if cfg!(not(feature = "grpc")) && key.ends_with(".grpc_web_origins") {
            // Such a build refuses any origin.
            writeln!(at_start, "{key}").unwrap();
            continue;
        }
        let changes = changed(&old, &with_another(&key, &old));
        let [change] = &changes[..] else { panic!("{key}: {changes:?}") };
        assert_eq!(change.key, key);
        assert!(change.line.is_some() && change.old.is_some() && change.new.is_some());
        let name = key.rsplit('.').next().unwrap();
        let table = key.strip_suffix(name).unwrap();
        let reference = Settings::reference();
        let section = reference.split(&format!("[{}]", table.trim_end_matches('.'))).nth(1);
        let line = section.unwrap().lines().find(|line| line.starts_with(&format!("# {name} = ")));
        let is_marked = line.unwrap().ends_with("# live");
        let (page, is_live) = match change.effect {
            TakesEffect::Now => (&mut now, true),
            TakesEffect::NextStart => (&mut at_start, false),
        };
        assert_eq!(is_marked, is_live, "{key} is marked as what it is");
        writeln!(page, "{key}").unwrap();
    }
    assert_is_file("tests/messages/reload.txt", &(now + &at_start));
}

#[test]
fn a_target_that_comes_takes_effect_and_one_that_goes_stays() {
    let old = read("[targets.old]\naddress = \"tcp://h:1\"\nlimits.max_calls = 3").unwrap();
    let new = read("[targets.new]\naddress = \"tcp://h:2\"\nlimits.max_calls = 3").unwrap();
    let said: Vec<_> = changed(&old, &new).iter().map(ToString::to_string).collect();
    let at_start = "; that takes effect at the next start";
    assert_eq!(
        said,
        [
            "targets.new.address (line 2): was not set, is now \"tcp://h:2\"".to_owned(),
            "targets.new.limits.max_calls (line 3): was not set, is now 3".to_owned(),
            format!("targets.old.address: was \"tcp://h:1\", is now not set{at_start}"),
            format!("targets.old.limits.max_calls: was 3, is now not set{at_start}"),
        ]
    );
}

#[test]
fn what_is_held_back_takes_effect_at_the_next_start() {
    let text = |address: &str, ca: &str| {
        let target = format!("targets.\"a.b\" = {{ address = \"{address}\" }}\n");
        read(&format!("{target}[defaults.target]\ntls.ca = \"{ca}\"\ntimeout = \"1s\"")).unwrap()
    };
    let (old, new) = (text("tcp://h:1", "a.pem"), text("tcp://h:2", "b.pem"));
    let now = changed(&old, &new);
    assert!(now.iter().all(|change| change.effect == TakesEffect::Now), "{now:?}");
    let mut held = HeldBack::default();
    held.targets.insert("a.b".to_owned(), ["tls", "address"].into());
    let held = changes(&old, &new, &held);
    let keys: Vec<_> = held.iter().map(|change| (change.key.as_str(), change.effect)).collect();
    let next = TakesEffect::NextStart;
    assert_eq!(keys, [("targets.\"a.b\".address", next), ("defaults.target.tls.ca", next)]);
}

#[test]
fn values_of_the_environment_are_told_without_a_line() {
    let read = |timeout: &str| {
        let variable = ("FARCALL__TARGETS__INVENTORY__TIMEOUT".to_owned(), timeout.to_owned());
        Loaded::read("farcall.toml", ADDRESSES, std::iter::once(variable)).unwrap()
    };
    let changes = changed(&read("1s"), &read("2s"));
    let said: Vec<_> = changes.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["targets.inventory.timeout: was 1s, is now 2s"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_is_read_twice_has_not_changed(file in assignments(6)) {
        let lines = file.iter().map(|(key, value)| format!("{key} = {value}\n"));
        let text = ADDRESSES.to_owned() + &lines.collect::<String>();
        if let (Some(old), Some(new)) = (read(&text), read(&text)) {
            prop_assert_eq!(changed(&old, &new), []);
        }
    }
}

/// Dropped channels leave the settings when another one is added.
#[tokio::test]
async fn channels_and_servers_that_are_dropped_are_forgotten() {
    let file = std::env::temp_dir().join(format!("farcall-forgotten-{}", std::process::id()));
    let text = "targets.a.address = \"inproc://forgotten\"\n\
                servers.a.address = \"inproc://forgotten\"\n";
    std::fs::write(&file, text).unwrap();
    let settings = Settings::load(&file).unwrap();
    let reloader = settings.watch().unwrap();
    let bind = || {
        let (address, server) = settings.server("a").unwrap();
        server.bind(address)
    };
    let (first, builder) = (settings.channel("a").unwrap(), settings.channel_builder("a").unwrap());
    let clone = first.clone();
    let second = builder.clone().connect_lazy();
    let listener = bind().await.unwrap();
    assert_eq!(settings.shared.known(), (2, 1));
    drop((first, builder));
    reloader.reload().unwrap();
    assert_eq!(settings.shared.known(), (2, 1), "clones of them live");
    drop((clone, listener));
    reloader.reload().unwrap();
    assert_eq!(settings.shared.known(), (1, 0));
    drop(second);
    let _third = settings.channel("a").unwrap();
    let _other = bind().await.unwrap();
    assert_eq!(settings.shared.known(), (1, 1));
    std::fs::remove_file(file).unwrap();
}
