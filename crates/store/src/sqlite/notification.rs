//! Rows of notifications: inserting them, their standing, and their messages.

use std::sync::Arc;

use noroshi_types::{JsonText, Message, TraceContext};

use super::statement::Db;
use super::writer::Write;
use crate::engine::campaign::CampaignNum;
use crate::engine::named;
use crate::engine::notification::{
    Standing, TO_CAMPAIGN, keep_until as keep_until_of, message_of_row, push_text, target_of,
};
use crate::engine::topic::TopicNum;
use crate::ids::{Ids, Num};
use crate::{Accept, Error};

/// The place of a message in its topic.
pub(super) struct LogPlace {
    pub topic: TopicNum,
    pub offset: u64,
}

pub(super) fn insert(
    w: &Write<'_>,
    num: Num,
    accept: &Accept,
    campaign: CampaignNum,
    place: Option<LogPlace>,
    standing: Standing,
) -> Result<(), Error> {
    let Accept { app, request, now, .. } = accept;
    let keep_until = keep_until_of(accept, w.options.trace_retention);
    let (target, target_text) = target_of(&request.target);
    let sql =
        "INSERT INTO notifications (num, app, created_at, expires_at, keep_until, delivery, urgency, target,
                                    target_text, targets, topic, topic_offset, collapse_key, retain, notification,
                                    data, push, standing, campaign, trace, named)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, nullif(?19, 0), ?20, ?21)";
    w.db.prepare_cached(sql)?.execute(rusqlite::params![
        num,
        app.0,
        now.0 as i64,
        request.expires_at(*now).0 as i64,
        keep_until.0 as i64,
        request.when as u8,
        request.urgency as u8,
        target,
        target_text,
        request.target.named_count().map(|count| count as i64),
        place.as_ref().map(|place| place.topic),
        place.as_ref().map(|place| place.offset as i64),
        request.collapse_key,
        request.retain,
        request.notification.as_ref().map(JsonText::as_str),
        request.data.as_ref().map(JsonText::as_str),
        push_text(&request.push, request.waits_for_use, request.category.as_ref()),
        standing as u8,
        campaign,
        request.trace.map(TraceContext::to_stored),
        named::fingerprints(&request.target),
    ])?;
    Ok(())
}

/// Whether it is the notification of a campaign or of one of its variants.
pub(super) fn is_campaign(db: &Db, num: Num) -> Result<bool, Error> {
    db.has_row("SELECT 1 FROM notifications WHERE num = ?1 AND target = ?2", (num, TO_CAMPAIGN))
}

pub(super) fn set_standing(db: &Db, num: Num, standing: Standing) -> Result<(), Error> {
    db.run("UPDATE notifications SET standing = ?2 WHERE num = ?1", (num, standing as u8)).map(drop)
}

/// Columns of `notifications n` and its topic `t`, which may have been removed, for [`message_of_row`].
pub(super) const MESSAGE_COLUMNS: &str =
    "n.num, n.app, n.delivery, n.urgency, n.notification, n.data, n.created_at, n.expires_at,
     n.topic_offset, coalesce(t.name, n.target_text), coalesce(t.epoch, 0), n.push ->> 'mode' = 'fallback', n.push ->> 'waits' = 'use',
     n.push ->> 'category', n.push ->> 'essential' = 1";

/// The message of a notification; `None` if the notification was removed.
pub(super) fn message(db: &Db, ids: &Ids, num: Num) -> Result<Option<Arc<Message>>, Error> {
    let sql = format!(
        "SELECT {MESSAGE_COLUMNS} FROM notifications n LEFT JOIN topics t ON t.num = n.topic WHERE n.num = ?1"
    );
    db.first(&sql, (num,), |row| Ok(Arc::new(message_of_row(row, 0, ids)?)))
}
