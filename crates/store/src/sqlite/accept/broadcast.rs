//! Broadcasts to the channels that are bound to a notification's topic, in the operation that accepts it.

use noroshi_types::{Broadcast, NotificationId, Target};

use crate::engine::broadcast::{COLUMNS, NEW, draw_id};
use crate::sqlite::statement::Db;
use crate::{Accept, Error};

pub(super) fn enqueue(db: &Db, id: NotificationId, accept: &Accept) -> Result<(), Error> {
    let Accept { app, request, now, .. } = accept;
    let (Some(broadcast), Target::Topic(topic)) = (&request.push.broadcast, &request.target) else {
        return Ok(());
    };
    let Broadcast { payload, priority, replaceable } = &**broadcast;
    let sql = format!(
        "INSERT INTO broadcasts ({COLUMNS})
         SELECT CASE environment WHEN 1 THEN ?3 ELSE ?4 END, app, num, name, ?5, ?6, ?7, ?8, ?9, ?10, {NEW}
         FROM push_channels WHERE app = ?1 AND topic = ?2 AND apple IS NOT NULL"
    );
    let values = (
        app.0,
        topic.as_str(),
        draw_id(),
        draw_id(),
        id.as_bytes().as_slice(),
        payload.as_str(),
        priority,
        replaceable,
        now.0 as i64,
        request.expires_at(*now).0 as i64,
    );
    db.run(&sql, values)?;
    let sql = "UPDATE push_channels SET due_at = coalesce(due_at, ?3)
               WHERE app = ?1 AND topic = ?2 AND apple IS NOT NULL";
    db.run(sql, (app.0, topic.as_str(), now.0 as i64)).map(drop)
}
