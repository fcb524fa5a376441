//! Settings that cannot be reloaded or watched.

use std::path::Path;
use std::process::Command;

use farcall::Settings;

use crate::file::{File, Reports, keys};
use crate::service::{Named, name, serve};

/// The error is that of loading the file, and nothing of it is applied, whatever else it says.
#[tokio::test]
async fn a_file_that_is_wrong_changes_nothing() {
    let (a, b) = (serve(Named::new("a")).await, serve(Named::new("b")).await);
    let text = |port: u16, rules: &str| {
        format!("[targets.t]\naddress = \"tcp://127.0.0.1:{port}\"\n{rules}")
    };
    let file = File::new("wrong", &text(a, ""));
    let settings = file.load();
    let mut reports = Reports::run(settings.watch().unwrap()).await;
    let channel = settings.channel("t").unwrap();
    assert_eq!(name(&channel).await.unwrap(), "a");
    for wrong in ["limits.max_calls = 0", "timeout = ", "methods.\"*\".hedging.max_attempts = 9"] {
        file.replace(&text(b, wrong));
        assert_eq!(reports.next().await.unwrap_err(), file.error());
        assert_eq!(name(&channel).await.unwrap(), "a", "{wrong}");
        assert_eq!(settings.channel("t").unwrap().endpoints().len(), 0, "it is not connected");
        assert_eq!(name(&settings.channel("t").unwrap()).await.unwrap(), "a", "{wrong}");
    }
    file.replace(&text(b, ""));
    assert_eq!(keys(&reports.next().await.unwrap()), ["targets.t.address"]);
    while name(&channel).await.unwrap() != "b" {}
}

#[tokio::test]
async fn later_reloads_work_after_what_is_no_regular_file() {
    let (a, b) = (serve(Named::new("a")).await, serve(Named::new("b")).await);
    let text = |port: u16| format!("[targets.t]\naddress = \"tcp://127.0.0.1:{port}\"\n");
    let file = File::new("special", &text(a));
    let settings = file.load();
    let mut reports = Reports::run(settings.watch().unwrap()).await;
    let channel = settings.channel("t").unwrap();
    let link =
        |target: &'static str| move |path: &Path| std::os::unix::fs::symlink(target, path).unwrap();
    let pipe = |path: &Path| {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    type Put<'a> = (&'a str, &'a dyn Fn(&Path));
    let puts: [Put<'_>; 5] = [
        ("a named pipe", &pipe),
        ("a directory", &|path| std::fs::create_dir(path).unwrap()),
        ("a device", &link("/dev/zero")),
        ("a file of the kernel", &link("/proc/self/environ")),
        ("more than 1 MiB", &|path| std::fs::write(path, "#".repeat((1 << 20) + 1)).unwrap()),
    ];
    for (found, put) in puts {
        file.put(put);
        let error = reports.next().await.unwrap_err();
        assert!(error.contains(found), "{error}");
        assert_eq!(name(&channel).await.unwrap(), "a", "{found}");
    }
    file.put(|path| std::fs::write(path, text(b)).unwrap());
    assert_eq!(keys(&reports.next().await.unwrap()), ["targets.t.address"]);
    while name(&channel).await.unwrap() != "b" {}
}

#[tokio::test]
async fn a_file_that_is_gone_changes_nothing() {
    let port = serve(Named::new("a")).await;
    let text = format!("[targets.t]\naddress = \"tcp://127.0.0.1:{port}\"");
    let file = File::new("gone", &text);
    let settings = file.load();
    let reloader = settings.watch().unwrap();
    let channel = settings.channel("t").unwrap();
    drop(file);
    let error = reloader.reload().unwrap_err().to_string();
    assert!(error.contains("farcall.toml: No such file"), "{error}");
    assert_eq!(name(&channel).await.unwrap(), "a");
}

#[tokio::test]
async fn settings_are_watched_once_and_before_they_are_used() {
    let file = File::new("watched", "[targets.t]\naddress = \"tcp://h:1\"");
    let refused = |settings: &Settings| {
        let error = settings.watch().unwrap_err().to_string();
        error.split_once(": ").unwrap().1.to_owned()
    };
    let text = Settings::parse("a text", "").unwrap();
    assert_eq!(refused(&text), "the settings are text, not a file");
    let used = file.load();
    drop(used.channel("t").unwrap());
    assert!(
        refused(&used).starts_with("an existing channel or server would not change"),
        "{used:?}"
    );
    let watched = file.load();
    let reloader = watched.watch().unwrap();
    assert_eq!(refused(&watched.clone()), "the file is already being watched");
    assert_eq!(reloader.reload().unwrap().changes, []);
}
