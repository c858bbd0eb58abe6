//! What the clean-up remembers from one call to the next: the row of `clean_up`.
//!
//! A start adds the row, and raises its `device_token_ttl` to its own before it issues a token.

use std::time::Duration;

use noroshi_types::Timestamp;

use super::record::Record;
use super::session::{self, Session, values};

/// How long a row of `deleted_devices` outlasts the device's last token. A token may be issued a moment after its device
/// was deleted, and the clocks of nodes differ.
const TOKEN_MARGIN: Duration = Duration::from_secs(86_400);

/// Adds the row, or raises its lifetime of device tokens ($1, milliseconds). Returns rows if it changes anything.
pub(crate) const RAISE: &str = "INSERT INTO clean_up (one, device_token_ttl, topic_cursor, topic_round_at)
     VALUES (1, $1, 0, 0) ON CONFLICT (one) DO UPDATE SET device_token_ttl = excluded.device_token_ttl
     WHERE clean_up.device_token_ttl < excluded.device_token_ttl";

/// Devices that were deleted until then have no token that has not expired.
pub(crate) async fn tokens_expired<S: Session>(session: &S, now: Timestamp) -> Result<Timestamp, S::Error> {
    let sql = "SELECT device_token_ttl FROM clean_up WHERE one = 1";
    let ttl = session::one(session, sql, &[], |row| row.count(0)).await?;
    Ok(Timestamp(now.0.saturating_sub(ttl).saturating_sub(TOKEN_MARGIN.as_millis() as u64)))
}

/// How far the search for unused topics has come.
pub(crate) struct TopicRound {
    /// Up to which topic; 0 between two rounds.
    pub cursor: i64,
    /// When the last round ended.
    pub ended: Timestamp,
}

pub(crate) async fn topic_round<S: Session>(session: &S) -> Result<TopicRound, S::Error> {
    let sql = "SELECT topic_cursor, topic_round_at FROM clean_up WHERE one = 1";
    let of_row = |row: &dyn Record| Ok(TopicRound { cursor: row.int(0)?, ended: row.time(1)? });
    session::one(session, sql, &[], of_row).await
}

pub(crate) async fn set_topic_round<S: Session>(session: &S, round: &TopicRound) -> Result<(), S::Error> {
    let sql = "UPDATE clean_up SET topic_cursor = $1, topic_round_at = $2 WHERE one = 1";
    session.execute(sql, &values![round.cursor, round.ended]).await?;
    Ok(())
}
