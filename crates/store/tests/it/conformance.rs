//! The contract of the store's traits: a test for every promise, which any implementation has to pass.
//!
//! A test is an async function that takes a new, empty store with the limits [`INBOX_ROWS`], [`ITEM_ROWS`]
//! and [`TOPIC_LOG_ROWS`].
//! [`conformance_tests`] turns each into a `#[tokio::test]` for one implementation.

pub(crate) mod accounts;
pub(crate) mod activities;
pub(crate) mod broadcasts;
pub(crate) mod campaigns;
pub(crate) mod cells;
pub(crate) mod claims;
pub(crate) mod clean_up;
pub(crate) mod credentials;
pub(crate) mod definitions;
pub(crate) mod devices;
pub(crate) mod drafts;
pub(crate) mod endpoints;
pub(crate) mod expansions;
pub(crate) mod fixture;
pub(crate) mod inbox;
pub(crate) mod items;
pub(crate) mod listings;
pub(crate) mod lookups;
pub(crate) mod maintenance;
pub(crate) mod notifications;
pub(crate) mod people;
pub(crate) mod preferences;
pub(crate) mod push;
pub(crate) mod push_fixture;
pub(crate) mod push_tokens;
pub(crate) mod removals;
pub(crate) mod revocations;
pub(crate) mod series;
pub(crate) mod sessions;
pub(crate) mod shares;
pub(crate) mod tokens;
pub(crate) mod topics;
pub(crate) mod traces;
pub(crate) mod usage;
pub(crate) mod walks;

pub(crate) use fixture::{INBOX_ROWS, ITEM_ROWS, TOPIC_LOG_ROWS};

