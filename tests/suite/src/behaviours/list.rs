//! The list of behaviours.

use futures::future::BoxFuture;

use super::{
    blocking, cancel, concurrency, connections, context, deadline, echo, explain, handover,
    inherited, interceptors, interop_calls, interop_ends, layers, limits, liveness, max_calls,
    metadata, panic, replay, restart, shutdown, status, streams, unimplemented, unread,
};
use crate::{Failure, Harness};

/// Something that farcall does over every transport.
#[derive(Debug, Clone, Copy)]
pub struct Behaviour {
    /// Its name, a sentence.
    pub name: &'static str,
    /// Shows it on servers that the harness starts.
    pub run: fn(&Harness) -> BoxFuture<'_, Result<(), Failure>>,
}

macro_rules! list {
    ($($module:ident { $($name:ident)* })*) => {
        /// All behaviours.
        #[must_use]
        pub fn behaviours() -> Vec<Behaviour> {
            vec![$($(Behaviour {
                name: stringify!($name),
                run: |harness| Box::pin($module::$name(harness)),
            },)*)*]
        }
    };
}

list! {
    echo {
        a_payload_of_any_size_comes_back_unchanged
        a_payload_of_64_mib_comes_back_unchanged
        payloads_alias_the_memory_they_were_received_into
    }
    concurrency {
        each_of_256_mixed_calls_gets_its_own_answer
        calls_in_flight_are_answered_in_any_order
        small_calls_pass_while_large_ones_are_on_their_way
    }
    metadata {
        metadata_crosses_both_ways
        trailing_metadata_follows_a_success
    }
    status {
        a_status_arrives_with_message_details_and_metadata
        rich_error_details_survive
        every_code_survives
        a_message_that_does_not_decode_is_an_internal_error
    }
    unimplemented {
        unknown_methods_and_services_are_unimplemented
    }
    streams {
        many_small_messages_come_in_order
        small_and_large_messages_come_in_order
        a_request_stream_arrives_whole_and_in_order
        a_conversation_goes_message_by_message
        empty_streams_end_at_once
        a_stream_may_fail_after_its_messages
        metadata_precedes_a_stream
        a_request_stream_behind_long_metadata_arrives_whole
        dropping_a_response_stream_drops_the_servers
        a_stream_outlives_its_client
        a_deadline_ends_a_stream_on_both_sides
        a_reader_that_stops_holds_back_its_own_stream_only
        a_message_over_the_limit_ends_its_stream
        each_message_of_a_stream_is_held_to_the_limit
        a_limit_of_one_byte_takes_empty_messages
    }
    unread {
        an_unread_stream_is_produced_within_its_windows
    }
    interop_calls {
        interop_empty_unary
        interop_large_unary
        interop_client_streaming
        interop_server_streaming
        interop_ping_pong
        interop_empty_stream
        interop_custom_metadata
    }
    interop_ends {
        interop_status_code_and_message
        interop_special_status_message
        interop_unimplemented_method
        interop_unimplemented_service
        interop_cancel_after_begin
        interop_cancel_after_first_response
        interop_timeout_on_sleeping_server
    }
    deadline {
        a_deadline_ends_the_call_and_drops_its_handler
        a_deadline_in_the_past_never_reaches_a_handler
        a_handler_sees_what_is_left_of_the_deadline
        a_stub_may_have_a_timeout_of_its_own
    }
    explain {
        small_and_large_calls_are_explained
        failed_and_cancelled_calls_are_explained
        an_account_changes_nothing_that_handler_or_caller_sees
    }
    inherited {
        calls_of_a_handler_inherit_its_deadline
        a_call_of_a_handler_ends_with_the_handlers_own
    }
    context {
        work_elsewhere_learns_that_its_call_was_given_up
        a_handler_that_ends_by_itself_is_not_given_up
        a_handler_knows_its_connection
    }
    interceptors {
        interceptors_of_a_client_see_every_kind_of_call
        interceptors_of_a_server_see_every_kind_of_call
        an_interceptor_that_panics_ends_its_own_call_only
    }
    layers {
        layers_of_a_client_see_every_kind_of_call
        layers_of_a_server_see_every_kind_of_call
        layers_of_a_service_see_every_kind_of_call
        metadata_of_a_servers_layers_precedes_every_kind_of_response
        a_caller_whose_type_is_forgotten_makes_every_kind_of_call
        a_clients_timeout_layer_ends_a_call
        a_servers_timeout_layer_ends_calls_and_streams
        a_clients_limit_lets_calls_in_one_by_one
        a_servers_limit_lets_calls_in_one_by_one
        a_client_sheds_load
        a_server_sheds_load
    }
    cancel {
        dropping_a_call_drops_its_handler_and_harms_no_other
        large_requests_are_cancelled_at_any_moment
        large_responses_are_cancelled_at_any_moment
    }
    limits {
        large_messages_beyond_what_is_received_at_a_time_wait
        a_request_over_the_servers_limit_is_never_sent
        a_response_over_the_clients_limit_is_refused
        the_limits_of_a_stub_hold_for_its_calls_alone
        the_limits_of_a_service_hold_for_every_kind_of_call
        metadata_over_the_limit_is_refused_both_ways
        a_status_too_long_for_the_client_keeps_its_code
    }
    max_calls {
        calls_over_the_limit_wait_for_their_turn
        a_call_that_waits_for_its_turn_can_be_given_up
    }
    blocking {
        a_handler_that_blocks_holds_up_no_other_call
        calls_that_arrive_with_one_that_blocks_are_answered
        a_connection_is_kept_alive_while_a_handler_blocks
    }
    panic {
        a_panic_ends_its_own_call_only
    }
    shutdown {
        shutdown_finishes_what_is_in_flight
        shutdown_delivers_a_large_answer_whole
        shutdown_delivers_a_large_answer_despite_new_calls
    }
    handover {
        shutting_down_under_load_loses_no_call
        what_outlasts_the_drain_time_is_cancelled
        a_stream_in_progress_outlasts_the_shutdown
    }
    liveness {
        pings_keep_an_idle_connection_alive
        pings_keep_a_connection_alive_while_a_handler_is_slow
        an_idle_connection_ends_and_the_next_call_makes_another
        a_connection_with_a_call_in_flight_is_not_idle
        an_old_connection_is_replaced_without_an_error
        a_call_outlives_the_age_of_its_connection
        a_call_over_the_limit_of_the_server_is_shed
    }
    replay {
        idempotent_calls_are_replayed_when_their_connection_dies
    }
    restart {
        a_client_reconnects_to_a_server_that_came_back
        a_server_that_is_aborted_fails_the_calls_in_flight
    }
    connections {
        dropping_the_channel_closes_the_connection
        two_clients_are_served_at_once
        sixty_four_connections_are_served
    }
}
