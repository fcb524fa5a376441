//! Recordings of earlier versions, played against today's client and server.
//!
//! `tests/suite/recorded` has a folder for each version, with the bytes of a few connections. The
//! client's bytes are sent to today's server, and the server's bytes to today's client. Each side
//! of today must say what was said then. With `FARCALL_WRITE_GOLDEN=1` the tests record today's two
//! sides instead, into the folder of today's version. `talk` is the service, `conversation` the
//! calls, `tape` the recordings' format, and `meaning` says which differences count.

mod conversation;
mod headers;
mod meaning;
mod record;
mod replay;
mod talk;
mod tape;

#[allow(missing_docs, unreachable_pub, reason = "generated")]
mod proto {
    farcall::include_proto!("talk");
}

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conversation::Conversation;
use tape::Unit;

/// Bound on one conversation.
const LIMIT: Duration = Duration::from_secs(60);

/// Makes the folder for recordings of today's version, named by its major and its minor number.
fn todays_folder() -> PathBuf {
    let version = env!("CARGO_PKG_VERSION").rsplit_once('.').map_or("", |(minor, _)| minor);
    let folder = root().join(version);
    fs::create_dir_all(&folder).expect("the suite's folder takes recordings");
    folder
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("recorded")
}

fn is_recording() -> bool {
    std::env::var_os("FARCALL_WRITE_GOLDEN").is_some()
}

/// Returns the folder of each version.
fn versions() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(root()).expect("there are recordings");
    entries.map(|entry| entry.expect("a folder").path()).filter(|path| path.is_dir())
}

/// Returns the recordings of a conversation, with the folder of each.
fn recordings(conversation: Conversation) -> Vec<(PathBuf, Vec<Unit>)> {
    let recordings: Vec<_> = versions()
        // A conversation that came with a later version has no recording by an earlier one.
        .filter_map(|folder| {
            let text = fs::read_to_string(file(&folder, conversation)).ok()?;
            Some((folder, tape::parse(&text)))
        })
        .collect();
    assert!(!recordings.is_empty(), "{conversation:?} was never recorded");
    recordings
}

fn file(folder: &Path, conversation: Conversation) -> PathBuf {
    folder.join(conversation.name()).with_extension("txt")
}

async fn bounded<T>(conversation: Conversation, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(LIMIT, work).await;
    done.unwrap_or_else(|_| panic!("{conversation:?} does not end"))
}

#[tokio::test]
async fn todays_server_understands_recorded_clients() {
    for conversation in Conversation::ALL {
        if is_recording() {
            record::record(conversation).await;
            continue;
        }
        for (folder, units) in recordings(conversation) {
            println!("{}: {conversation:?}", folder.display());
            let port = conversation.serve().await;
            bounded(conversation, replay::play_client(port, &units)).await;
        }
    }
}

#[tokio::test]
async fn todays_client_understands_recorded_servers() {
    if is_recording() {
        return;
    }
    for conversation in Conversation::ALL {
        for (folder, units) in recordings(conversation) {
            println!("{}: {conversation:?}", folder.display());
            let (port, server) = replay::play_server(units).await;
            bounded(conversation, conversation.hold(port)).await;
            bounded(conversation, server).await.expect("today's client says what was said then");
        }
    }
}
