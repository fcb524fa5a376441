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
mod transcript;

use transcript::{Log, Transcript};

/// One test, because the log is the process's, and a line belongs to what was just caused.
#[tokio::test]
async fn what_users_are_told_is_what_the_files_have() {
    let log = Log::start();
    let mut transcript = Transcript::default();
    connecting::tell(&mut transcript).await;
    transcript.assert_is_file("connecting.txt");

    let mut transcript = Transcript::default();
    calling::tell(&mut transcript).await;
    transcript.assert_is_file("calling.txt");

    let mut transcript = Transcript::default();
    serving::tell(&mut transcript).await;
    transcript.assert_is_file("serving.txt");

    let mut transcript = Transcript::default();
    logging::tell(&mut transcript, &log).await;
    transcript.assert_is_file("log.txt");

    #[cfg(feature = "tls")]
    {
        let mut transcript = Transcript::default();
        tls::tell(&mut transcript, &log).await;
        transcript.assert_is_file("tls.txt");
    }
}
