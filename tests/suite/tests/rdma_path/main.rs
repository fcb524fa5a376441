//! Payloads go by verbs, and a path survives what happens to it: processes killed and calls dropped
//! in the middle of a READ, runtimes that end, lanes that are full or idle or besieged, proofs that
//! fail.
//!
//! Needs RDMA devices that count what Soft-RoCE counts, like those of the virtual machine that
//! `cargo xtask test` starts, and no other user of them. As in `tests/rdma.rs`, the variable
//! `FARCALL_RDMA=required` says that they are there and `FARCALL_RDMA_SERVER` is the address of the
//! server's. Tests run one after the other, because they look at the same counters. Some start
//! this binary once more, as a process that can be killed.

mod by_verbs;
mod child;
mod deaths;
mod device;
mod dropped;
mod fallback;
mod greed;
mod hostile;
mod hostile_peer;
mod idle;
mod incast;
mod killed;
mod lanes;
mod lent;
mod lock_limit;
mod proxy;
mod rig;
mod runtimes;
mod shared_queue;
mod small_pool;
#[path = "../lanes/mod.rs"]
mod spreading;
mod tls;
mod trials;

use std::process::ExitCode;

use trials::Test;

const TESTS: &[Test] = &[
    ("small_calls_go_by_send", by_verbs::small_calls_go_by_send),
    ("large_payloads_go_by_read", by_verbs::large_payloads_go_by_read),
    ("rdma_that_tls_has_agreed_on_has_its_identity", tls::upgraded),
    ("what_must_be_encrypted_does_not_go_by_verbs", tls::required),
    ("what_lies_in_lent_memory_is_sent_from_there", lent::sent_from_where_it_lies),
    ("a_stream_of_lent_memory_is_sent_from_there", lent::streamed_from_where_it_lies),
    ("small_calls_go_on_while_large_ones_wait_for_memory", small_pool::exhausted),
    ("what_has_no_memory_in_time_is_refused_by_name", small_pool::refused),
    ("eight_mib_of_lockable_memory_are_enough", lock_limit::eight_mib),
    ("too_little_lockable_memory_is_named", lock_limit::too_little),
    ("connections_share_one_receive_queue", shared_queue::connections_share_one_queue),
    ("connections_are_spread_over_two_lanes", lanes::two_lanes),
    ("eight_greedy_clients_share_alike_and_keep_no_client_out", greed::eight_greedy_clients),
    ("many_uploads_at_once_break_no_path", incast::many_uploads),
    ("idle_connections_make_no_wakeups", idle::no_wakeups),
    ("a_client_killed_while_its_upload_is_read", killed::client_uploading),
    ("a_client_killed_while_it_reads_a_download", killed::client_downloading),
    ("a_server_killed_while_its_download_is_read", killed::server_downloading),
    ("a_server_killed_while_it_reads_an_upload", killed::server_uploading),
    ("calls_dropped_while_their_payload_is_read", dropped::two_hundred_calls),
    ("a_channel_dropped_outside_a_runtime_is_closed", runtimes::channel_dropped_outside),
    ("a_channel_outlives_its_runtime", runtimes::runtime_gone_before_its_channel),
    ("a_server_is_gone_with_its_runtime", runtimes::server_gone_with_its_runtime),
    ("an_address_without_a_device_falls_back", fallback::address_without_device),
    ("a_process_that_falls_back_again_and_again_is_still_on_rdma", fallback::again_and_again),
    ("a_full_lane_gets_another", fallback::full_lane),
    ("a_path_to_no_queue_pair_falls_back", fallback::wrong_queue_pair),
    ("a_path_to_nowhere_falls_back", fallback::wrong_address),
    ("a_path_of_another_epoch_falls_back", fallback::wrong_epoch),
    ("a_client_that_offers_a_bad_key", hostile::bad_key),
    ("a_client_that_offers_more_than_its_memory", hostile::longer_than_its_memory),
    ("a_client_that_closes_its_memory_early", hostile::memory_closed_early),
    ("a_client_that_never_releases", hostile::never_releases),
    ("a_client_that_keeps_what_is_taken_back", hostile::keeps_what_is_taken_back),
    ("a_client_that_releases_twice", hostile::releases_twice),
    ("a_client_that_releases_nothing", hostile::releases_what_it_was_never_offered),
    ("a_client_that_takes_away_no_key", hostile::takes_away_what_is_no_key),
    ("a_client_that_sends_without_credit", hostile::sends_without_credit),
    ("a_client_that_sends_where_reads_belong", hostile::sends_where_reads_belong),
    ("a_client_that_floods_offers", hostile::floods_offers),
    ("a_client_that_offers_twice_at_once", hostile::offers_under_a_number_in_use),
    ("a_client_that_talks_nonsense", hostile::talks_nonsense),
    ("clients_that_go_in_the_middle_of_a_message", deaths::clients_in_mid_message),
];

fn main() -> ExitCode {
    if let Some(role) = child::role() {
        return child::run(&role);
    }
    if let Some(played) = lock_limit::play() {
        return played;
    }
    trials::run(TESTS, |rig| {
        let is_countable = rig.server_device.is_countable() && rig.client_device.is_countable();
        (!is_countable).then(|| format!("{rig:?} do not count what Soft-RoCE counts"))
    })
}
