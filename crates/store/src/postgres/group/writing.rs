//! Writes a planned group: first frees space in inboxes if necessary (one round trip), then writes everything and
//! commits (one round trip, or two with many inbox rows).

use std::collections::HashMap;
use std::ops::Range;
use std::pin::pin;

use deadpool_postgres::ClientWrapper;
use noroshi_types::limits;
use tokio_postgres::Error;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};

use super::plan::Plan;
use super::reading::rows;
use super::{broadcast, inbox, item, push, topic};
use crate::Accept;
use crate::ids::{Ids, Num};
use crate::postgres::campaign_sum::{ADD_TO_VARIANTS, COUNT_VARIANTS};
use crate::postgres::{outcome, push_queue};
use crate::statement_log;

const MOVE_LAST: &str = "WITH marked AS (
         INSERT INTO accept_marks (instance, mark) VALUES ($2, $3)
         ON CONFLICT (instance) DO UPDATE SET mark = excluded.mark, at = now())
     UPDATE accept_order SET last = $1";

macro_rules! insert_notifications {
    ($conflict:literal) => {
        concat!(
            "INSERT INTO notifications (num, app, created_at, expires_at, keep_until, delivery, urgency, target,
                                        target_text, targets, topic, topic_offset, collapse_key, retain, notification,
                                        data, push, standing, campaign, trace, named)
             SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
                                  $7::bigint[], $8::bigint[], $9::text[], $10::bigint[], $11::bigint[], $12::bigint[],
                                  $13::text[], $14::bigint[], $15::text[], $16::text[], $17::text[], $18::bigint[],
                                  $19::bigint[], $20::bytea[], $21::bytea[])",
            $conflict
        )
    };
}
const NOTIFICATIONS: &str = insert_notifications!("");
/// For loose numbers, which are given out without coordination.
pub(in crate::postgres) const NOTED: &str = insert_notifications!(" ON CONFLICT (num) DO NOTHING");

/// Replaces keys that are no longer remembered.
const KEYS: &str = "INSERT INTO idempotency AS i (app, key, body_hash, num, expires_at)
     SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::bigint[], $5::bigint[])
     ON CONFLICT (app, key) DO UPDATE
     SET body_hash = excluded.body_hash, num = excluded.num, expires_at = excluded.expires_at";

/// Their rows are written, and the notifications are accepted.
const EXPANDED: &str = "DELETE FROM expansions WHERE num = ANY($1::bigint[])";
/// The same. The clean-up removes older rows with their collapse keys.
const COLLAPSING: &str = "UPDATE expansions SET state = 1, until = 0 WHERE num = ANY($1::bigint[])";

/// Starts another transaction, so that the server ends the session, and with it the order lock, if the holder
/// disappears.
const COMMIT: &str = "COMMIT AND CHAIN";

/// Inbox rows that go out with everything else; further rows are written before. Most groups have fewer.
const INBOX_ROWS_LAST: usize = 32_768;
/// Inbox rows that are worth the round trip of [`inbox::COPY`].
const COPIED_MIN: usize = 256;

/// Left behind by a group, so that its commit can be verified later.
#[derive(Debug, Clone, Copy)]
pub(in crate::postgres) struct Mark {
    /// Identifies the open store.
    pub instance: i64,
    /// Counts the store's groups.
    pub count: i64,
}

/// Prepared on a connection before groups run on it.
pub(in crate::postgres) fn statements() -> [&'static str; 27] {
    [
        MOVE_LAST,
        NOTIFICATIONS,
        KEYS,
        inbox::LOCK,
        inbox::COLLAPSE,
        inbox::MAKE_ROOM,
        inbox::INSERT,
        inbox::COPY,
        item::CONTENTS,
        item::INSERT,
        item::EVICT,
        outcome::INSERT,
        topic::ADVANCE,
        topic::COLLAPSE,
        topic::INSERT,
        topic::RETAIN,
        topic::TRIM,
        push_queue::INSERT,
        push::WALKS,
        push::COUNT,
        ADD_TO_VARIANTS,
        COUNT_VARIANTS,
        EXPANDED,
        COLLAPSING,
        broadcast::LOCK,
        &broadcast::INSERT,
        broadcast::WAKE,
    ]
}

