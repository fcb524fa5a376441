//! Scripts that play a connection's state without verbs: any bytes are one.
//!
//! The state is the real one. Around it a `World` plays the device, the peer, the
//! handler and the application: completions good and bad, messages of a peer that keeps the rules
//! and of one that does not, frames and cancels, memory that comes late or not at all, deadlines,
//! and the end at any point. What must hold is asserted with every step:
//!
//! - no message goes out without credit, and no more is granted than slots stand behind;
//! - memory comes back exactly once, and never while the peer may read it or a READ fills it;
//! - READs keep to their limits and to their share of the device's bytes;
//! - a deadline that was handled is not due again at once;
//! - at the end every slot, permit, payload, sink and byte of a share is back.

pub(crate) mod buffers;
mod device;
pub(crate) mod input;
mod peer;
#[cfg(test)]
mod tests;
mod world;

use input::Input;
pub use input::Seen;
use world::World;

/// The most steps of a script, so that a fuzzer does not find the longest ones alone.
const STEPS_MAX: usize = 400;

/// Plays a script.
///
/// # Panics
///
/// Panics if a property does not hold.
pub fn connection(bytes: &[u8]) {
    let _ = play(bytes);
}

/// Plays a script, and says how far it came.
///
/// # Panics
///
/// Panics as [`connection`] does.
#[must_use]
pub fn play(bytes: &[u8]) -> Seen {
    let mut input = Input(bytes);
    let mut world = World::new(input.byte());
    for _ in 0..STEPS_MAX {
        if input.0.is_empty() {
            break;
        }
        world.step(&mut input);
    }
    world.end()
}

/// Scripts to begin with: random ones of each kind of connection.
#[must_use]
pub fn connection_seeds() -> Vec<Vec<u8>> {
    random_scripts(16, 240)
}

/// Scripts of so many bytes, of every kind of connection in turn.
fn random_scripts(count: usize, len: usize) -> Vec<Vec<u8>> {
    // A multiplier with a full period: what the bytes are does not matter, only that they differ.
    let mut state = 7_u32;
    let random = |kind: usize| {
        let bytes = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        });
        // The kind is in the low bits.
        std::iter::once(kind.to_le_bytes()[0]).chain(bytes.take(len)).collect()
    };
    (0..count).map(random).collect()
}
