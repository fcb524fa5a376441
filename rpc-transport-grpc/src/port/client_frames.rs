//! What the port reads in a client's frames before h2 does: its settings and its authority.

use super::authority::AuthorityMender;
use super::header_list::{HeaderListLimit, SettingsReader};
use crate::frames::{CONTINUATION, Frames, HEADERS, SETTINGS, Unfinished};

/// The frames of one client.
#[derive(Debug)]
pub(super) struct ClientFrames {
    frames: Frames,
    settings: SettingsReader,
    /// Present where no host can be the authority.
    authority: Option<AuthorityMender>,
}

impl ClientFrames {
    /// Frames of a client that comes over a socket with an address of a host, or without one.
    pub(super) fn new(has_host: bool) -> Self {
        let authority = (!has_host).then(AuthorityMender::default);
        Self { frames: Frames::from_client(), settings: SettingsReader::default(), authority }
    }

    /// Follows the next bytes.
    pub(super) fn follow(&mut self, bytes: &mut [u8], limit: &HeaderListLimit) {
        let Self { frames, settings, authority } = self;
        frames.follow(bytes, |part| match (part.kind, &mut *authority) {
            (SETTINGS, _) => settings.read(part.at, part.bytes, limit),
            (HEADERS | CONTINUATION, Some(authority)) => authority.mend(part),
            _ => {}
        });
    }

    pub(super) fn unfinished(&self) -> Unfinished {
        self.frames.unfinished()
    }
}