/// Runs a statement, unless its columns are empty.
async fn execute<const N: usize>(
    session: &ClientWrapper,
    sql: &str,
    column: &[i64],
    values: [&(dyn ToSql + Sync); N],
) -> Result<(), Error> {
    if !column.is_empty() {
        statement_log::postgres(sql);
        let statement = session.prepare_cached(sql).await?;
        session.execute(&statement, &values).await?;
    }
    Ok(())
}

/// Adds rows to inboxes.
async fn write_inbox(
    session: &ClientWrapper,
    columns: &inbox::InboxColumns<'_>,
    rows: Range<usize>,
) -> Result<(), Error> {
    let inbox::InboxColumns { devices, nums, keys, ranks, .. } = columns;
    let (devices, nums) = (&devices[rows.clone()], &nums[rows.clone()]);
    let (keys, ranks) = (&keys[rows.clone()], &ranks[rows]);
    if nums.len() < COPIED_MIN {
        return execute(session, inbox::INSERT, nums, [&devices, &nums, &keys, &ranks]).await;
    }
    statement_log::postgres(inbox::COPY);
    let statement = session.prepare_cached(inbox::COPY).await?;
    let types = [Type::INT8, Type::INT8, Type::TEXT, Type::INT8];
    let writer = BinaryCopyInWriter::new(session.copy_in(&statement).await?, &types);
    let mut writer = pin!(writer);
    for row in 0..nums.len() {
        writer.as_mut().write(&[&devices[row], &nums[row], &keys[row], &ranks[row]]).await?;
    }
    writer.finish().await?;
    Ok(())
}

/// Frees space in inboxes where the group's rows replace others or may exceed the limit; otherwise no round trip.
pub(in crate::postgres) async fn make_room(
    session: &ClientWrapper,
    plan: &mut Plan<'_>,
    inbox_rows: u32,
) -> Result<(), Error> {
    let (devices, keys) = plan.inboxes.collapsing();
    let (crowded, new) = plan.inboxes.over_limit();
    if devices.is_empty() && crowded.is_empty() {
        return Ok(());
    }
    let rows_max = i64::from(inbox_rows.max(1));
    let slack = i64::from(limits::inbox_slack(inbox_rows));
    let (_, collapsed, room) = tokio::try_join!(
        biased;
        rows(session, inbox::LOCK, true, [&devices, &keys, &crowded, &new, &slack]),
        rows(session, inbox::COLLAPSE, !devices.is_empty(), [&devices, &keys]),
        rows(session, inbox::MAKE_ROOM, !crowded.is_empty(), [&crowded, &new, &rows_max, &slack]),
    )?;
    for row in &collapsed {
        plan.inboxes.collapsed(row.get(0), row.get(1), row.get(2));
    }
    plan.inboxes.apply_room(&room);
    Ok(())
}

/// A group that is ready to be written.
pub(in crate::postgres) struct Ready<'a> {
    /// Valid once the group is committed.
    pub answers: Vec<super::Answer>,
    plan: Plan<'a>,
    inbox: inbox::InboxColumns<'a>,
    topics: topic::TopicColumns<'a>,
    parts: outcome::Columns,
    /// Campaign, outcome, count.
    counts: (Vec<i64>, Vec<i64>, Vec<i64>),
}

