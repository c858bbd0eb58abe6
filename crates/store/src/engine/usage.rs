//! What an app uses, for its quotas.

use noroshi_types::{AppId, Quota, Timestamp, limits};

use super::session::{self, Session, Value, values};
use crate::{CampaignState, DefinitionKind};

const MESSAGE_BYTES: &str = "CAST(coalesce(sum(
    coalesce(octet_length(n.notification), 0) + coalesce(octet_length(n.data), 0)), 0) AS BIGINT)";

pub(crate) async fn count<S: Session>(
    session: &S,
    app: AppId,
    quota: Quota,
    now: Timestamp,
) -> Result<u64, S::Error> {
    // Devices first: an inbox is found by its device, not by its app.
    let join = S::ORDERED_JOIN;
    let (sql, more): (String, Vec<Value<'_>>) = match quota {
        Quota::Devices => ("count(*) FROM devices WHERE app = $1".to_owned(), Vec::new()),
        Quota::Topics => (
            "count(*) FROM topics WHERE app = $1 AND name <> $2".to_owned(),
            vec![limits::EVERYONE_TOPIC.into()],
        ),
        Quota::InboxRows => (
            format!("count(*) FROM devices d {join} inbox i ON i.device = d.num WHERE d.app = $1"),
            Vec::new(),
        ),
        Quota::InboxBytes => {
            let sql = format!(
                "{MESSAGE_BYTES} FROM devices d {join} inbox i ON i.device = d.num
                 {join} notifications n ON n.num = i.num WHERE d.app = $1"
            );
            (sql, Vec::new())
        }
        Quota::RetainedBytes => {
            let sql = format!(
                "{MESSAGE_BYTES} FROM topics t {join} notifications n ON n.num = t.retained WHERE t.app = $1"
            );
            (sql, Vec::new())
        }
        Quota::Campaigns => {
            let states = [CampaignState::Scheduled, CampaignState::Running, CampaignState::Paused];
            let states = states.map(|state| Value::from(state as u8));
            ("count(*) FROM campaigns WHERE app = $1 AND state IN ($2, $3, $4)".to_owned(), states.to_vec())
        }
        Quota::Endpoints => {
            let sql = format!(
                "count(*) FROM devices d {join} endpoints e ON e.device = d.num
                 WHERE d.app = $1 AND (e.expires_at IS NULL OR e.expires_at > $2)"
            );
            (sql, vec![now.into()])
        }
        Quota::Experiments => {
            let sql = "count(*) FROM definitions WHERE app = $1 AND kind = $2 AND archived_at IS NULL";
            (sql.to_owned(), vec![Value::from(DefinitionKind::Experiment as u8)])
        }
        _ => return Ok(0),
    };
    let values = [&values![app][..], &more].concat();
    session::one(session, &format!("SELECT {sql}"), &values, |row| row.count(0)).await
}
