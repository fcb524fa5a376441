//! The messages that users read: errors, statuses and log lines, each caused for real and held as a
//! golden file next to this one. `FARCALL_WRITE_GOLDEN=1` writes them anew.
//!
//! `settings.txt` is held by a unit test of the settings.
#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

#[cfg(feature = "tls")]
#[allow(dead_code, reason = "the test `tls` uses the rest")]
#[path = "../tls/authority.rs"]
mod authority;
mod calling;
mod connecting;
mod logging;
mod service;
mod serving;
#[cfg(feature = "tls")]
mod tls;
mod told;

use told::{Log, Told};

/// One test, because the log is the process's, and a line belongs to what was just caused.
#[tokio::test]
async fn what_users_are_told_is_what_the_files_have() {
    let log = Log::start();
    let mut told = Told::default();
    connecting::tell(&mut told).await;
    told.assert_is_file("connecting.txt");

    let mut told = Told::default();
    calling::tell(&mut told).await;
    told.assert_is_file("calling.txt");

    let mut told = Told::default();
    serving::tell(&mut told).await;
    told.assert_is_file("serving.txt");

    let mut told = Told::default();
    logging::tell(&mut told, &log).await;
    told.assert_is_file("log.txt");

    #[cfg(feature = "tls")]
    {
        let mut told = Told::default();
        tls::tell(&mut told, &log).await;
        told.assert_is_file("tls.txt");
    }
}
