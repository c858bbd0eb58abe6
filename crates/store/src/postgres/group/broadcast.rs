//! Broadcasts of a group, to the channels that are bound to the topics of its notifications.
//!
//! The rows of the channels are locked first, in the order of their numbers: senders decide under the same locks whether
//! more broadcasts wait.

use std::sync::LazyLock;

use noroshi_types::{NotificationId, Target};

use crate::Accept;
use crate::engine::broadcast::{COLUMNS, NEW, draw_id};
use crate::postgres::columns::columns;

pub(super) const LOCK: &str = "SELECT c.num FROM push_channels c
     WHERE c.num IN (SELECT f.num FROM unnest($1::bigint[], $2::text[]) u (app, topic)
                     JOIN push_channels f ON f.app = u.app AND f.topic = u.topic)
     ORDER BY c.num FOR NO KEY UPDATE OF c";

pub(super) static INSERT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "INSERT INTO broadcasts ({COLUMNS})
         SELECT CASE c.environment WHEN 1 THEN u.production ELSE u.sandbox END, c.app, c.num, c.name, u.notification,
                u.payload, u.priority, u.replaceable, u.accepted_at, u.expires_at, {NEW}
         FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::bytea[], $5::bytea[], $6::text[], $7::bigint[],
                     $8::bigint[], $9::bigint[], $10::bigint[]) WITH ORDINALITY
              u (app, topic, production, sandbox, notification, payload, priority, replaceable, accepted_at,
                 expires_at, place)
         JOIN push_channels c ON c.app = u.app AND c.topic = u.topic AND c.apple IS NOT NULL
         ORDER BY u.place"
    )
});

pub(super) const WAKE: &str = "UPDATE push_channels c SET due_at = coalesce(c.due_at, u.accepted_at)
     FROM unnest($1::bigint[], $2::text[], $3::bigint[]) u (app, topic, accepted_at)
     WHERE c.app = u.app AND c.topic = u.topic AND c.apple IS NOT NULL";

columns! {
    /// Columns of [`INSERT`].
    Broadcasts<'a> {
        apps: i64, topics: &'a str, production: Vec<u8>, sandbox: Vec<u8>, notifications: Vec<u8>, payloads: &'a str,
        priorities: i64, replaceable: i64, accepted: i64, expires: i64,
    }
}

impl<'a> Broadcasts<'a> {
    pub(super) fn plan(&mut self, id: NotificationId, accept: &'a Accept) {
        let Accept { app, request, now, .. } = accept;
        let (Some(broadcast), Target::Topic(topic)) = (&request.push.broadcast, &request.target) else {
            return;
        };
        self.push_row((
            i64::from(app.0),
            topic.as_str(),
            draw_id().to_vec(),
            draw_id().to_vec(),
            id.as_bytes().to_vec(),
            broadcast.payload.as_str(),
            broadcast.priority.into(),
            broadcast.replaceable.into(),
            now.0 as i64,
            request.expires_at(*now).0 as i64,
        ));
    }
}
