//! tonic's counterpart of each behaviour: the same, a different one, or none.
//!
//! The behaviour itself asserts a difference, and the book (`differences-from-tonic.md`) explains
//! it under the same name.

/// tonic's counterpart of a behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counterpart {
    /// The very same.
    Same,
    /// Something else, which the behaviour asserts; the name of the difference.
    Different(&'static str),
    /// Nothing that could be compared, and why.
    Absent(&'static str),
}

/// The behaviours that tonic shows as farcall does.
const SAME: &[&str] = &[
    "a_payload_of_any_size_comes_back_unchanged",
    "a_payload_of_64_mib_comes_back_unchanged",
    "payloads_alias_the_memory_they_were_received_into",
    "each_of_256_mixed_calls_gets_its_own_answer",
    "calls_in_flight_are_answered_in_any_order",
    "small_calls_pass_while_large_ones_are_on_their_way",
    "metadata_crosses_both_ways",
    "a_status_arrives_with_message_details_and_metadata",
    "rich_error_details_survive",
    "every_code_survives",
    "many_small_messages_come_in_order",
    "small_and_large_messages_come_in_order",
    "a_request_stream_arrives_whole_and_in_order",
    "a_conversation_goes_message_by_message",
    "empty_streams_end_at_once",
    "a_stream_may_fail_after_its_messages",
    "metadata_precedes_a_stream",
    "a_request_stream_behind_long_metadata_arrives_whole",
    "dropping_a_response_stream_drops_the_servers",
    "a_stream_outlives_its_client",
    "a_reader_that_stops_holds_back_its_own_stream_only",
    "dropping_a_call_drops_its_handler_and_harms_no_other",
    "interop_empty_unary",
    "interop_large_unary",
    "interop_client_streaming",
    "interop_server_streaming",
    "interop_ping_pong",
    "interop_empty_stream",
    "interop_status_code_and_message",
    "interop_special_status_message",
    "interop_unimplemented_method",
    "interop_unimplemented_service",
];

/// The behaviours that tonic shows in another way, and the name of the difference.
const DIFFERENT: &[(&str, &str)] = &[
    ("trailing_metadata_follows_a_success", "trailers-on-success"),
    ("interop_custom_metadata", "trailers-on-success"),
    ("a_deadline_ends_the_call_and_drops_its_handler", "deadline-status"),
    ("a_deadline_ends_a_stream_on_both_sides", "deadline-of-streams"),
    ("interop_timeout_on_sleeping_server", "deadline-of-streams"),
    ("interop_cancel_after_begin", "cancel-or-end"),
    ("interop_cancel_after_first_response", "cancel-of-conversations"),
];

const OUR_API: &str =
    "is about farcall's own interface (limits, layers, connections, shutdown, deadlines inherited)";
const TO_CHANCE: &str = "tonic leaves to chance what a panic does to its connection";

/// Returns true if the handlers of the behaviour `name` block their thread.
pub(crate) fn blocks(name: &str) -> bool {
    const BLOCKING: &[&str] = &[
        "a_handler_that_blocks_holds_up_no_other_call",
        "calls_that_arrive_with_one_that_blocks_are_answered",
        "a_connection_is_kept_alive_while_a_handler_blocks",
    ];
    BLOCKING.contains(&name)
}

/// Returns tonic's counterpart of the behaviour `name`. A name on no list is about farcall alone.
pub(crate) fn counterpart(name: &str) -> Counterpart {
    if SAME.contains(&name) {
        return Counterpart::Same;
    }
    if let Some((_, difference)) = DIFFERENT.iter().find(|(behaviour, _)| *behaviour == name) {
        return Counterpart::Different(difference);
    }
    let reason = if name.contains("panic") { TO_CHANCE } else { OUR_API };
    Counterpart::Absent(reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::behaviours;

    #[test]
    fn the_lists_name_behaviours_and_each_once() {
        let behaviours: Vec<&str> = behaviours().iter().map(|behaviour| behaviour.name).collect();
        let mut listed = SAME.to_vec();
        listed.extend(DIFFERENT.iter().map(|(name, _)| name));
        for name in &listed {
            assert!(behaviours.contains(name), "{name} is no behaviour");
            assert_eq!(listed.iter().filter(|other| *other == name).count(), 1, "{name}");
        }
    }

    #[test]
    fn every_difference_is_told_in_the_documentation() {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/book/src/differences-from-tonic.md");
        let text = std::fs::read_to_string(path).unwrap();
        for (behaviour, difference) in DIFFERENT {
            assert!(text.contains(&format!("## `{difference}`")), "{difference}");
            assert!(text.contains(&format!("`{behaviour}`")), "{behaviour}");
        }
    }
}
