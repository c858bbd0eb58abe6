//! Every promise of the store's traits as a test that any implementation has to pass.
//!
//! A test is an async function that takes a fresh, empty store whose limits are [`INBOX_ROWS`] and
//! [`TOPIC_LOG_ROWS`]. [`conformance_tests`] makes a `#[tokio::test]` of each for one
//! implementation; a new implementation is done when its list is green.

pub(crate) mod accounts;
pub(crate) mod campaigns;
pub(crate) mod cells;
pub(crate) mod claims;
pub(crate) mod credentials;
pub(crate) mod definitions;
pub(crate) mod devices;
pub(crate) mod endpoints;
pub(crate) mod inbox;
pub(crate) mod notifications;
pub(crate) mod push;
pub(crate) mod pushing;
pub(crate) mod revocations;
pub(crate) mod sessions;
pub(crate) mod shares;
pub(crate) mod tokens;
pub(crate) mod topics;
pub(crate) mod upkeep;
pub(crate) mod usage;
pub(crate) mod walks;
pub(crate) mod world;

pub(crate) use world::{INBOX_ROWS, TOPIC_LOG_ROWS};

/// Runs every test of the suite on stores made by `$fresh`, an expression that gives a guard (kept
/// until the test ends) and the store.
macro_rules! conformance_tests {
    ($fresh:expr) => {
        $crate::conformance::conformance_tests! { @each $fresh;
            accounts: apps_and_keys_are_kept, names_and_hashes_are_unique, an_app_goes_with_everything_it_owns,
                what_comes_late_for_a_deleted_app_goes_too,
                concurrent_first_calls_agree_on_a_secret;
            claims: who_confirmed_before_is_not_pushed_to, who_confirms_after_the_claim_is_pushed_to,
                a_batch_that_nobody_needs_is_gone, a_walk_to_come_hears_of_confirmations,
                a_stranger_spares_nobody_a_push, what_was_replaced_is_not_pushed, always_asks_nobody,
                a_race_has_one_winner;
            walks: what_names_no_devices_is_walked, a_walk_goes_on_behind_what_was_enqueued,
                a_walk_whose_batches_nobody_takes_holds_up_no_other, a_cancelled_walk_is_gone,
                cancelled_work_under_way_is_not_tried_again, audiences_come_in_pages;
            campaigns: a_campaign_is_kept_and_listed, an_idempotency_key_makes_one_campaign, states_follow_each_other, a_campaign_runs_to_its_end,
                an_empty_audience_is_done_at_once, a_paused_campaign_rests, an_aborted_campaign_sends_no_more,
                a_lapsed_batch_of_an_aborted_campaign_is_dropped, lines_are_uploaded_for_users,
                a_published_batch_counts_for_its_campaign, openings_count_for_their_campaign,
                what_was_sent_of_a_variant_counts_for_it, who_is_not_tried_again_counts_for_its_variant, who_waits_to_be_tried_again_keeps_its_variant,
                what_was_published_of_a_variant_counts_for_it, what_take_drops_ends_a_campaign_too,
                an_ended_campaign_is_deleted;
            tokens: a_token_goes_on_proof_alone, a_token_registered_meanwhile_is_kept,
                a_tokens_time_is_that_of_its_last_registration,
                a_doubted_token_is_set_aside_until_it_is_registered_again,
                invalidations_are_told_in_pages_and_kept_for_a_while;
            credentials: credentials_are_kept, there_is_one_for_each_use;
            push: users_and_devices_become_batches_by_service, many_recipients_are_packed,
                a_repeated_key_pushes_once, lanes_go_first_then_who_waits_longest, what_is_due_later_waits,
                busy_services_and_held_campaigns_are_passed_over, a_lease_lapses_unless_it_is_renewed,
                a_batch_that_ends_its_senders_is_set_aside, only_takes_of_senders_that_ended_count,
                what_was_taken_together_is_not_taken_together_for_ever,
                a_batch_ends_once_with_all_that_came_of_it, what_expired_is_not_pushed,
                what_is_cancelled_is_not_pushed, recipients_are_as_they_are_now,
                a_notification_lives_as_long_as_its_push, an_app_goes_with_its_push_work,
                a_walk_without_a_service_is_refused;
            devices: a_device_is_registered_and_read_back, an_update_changes_only_what_it_names,
                a_patch_sets_clears_and_leaves, another_user_finds_an_empty_inbox,
                a_device_over_its_limits_is_refused_alone, tokens_are_revoked_for_good,
                devices_are_listed_in_pages, subscriptions_are_added_and_removed,
                a_deleted_device_is_gone, what_does_not_exist_is_not_found;
            definitions: a_definition_is_made_changed_and_archived, what_ended_is_archived_a_page_at_a_time,
                an_app_has_a_bounded_number_of_live_definitions, archived_definitions_come_in_pages,
                definitions_go_with_their_app, a_first_call_reads_everything_at_once,
                a_first_call_shows_the_newest_that_have_not_expired;
            usage: what_an_app_holds_is_counted, what_is_unknown_is_told_once, what_devices_subscribe_to_is_counted_at_once,
                a_gate_keeps_inboxes_from_filling;
            endpoints: an_endpoint_is_kept_found_and_deleted, a_device_has_a_bounded_number_of_endpoints,
                an_endpoint_goes_with_its_user_device_and_app, what_waits_for_use_says_so;
            revocations: a_deleted_device_is_not_made_by_an_old_jwt, a_revoked_device_takes_newer_jwts_alone,
                a_user_is_revoked_on_all_devices, a_revocation_is_its_apps_alone, a_jwt_without_a_time_is_refused_once_revoked;
            inbox: stored_reaches_the_inbox_of_every_device_of_a_user, stored_to_devices_and_unknown_ones,
                live_only_keeps_nothing, a_ttl_ends, a_newer_one_collapses_the_older,
                a_full_inbox_evicts_the_oldest, an_ack_removes_once, an_inbox_lists_the_oldest_first, an_inbox_is_read_in_parts;
            notifications: ids_are_in_commit_order, answers_come_in_order, noted_ones_get_an_id_at_once,
                a_repeated_key_is_answered_again, another_body_conflicts, a_state_counts_outcomes,
                a_trace_tells_one_device, an_opening_counts_once, a_trace_context_is_kept, cancel_removes_what_is_left, conditions_choose_devices;
            sessions: a_log_in_reads_everything_at_once, refusals_stand_alone, a_token_makes_its_device,
                a_backlog_comes_in_pages, a_backlog_resumes, session_topics_start_at_the_present,
                too_many_topics_are_refused, answers_keep_the_order_of_the_batch,
                a_recheck_tells_what_is_newer, a_recheck_tells_what_changed, what_a_session_keeps_comes_back, what_a_session_keeps_ends_with_its_holder,
                what_a_session_had_sent_is_found_while_it_is_there;
            shares: a_share_has_its_members, a_share_is_left, a_member_that_was_given_up_returns, a_share_moves_forward_and_ends, a_share_that_all_left_begins_anew,
                shares_are_bounded_and_go_with_their_app;
            topics: offsets_count_every_message, durable_subscribers_catch_up, positions_never_go_back,
                everyone_is_a_topic_of_all, a_log_is_recovered, a_trimmed_log_is_not_complete,
                an_expired_message_is_not_complete, a_collapsed_log_is_complete, another_epoch_missed_everything,
                a_topic_nobody_used, retained_is_replaced_and_deleted, retained_ends_with_its_ttl,
                topics_are_listed, topics_that_got_something_are_told,
                retained_messages_are_found_by_range, logs_are_read_over_all_topics;
            upkeep: prune_expires_inboxes, prune_trims_logs, prune_is_bounded, prune_forgets_after_retention,
                tenants_are_isolated, a_check_writes_and_reads, places_follow_commits,
                a_task_is_led, a_closed_store_says_so;
        }
    };
    (@each $fresh:expr; $($module:ident: $($name:ident),+;)+) => {
        $(mod $module {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let (_guard, store) = $fresh;
                $crate::conformance::$module::$name(&store).await;
            })+
        })+
    };
}
pub(crate) use conformance_tests;

/// The same for stores that a front can run on.
macro_rules! cells_tests {
    ($fresh:expr) => {
        $crate::conformance::conformance_tests! { @each $fresh;
            cells: cells_are_enrolled_once, parts_are_read_of_one_app_or_of_the_others, a_users_devices_live_together,
                a_device_id_may_be_used_in_many_apps,
                a_device_of_another_user_goes_where_that_one_lives, a_user_moves_with_all_devices,
                a_device_that_was_sent_on_did_not_arrive, a_device_follows_its_user_further, a_deleted_app_keeps_nothing_for_cells,
                a_place_is_left_with_the_last_device, a_share_of_a_cell_moves,
                a_message_has_a_part_for_each_cell, a_message_keeps_its_trace, a_part_ends_once, a_key_is_taken_once,
                what_is_cancelled_is_not_handed_on, what_expired_waits_no_more, a_front_forgets_an_app,
                what_cells_were_told_is_kept;
        }
    };
}
pub(crate) use cells_tests;
