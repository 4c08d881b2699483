//! Dispatch, tested: one suite for both implementations, then what only a server can show.

mod cancelling;
mod fencing;
mod for_now;
mod interleavings;
mod leases;
mod newer;
mod nodes;
mod owners;
mod plain;
mod queues;
mod reaping;
mod refusals;
mod scripts;
mod server_only;
mod stage;
mod strays;
mod telling;
mod tls;
mod users;
mod waiting;
mod words;

/// Each test in memory and by Redis.
macro_rules! suite {
    ($($file:ident: $($name:ident)*;)*) => {
        mod memory {
            $(mod $file {
                $(#[tokio::test]
                async fn $name() {
                    crate::$file::$name(&fairtrial_cluster::MemoryDispatch::new()).await;
                })*
            })*
        }
        mod redis {
            $(mod $file {
                $(#[tokio::test]
                async fn $name() {
                    if let Some(stage) = crate::stage::RedisStage::start() {
                        crate::$file::$name(&stage).await;
                    }
                })*
            })*
        }
    };
}

suite! {
    queues:
        a_queue_has_one_living_owner
        an_unnamed_queue_is_deleted_when_closed_and_a_named_one_kept
        a_queue_outlives_its_owner_for_a_while_only
        the_same_key_is_the_same_task
        a_full_queue_takes_no_more_until_results_are_kept
        many_are_submitted_at_once_each_with_its_answer
        results_stay_until_they_are_kept
        all_that_a_queue_holds_is_told
        what_a_flushed_server_forgot_is_missing_and_can_be_submitted_again
        an_envelope_too_large_is_refused
        numbers_tell_where_tasks_are;
    leases:
        tasks_come_out_in_order_and_as_they_went_in
        a_lost_reply_is_given_again
        a_class_has_its_own_stream
        what_waits_is_seen_and_not_taken
        at_most_so_many_are_leased_at_a_time
        a_paused_queue_gives_nothing
        a_task_that_waited_too_long_is_recorded_so
        the_wait_begins_anew_after_a_run_but_not_after_a_refusal
        one_that_waits_too_long_ends_when_it_is_asked_for
        a_commit_carries_the_next_lease
        a_commit_carries_a_lease_of_another_class
        a_commit_carries_what_a_lease_would_give
        a_commit_carries_nothing_that_waited_too_long;
    fencing:
        a_slot_that_lost_its_lease_can_do_nothing_more
        a_delivery_number_of_old_proves_nothing
        a_commit_told_twice_counts_once
        a_renewed_lease_is_not_reaped;
    reaping:
        a_dead_agents_task_goes_to_another
        a_task_that_kills_its_agents_ends_as_lost
        an_engine_that_fails_counts_and_its_error_is_told
        given_back_uncounted_it_comes_first_with_the_same_number
        two_reapers_at_once_handle_each_entry_once
        more_than_a_page_is_reaped
        an_entry_deleted_while_leased_is_added_anew
        an_entry_deleted_while_leased_is_its_slots_until_it_is_reaped
        a_task_whose_entry_was_deleted_can_be_given_back
        an_entry_deleted_while_queued_is_missing_and_submitted_again;
    refusals:
        another_agent_gets_what_one_refused
        what_all_live_agents_refused_is_recorded_with_every_reason
        a_newer_protocol_ends_as_invalid
        an_agent_started_again_is_asked_again;
    cancelling:
        a_queued_task_is_removed
        a_running_one_is_told_and_its_word_stands
        one_whose_agent_dies_after_the_flag_is_recorded_as_cancelled
        one_cancelled_in_its_last_run_is_not_lost
        one_that_is_submitted_again_is_not_to_be_cancelled
        a_result_that_came_first_stands
        a_cancelled_queue_stops_and_records_what_was_queued;
    telling:
        events_are_told_in_order_and_read_from_any_id
        one_complete_for_each_submit_on_every_path
        the_fold_of_all_events_equals_check
        a_reader_whose_place_is_gone_is_told_of_a_gap
        events_of_an_agent_stand_between_those_of_dispatch;
    waiting:
        a_reader_waits_for_the_next_event
        a_submission_wakes_those_who_listen
        whoever_found_nothing_is_woken
        an_agent_is_told_what_was_cancelled;
    nodes:
        a_live_name_is_refused
        a_silent_node_is_lost_and_forgotten_once;
}
