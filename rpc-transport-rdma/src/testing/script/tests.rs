//! Random scripts, and how far they come.

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn nothing_is_lost_and_nothing_is_free_too_soon(
        script in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        connection(&script);
    }
}

#[test]
fn scripts_come_far() {
    let mut total = Seen::default();
    for script in random_scripts(1_000, 600) {
        let seen = play(&script);
        total.frames_sent += seen.frames_sent;
        total.frames_received += seen.frames_received;
        total.offers_sent += seen.offers_sent;
        total.offers_released += seen.offers_released;
        total.keys_revoked += seen.keys_revoked;
        total.frames_fetched += seen.frames_fetched;
        total.frames_withheld += seen.frames_withheld;
        total.stalls += seen.stalls;
        total.timeouts += seen.timeouts;
        total.violations += seen.violations;
        total.ends_in_order += seen.ends_in_order;
    }
    println!("{total:?}");
    let Seen { frames_sent, frames_received, offers_sent, offers_released, .. } = total;
    assert!(frames_sent > 0 && frames_received > 0 && offers_sent > 0 && offers_released > 0);
    let Seen { keys_revoked, frames_fetched, frames_withheld, .. } = total;
    assert!(keys_revoked > 0 && frames_fetched > 0 && frames_withheld > 0);
    let Seen { stalls, timeouts, violations, ends_in_order, .. } = total;
    assert!(stalls > 0 && timeouts > 0 && violations > 0 && ends_in_order > 0);
}

/// Two keys are being killed when the first invalidation fails and the second is done.
#[test]
fn an_invalidation_gives_back_what_its_own_key_opens() {
    connection(&[
        133, 0, 0, 0, 0, 5, 0, 0, 20, 5, 0, 0, 29, 0, 0, 20, 91, 0, 0, 0, 0, 3, 0, 0, 72, 111, 32,
        1, 0, 0, 0, 7, 0, 0, 0, 0, 51, 0, 0, 0, 0, 77, 0, 0, 0, 0, 51, 0, 0, 0, 0, 51, 0, 0, 0, 0,
        76, 128, 63, 0, 0, 108, 11, 0, 0, 32, 68, 0, 180, 24, 0, 0, 3, 198, 0, 71,
    ]);
}