impl<'a> Plan<'a> {
    /// Turns the plan into columns, after room was made.
    pub(in crate::postgres) fn ready(mut self, group: &[&'a Accept], ids: &Ids) -> Ready<'a> {
        let (inbox, removals) = std::mem::replace(&mut self.inboxes, inbox::Inboxes::new(1)).finish();
        self.note_removals(group, removals, ids);
        let counts = self.pushes.counts.iter();
        let counts = counts.map(|(&(campaign, outcome), &count)| (campaign, outcome, count)).collect();
        Ready {
            answers: std::mem::take(&mut self.answers),
            inbox,
            topics: std::mem::take(&mut self.topics).finish(),
            parts: outcome::Columns::of(&self.parts),
            counts,
            plan: self,
        }
    }
}

impl Ready<'_> {
    /// Whether there is anything to write; then the group leaves a mark.
    pub(in crate::postgres) fn writes(&self) -> bool {
        !self.plan.rows.nums.is_empty()
    }

    /// The last ordered number after the group, and the ranks that it writes.
    pub(in crate::postgres) fn ranks(&mut self) -> (Num, HashMap<i64, i64>) {
        (self.plan.last, std::mem::take(&mut self.inbox.newest))
    }

    /// Writes everything and commits, in one round trip, and one more for many inbox rows.
    pub(in crate::postgres) async fn commit(
        &self,
        session: &ClientWrapper,
        mark: &Mark,
    ) -> Result<(), Error> {
        let Self { plan, inbox, topics, parts, counts, .. } = self;
        let (rows, keys) = (&plan.rows, &plan.keys);
        let topic::TopicColumns { collapsing, log, advancing, retaining } = topics;
        let (batches, walks) = (&plan.pushes.batches, &plan.pushes.walks);
        let casts = &plan.broadcasts;
        let (contents, items) = (&plan.items.contents, &plan.items.rows);
        // Groups use the first of the rows that sums are spread over.
        let (variants, sums, shard) = (&plan.pushes.variants, &plan.pushes.variant_counts, 0_i64);
        // One statement may not have enough time for all recipients of a condition.
        let last = inbox.nums.len() - inbox.nums.len().min(INBOX_ROWS_LAST);
        for first in (0..last).step_by(INBOX_ROWS_LAST) {
            write_inbox(session, inbox, first..last.min(first + INBOX_ROWS_LAST)).await?;
        }
        // Statements go out in this order, in whatever order they are answered.
        tokio::try_join!(
            biased;
            execute(session, MOVE_LAST, &rows.nums, [&plan.last, &mark.instance, &mark.count]),
            execute(session, NOTIFICATIONS, &rows.nums, rows.values()),
            write_inbox(session, inbox, last..inbox.nums.len()),
            execute(session, item::CONTENTS, &contents.nums, contents.values()),
            execute(session, item::INSERT, &items.nums, items.values()),
            execute(session, item::EVICT, &items.nums, [&items.apps, &items.users, &plan.item_rows_max]),
            execute(session, topic::ADVANCE, &advancing.0, [&advancing.0, &advancing.1, &advancing.2, &advancing.3]),
            execute(session, topic::COLLAPSE, &collapsing.0, [&collapsing.0, &collapsing.1]),
            execute(session, topic::INSERT, &log.nums, log.values()),
            execute(session, topic::TRIM, &log.nums, [&advancing.0, &plan.log_rows_max]),
            execute(session, topic::RETAIN, &retaining.0, [&retaining.0, &retaining.1, &retaining.2]),
            execute(session, outcome::INSERT, &parts.nums, parts.values()),
            execute(session, push_queue::INSERT, &batches.nums, batches.values()),
            execute(session, push::WALKS, &walks.nums, walks.values()),
            execute(session, broadcast::LOCK, &casts.apps, [&casts.apps, &casts.topics]),
            execute(session, &broadcast::INSERT, &casts.apps, casts.values()),
            execute(session, broadcast::WAKE, &casts.apps, [&casts.apps, &casts.topics, &casts.accepted]),
            execute(session, push::COUNT, &counts.0, [&counts.0, &counts.1, &counts.2]),
            execute(session, ADD_TO_VARIANTS, &variants.nums, variants.values()),
            execute(session, COUNT_VARIANTS, &sums.0, [&sums.0, &sums.1, &sums.2, &sums.3, &shard]),
            execute(session, KEYS, &keys.nums, keys.values()),
            execute(session, EXPANDED, &plan.expanded, [&plan.expanded]),
            execute(session, COLLAPSING, &plan.collapsing, [&plan.collapsing]),
            session.batch_execute(COMMIT),
        )?;
        Ok(())
    }
}
