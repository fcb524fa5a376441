//! The client frames that the port reads before h2 does: settings and authorities.

use super::authority::AuthorityMender;
use super::header_list::{HeaderListLimit, SettingsReader};
use crate::frames::{CONTINUATION, Frames, HEADERS, SETTINGS, Unfinished};

/// A follower of one client's frames.
#[derive(Debug)]
pub(super) struct ClientFrames {
    frames: Frames,
    settings: SettingsReader,
    /// Present if the authority cannot be a host.
    authority: Option<AuthorityMender>,
}

impl ClientFrames {
    /// Creates a follower. `has_host` tells if the client's socket has a host address.
    pub(super) fn new(has_host: bool) -> Self {
        let authority = (!has_host).then(AuthorityMender::default);
        Self { frames: Frames::from_client(), settings: SettingsReader::default(), authority }
    }

    /// Follows the next bytes, and rewrites authorities in them.
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
