//! SIGHUP, in a program of its own: the signal is for the whole process.
#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

use std::process::Command;
use std::time::Duration;

use farcall::{Reload, Settings, SettingsError};
use tokio::sync::mpsc::unbounded_channel;

#[tokio::test]
async fn the_file_is_read_on_a_hangup_which_does_not_end_the_process() {
    let name = format!("farcall-hangup-{}.toml", std::process::id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, "[targets.t]\naddress = \"tcp://h:1\"\n").unwrap();
    let (sender, mut reports) = unbounded_channel();
    let report = move |reload: &Result<Reload, SettingsError>| {
        let _ = sender.send(reload.as_ref().cloned().map_err(ToString::to_string));
    };
    let settings = Settings::load(&file).unwrap();
    let reloader = settings.watch().unwrap().with_hangup().unwrap().with_report(report);
    // The files are looked at once, and then no more while the test runs.
    tokio::spawn(reloader.with_interval(Duration::from_secs(24 * 3600)).run());
    for timeout in ["1s", "2s", "3s"] {
        let text = format!("[targets.t]\naddress = \"tcp://h:1\"\ntimeout = \"{timeout}\"\n");
        std::fs::write(&file, text).unwrap();
        let hangup = format!("kill -HUP {}", std::process::id());
        assert!(Command::new("sh").args(["-c", &hangup]).status().unwrap().success());
        // The first look, which every run begins with, may have read the first change, and the
        // hangup nothing new then.
        loop {
            let reload = reports.recv().await.unwrap().unwrap();
            let Some(change) = reload.changes.first() else { continue };
            assert_eq!(change.new, Some(format!("\"{timeout}\"")));
            break;
        }
    }
    std::fs::remove_file(file).unwrap();
}