/// Runs every test of the suite on stores from `$fresh`, an expression that returns a guard (kept until the test
/// ends) and the store.
macro_rules! conformance_tests {
    ($fresh:expr) => { $crate::conformance::conformance_tests! { @tests $fresh } };
    (@each tests $fresh:expr; $($module:ident: $($name:ident),+;)+) => {
        $(mod $module {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let (_guard, store) = $fresh;
                $crate::conformance::$module::$name(&store).await;
            })+
        })+
    };
    (@each list $fresh:expr; $($module:ident: $($name:ident),+;)+) => {
        vec![$($(
            Box::pin(async {
                let (_guard, store) = $fresh;
                $crate::conformance::$module::$name(&store).await;
            }) as futures_util::future::LocalBoxFuture<'_, ()>
        ),+),+]
    };
    // `tests`: a test for each; `list`: a list of futures.
    (@$how:ident $fresh:expr) => {
        $crate::conformance::conformance_tests! { @each $how $fresh;
            accounts: apps_and_keys_are_stored, names_and_hashes_are_unique, expired_keys_are_listed, deleting_an_app_removes_everything_it_owns,
                late_rows_of_a_deleted_app_are_removed,
                concurrent_first_calls_agree_on_a_secret;
            activities: an_activity_is_created_and_changed, an_idempotency_key_creates_one_activity,
                devices_of_an_activity_are_collected, a_slice_holds_a_bounded_number_of_devices, updates_are_coalesced, a_slice_keeps_its_newest_attempts,
                a_slice_is_taken_again_after_its_lease, a_device_that_failed_stays_behind, a_device_joins_with_its_token,
                a_device_of_another_user_gets_nothing, the_end_removes_the_tokens_and_later_the_rows,
                reported_tokens_of_activities_are_invalidated;
            broadcasts: a_broadcast_has_its_attempts, a_channel_is_created_bound_and_deleted, a_name_is_created_once, an_app_has_a_bounded_number_of_channels,
                broadcasts_of_a_channel_are_sent_in_order, a_failed_broadcast_is_tried_again, a_lease_of_a_broadcast_ends,
                a_broadcast_that_crashes_its_senders_is_set_aside, an_expired_broadcast_is_not_sent,
                a_newer_broadcast_replaces_one_that_waits, a_channel_has_a_bounded_number_of_broadcasts,
                a_repeated_key_broadcasts_once, a_notification_reaches_the_channels_of_its_topic,
                cancelling_a_notification_cancels_its_broadcasts, a_deleted_channel_sends_nothing,
                broadcasts_are_forgotten_after_the_retention, concurrent_senders_leave_nothing_behind;
            claims: devices_that_acknowledged_before_the_claim_get_no_push, devices_that_acknowledge_after_the_claim_get_a_push,
                a_batch_that_no_device_needs_is_removed, acknowledgements_before_a_walk_count,
                an_acknowledgement_of_another_app_does_not_spare_a_push, replaced_notifications_are_not_pushed, always_pushes_without_checking_acknowledgements,
                a_race_has_one_winner;
            walks: targets_without_devices_become_walks, a_walk_continues_after_what_was_enqueued,
                a_stalled_walk_does_not_block_others, a_cancelled_walk_is_removed,
                cancelled_leased_work_is_not_retried, audiences_come_in_pages;
            campaigns: a_campaign_is_kept_and_listed, an_idempotency_key_creates_one_campaign, campaign_states_change_in_order, a_campaign_runs_to_its_end,
                an_empty_audience_ends_the_campaign, a_paused_campaign_sends_nothing, a_campaign_that_started_does_not_wait_for_its_clock, an_aborted_campaign_sends_nothing,
                an_expired_lease_of_an_aborted_campaign_drops_the_batch, batches_that_wait_make_steps,
                lines_are_uploaded_for_users,
                a_published_batch_counts_for_its_campaign, openings_count_for_their_campaign,
                pushes_count_for_their_variant, cancelled_retries_count_for_their_variant, retries_keep_their_variant,
                published_batches_count_for_their_variant, dropped_batches_can_end_a_campaign,
                an_ended_campaign_is_deleted;
            tokens: a_token_is_removed_only_on_proof, a_newly_registered_token_is_kept,
                a_tokens_time_is_that_of_its_last_registration,
                a_suspect_token_is_suspended_until_it_is_registered_again, suspended_tokens_are_restored,
                invalidations_are_paged_and_kept_for_the_retention;
            push_tokens: several_tokens_are_kept_for_a_device, the_message_token_registered_last_is_the_main_one,
                a_device_has_a_bounded_number_of_tokens, a_push_goes_to_the_token_it_names,
                an_invalid_token_is_removed_alone, another_message_token_replaces_an_invalid_main_token,
                walks_and_campaigns_keep_their_token, expired_tokens_are_removed_in_slices, tokens_end_with_their_device;
            credentials: credentials_are_stored, one_credential_exists_per_app_service_and_environment,
                a_credential_is_rotated_unless_it_changed;
            push: users_and_devices_become_batches_by_service, many_recipients_become_several_batches,
                a_repeated_key_pushes_once, batches_are_taken_by_lane_then_by_due_time, batches_due_later_wait,
                busy_services_and_held_campaigns_are_skipped, a_lease_expires_unless_it_is_renewed,
                a_batch_that_crashes_its_senders_is_set_aside, only_takes_of_crashed_senders_count,
                batches_of_a_crashed_sender_are_spread,
                finishing_a_batch_records_its_results_once, a_part_of_the_results_leaves_the_rest_of_a_batch,
                expired_notifications_are_not_pushed,
                cancelled_notifications_are_not_pushed, recipients_have_their_current_state,
                a_notification_lives_as_long_as_its_push, deleting_an_app_removes_its_push_work,
                a_walk_without_a_service_is_refused;
            devices: a_device_is_registered_and_read_back, an_update_changes_only_what_it_names,
                a_patch_sets_clears_and_keeps_fields, another_user_finds_an_empty_inbox,
                only_a_device_over_its_limits_is_refused, revoked_tokens_stay_revoked,
                devices_are_listed_in_pages, subscriptions_are_added_and_removed,
                deleting_a_device_removes_its_rows, unknown_rows_are_not_found;
            definitions: a_definition_is_created_changed_and_archived, ended_definitions_are_archived_in_pages,
                an_app_has_a_bounded_number_of_live_definitions, archived_definitions_come_in_pages,
                deleting_an_app_removes_its_definitions, a_first_call_reads_everything_at_once,
                a_first_call_shows_the_newest_that_have_not_expired;
            usage: usage_of_an_app_is_counted, unknown_names_are_reported_once, subscriptions_of_many_devices_are_counted,
                a_gate_refuses_inbox_rows;
            endpoints: an_endpoint_is_stored_found_and_deleted, a_device_has_a_bounded_number_of_endpoints,
                an_endpoint_is_removed_with_its_user_device_or_app, messages_that_wait_for_use_are_marked;
            revocations: an_old_jwt_does_not_recreate_a_deleted_device, a_revoked_device_accepts_only_newer_jwts,
                a_user_is_revoked_on_all_devices, a_revocation_applies_to_one_app, a_jwt_without_a_time_is_refused_once_revoked;
            inbox: stored_reaches_the_inbox_of_every_device_of_a_user, stored_to_devices_and_unknown_ones,
                a_live_message_is_not_stored, a_ttl_ends, a_newer_message_replaces_older_ones_of_its_collapse_key,
                a_full_inbox_evicts_the_oldest, many_inboxes_keep_their_newest_rows,
                an_ack_removes_once, concurrent_acknowledgements_count_once, an_inbox_lists_the_oldest_first, an_inbox_is_read_in_ranges;
            listings: notifications_are_listed_newest_first, notifications_are_filtered, a_page_of_notifications_is_bounded,
                notifications_of_a_user_have_their_outcomes, notifications_of_a_device_are_those_it_could_get,
                notifications_of_a_campaign_are_listed, devices_are_found_by_their_tokens, a_search_for_devices_is_bounded,
                devices_are_found_by_the_day_they_were_seen, a_search_by_day_is_bounded;
            lookups: notifications_and_devices_are_looked_up_across_apps;
            removals: expired_messages_name_their_app, messages_that_make_room_name_their_app,
                cancelled_messages_name_their_app;
            people: a_person_is_found_by_address_and_openid, roles_of_a_deleted_app_are_gone,
                mapped_roles_are_replaced_and_others_stay, a_mapped_owner_can_lose_the_role, the_last_owner_stays,
                no_code_works_twice, sessions_expire_and_end, the_oldest_sessions_make_room, a_ticket_works_once,
                changes_are_listed_by_what_is_asked, what_is_over_is_pruned;
            series: rows_are_read_by_step_and_time, rows_are_bounded_by_age_and_number;
            preferences: users_and_devices_have_their_own, a_device_without_preferences_follows_none, a_category_is_read_back,
                devices_that_mute_a_category_are_left_out, a_large_condition_leaves_them_out_too, users_who_refuse_items_get_none,
                a_cap_counts_each_notification_once, counts_end_with_their_day, a_delayed_fallback_is_decided_again;
            items: an_item_is_listed_for_each_named_user, items_of_devices_belong_to_their_users, items_do_not_depend_on_delivery,
                items_of_a_repeated_request_are_written_once, items_are_filtered_and_come_in_pages, states_of_items_change_in_order,
                only_own_items_change, all_items_up_to_one_change, concurrent_changes_count_once, a_user_keeps_the_newest_items,
                items_end_with_their_retention, a_cancelled_notification_has_no_items, the_first_call_counts_items, items_end_with_their_app;
            notifications: ids_are_in_commit_order, answers_come_in_order, noted_notifications_get_an_id_at_once,
                a_repeated_key_returns_the_first_answer, another_body_conflicts, a_state_counts_outcomes,
                a_trace_has_the_steps_of_one_device, an_opening_counts_once, a_trace_context_is_kept, cancel_removes_unacknowledged_rows, conditions_select_devices;
            expansions: every_selected_device_gets_it_once, a_full_inbox_evicts_for_a_large_condition,
                later_messages_of_the_app_keep_their_order, a_repeated_key_waits_for_the_large_condition,
                a_gate_decides_on_a_large_condition, devices_change_while_rows_are_written,
                a_large_condition_replaces_its_collapse_key_later, a_large_condition_expires,
                an_app_is_deleted_while_rows_are_written;
            sessions: a_log_in_reads_everything_at_once, a_log_in_reads_what_the_device_follows,
                a_refusal_does_not_affect_others, an_app_jwt_creates_its_device,
                a_backlog_comes_in_pages, a_backlog_resumes, session_topics_start_at_the_present,
                too_many_topics_are_refused, answers_keep_the_order_of_the_batch,
                a_recheck_detects_new_inbox_rows, a_recheck_detects_changes, a_kept_session_is_returned_at_the_next_log_in, a_kept_session_ends_with_its_user,
                outstanding_messages_of_a_session_are_found;
            shares: a_share_lists_its_members, members_leave_a_share, a_member_marked_away_returns, a_share_moves_forward_and_ends, a_share_without_members_restarts_at_the_present,
                shares_are_limited_and_removed_with_their_app;
            topics: offsets_count_every_message, durable_subscribers_catch_up, positions_never_go_back,
                every_device_subscribes_to_everyone, a_log_is_recovered, a_trimmed_log_is_not_complete,
                an_expired_message_is_not_complete, a_collapsed_log_is_complete, a_position_of_another_epoch_recovers_the_whole_log,
                an_unused_topic_is_empty, retained_is_replaced_and_deleted, retained_ends_with_its_ttl,
                topics_are_listed, topics_with_new_messages_are_listed,
                retained_messages_are_found_by_range, log_pages_cover_all_topics;
            traces: a_trace_knows_who_was_named, a_trace_knows_since_when_a_device_subscribes, a_trace_knows_which_push_waits,
                a_trace_of_a_campaign_covers_all_that_it_sends, a_trace_has_the_attempts_at_a_device;
            drafts: a_draft_is_changed_at_its_revision, only_an_approved_revision_starts, new_recipients_change_a_draft,
                campaigns_are_filtered, no_author_of_any_revision_approves_it, a_definition_ends_with_its_campaign, ids_of_devices_are_read;
            clean_up: a_deleted_device_is_remembered_until_its_tokens_expire, deleted_devices_are_pruned_in_bounded_steps,
                a_topic_that_nothing_needs_is_removed, the_use_of_a_marked_topic_clears_the_mark,
                a_removed_topic_starts_again, everyones_topic_is_never_removed,
                many_topics_are_removed_in_bounded_steps, a_round_begins_an_hour_after_the_last;
            maintenance: prune_expires_inboxes, prune_trims_logs, prune_is_bounded, large_audiences_are_removed_in_slices, prune_forgets_after_retention,
                tenants_are_isolated, a_check_writes_and_reads, places_follow_commits,
                a_task_is_led, a_closed_store_rejects_calls;
        }
    };
}
pub(crate) use conformance_tests;

/// The same for stores that implement `Cells`.
macro_rules! cells_tests {
    ($fresh:expr) => { $crate::conformance::cells_tests! { @tests $fresh } };
    (@$how:ident $fresh:expr) => {
        $crate::conformance::conformance_tests! { @each $how $fresh;
            cells: cells_are_enrolled_once, parts_are_selected_by_app, devices_of_a_user_live_in_one_cell,
                several_apps_may_use_the_same_device_id,
                a_device_that_changes_its_user_moves_to_that_users_cell, a_user_moves_with_all_devices,
                a_device_that_moves_on_has_not_arrived, a_moving_device_follows_its_user_again, deleting_an_app_removes_its_cell_messages,
                a_former_home_ends_with_the_last_device, part_of_a_cell_moves,
                a_message_has_a_part_for_each_cell, a_message_keeps_its_trace, a_part_ends_once, an_idempotency_key_is_used_once,
                cancelled_parts_are_not_forwarded, expired_parts_stop_waiting, removing_an_app_from_a_front_removes_its_rows,
                provisioned_apps_are_stored;
        }
    };
}
pub(crate) use cells_tests;
