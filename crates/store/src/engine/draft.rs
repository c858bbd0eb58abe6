//! Drafts of campaigns: filtered lists, changes, approval and start. See [`crate::CampaignDrafts`].

use noroshi_types::{AppId, CampaignId, DeviceId, DeviceNum, JsonText, Timestamp, UserId, When};

use super::campaign::{self, CampaignNum, id_of, state_of};
use super::draft_row::{COLUMNS, authors, define, state};
use super::notification::push_text;
use super::record::Record;
use super::session::{self, Session, values};
use crate::ids::Num;
use crate::{CampaignFilter, CampaignState, DraftState, Error, NewCampaign, StartDraft, Unready};

/// Campaigns that one call examines, if the filter looks at more than the time of creation: 5 ms.
const EXAMINED_MAX: usize = 5_000;

struct Examined {
    num: CampaignNum,
    id: CampaignId,
    state: CampaignState,
    created_by: String,
    name: String,
    start_at: Option<Timestamp>,
}

/// The campaigns that match, newest first, and where the next page starts. Reads only an index.
pub(crate) async fn select<S: Session>(
    session: &S,
    app: AppId,
    filter: &CampaignFilter,
) -> Result<(Vec<CampaignNum>, Option<CampaignId>), S::Error> {
    let before = campaign::before_bytes(filter.before);
    let until = filter.until.map_or([0xff; 16], first_id_of);
    let (below, since) = (before.min(until), filter.since.map_or([0; 16], first_id_of));
    let examines = !filter.states.is_empty()
        || filter.name.is_some()
        || filter.created_by.is_some()
        || filter.start_since.is_some()
        || filter.start_until.is_some();
    let rows_max = if examines { EXAMINED_MAX.max(filter.limit) } else { filter.limit };
    let sql = "SELECT num, id, state, created_by, name, start_at FROM campaigns
               WHERE app = $1 AND id < $2 AND id >= $3 ORDER BY id DESC LIMIT $4";
    let examined = |row: &dyn Record| {
        Ok(Examined {
            num: row.int(0)?,
            id: id_of(row, 1)?,
            state: state_of(row, 2)?,
            created_by: row.string(3)?,
            name: row.string(4)?,
            start_at: row.time_or_null(5)?,
        })
    };
    let rows = session.query(sql, &values![app, &below, &since, rows_max], examined).await?;
    let is_last = rows.len() < rows_max;
    let name = filter.name.as_ref().map(|name| name.to_lowercase());
    let mut found = Vec::new();
    let mut last = None;
    for row in rows {
        if found.len() == filter.limit {
            return Ok((found, last));
        }
        last = Some(row.id);
        if matches(filter, name.as_deref(), &row) {
            found.push(row.num);
        }
    }
    Ok((found, last.filter(|_| !is_last)))
}

fn matches(filter: &CampaignFilter, name: Option<&str>, row: &Examined) -> bool {
    let is_named = |name: &str| row.name.to_lowercase().contains(name);
    let starts =
        |start: &Option<Timestamp>, fits: fn(Timestamp, Timestamp) -> bool| match (start, row.start_at) {
            (Some(bound), Some(at)) => fits(at, *bound),
            (bound, _) => bound.is_none(),
        };
    (filter.states.is_empty() || filter.states.contains(&row.state))
        && name.is_none_or(is_named)
        && filter.created_by.as_ref().is_none_or(|by| *by == row.created_by)
        && starts(&filter.start_since, |at, bound| at >= bound)
        && starts(&filter.start_until, |at, bound| at < bound)
}

/// The smallest UUIDv7 of this millisecond.
fn first_id_of(time: Timestamp) -> [u8; 16] {
    let mut id = [0; 16];
    id[..6].copy_from_slice(&time.0.to_be_bytes()[2..]);
    id
}

pub(crate) async fn definition<S: Session>(
    session: &S,
    app: AppId,
    id: CampaignId,
) -> Result<Option<(u64, JsonText)>, S::Error> {
    let sql =
        "SELECT c.revision, d.definition FROM campaigns c JOIN campaign_definitions d ON d.campaign = c.num
               WHERE c.id = $1 AND c.app = $2";
    let read = |row: &dyn Record| Ok((row.count(0)?, JsonText::from_valid(row.string(1)?)));
    session::first(session, sql, &values![id.as_bytes(), app], read).await
}

pub(crate) async fn line<S: Session>(
    session: &S,
    app: AppId,
    id: CampaignId,
    user: &UserId,
) -> Result<Option<JsonText>, S::Error> {
    let sql = "SELECT l.line FROM campaigns c JOIN campaign_lines l ON l.campaign = c.num AND l.\"user\" = $3
               WHERE c.id = $1 AND c.app = $2";
    let read = |row: &dyn Record| Ok(JsonText::from_valid(row.string(0)?));
    session::first(session, sql, &values![id.as_bytes(), app, user.as_str()], read).await
}

pub(crate) async fn device_ids<S: Session>(
    session: &S,
    app: AppId,
    devices: &[DeviceNum],
) -> Result<Vec<(DeviceNum, DeviceId)>, S::Error> {
    let numbers: Vec<u64> = devices.iter().map(|device| device.0).collect();
    let numbers = serde_json::to_string(&numbers).unwrap_or_default();
    let sql = format!(
        "SELECT d.num, d.id FROM {} n JOIN devices d ON d.num = n.num WHERE d.app = $2",
        S::numbers("$1")
    );
    let read = |row: &dyn Record| Ok((row.device(0)?, super::device::id_of(row, 1)?));
    session.query(&sql, &values![&numbers, app], read).await
}

/// A locked campaign, as far as changes depend on it.
struct Locked {
    num: CampaignNum,
    state: CampaignState,
    notification: Num,
    draft: DraftState,
}

async fn locked<S: Session>(session: &S, app: AppId, id: CampaignId) -> Result<Locked, S::Error> {
    let sql = format!(
        "SELECT num, state, notification, {COLUMNS} FROM campaigns WHERE id = $1 AND app = $2 {}",
        S::FOR_NO_KEY_UPDATE
    );
    let read = |row: &dyn Record| {
        Ok(Locked {
            num: row.int(0)?,
            state: state_of(row, 1)?,
            notification: row.int(2)?,
            draft: state(row, 3)?,
        })
    };
    Ok(session::first(session, &sql, &values![id.as_bytes(), app], read).await?.ok_or(Error::NotFound)?)
}

/// Replaces a campaign that has not started. `next` draws the numbers of its variants' notifications.
pub(crate) async fn edit<S: Session>(
    session: &S,
    id: CampaignId,
    revision: u64,
    new: &NewCampaign,
    next: impl Fn() -> Num + Send,
    now: Timestamp,
) -> Result<Result<u64, Unready>, S::Error> {
    let Locked { num, state, notification, draft } = locked(session, new.app, id).await?;
    if !matches!(state, CampaignState::Draft | CampaignState::Scheduled) {
        return Ok(Err(Unready::State(state)));
    }
    if draft.revision != revision {
        return Ok(Err(Unready::Revision(draft.revision)));
    }
    let sql = "UPDATE campaigns SET spec = $2, state = $3, revision = revision + 1, name = $4, start_at = $5,
                   complete = $6, edited_by = $7, edited_at = $8, authors = $9, approved_by = NULL, approved_at = NULL
               WHERE num = $1";
    let changed = &new.draft;
    let authors = authors(draft, &changed.by)?;
    let values = values![
        num,
        new.spec.as_str(),
        CampaignState::Draft as u8,
        &changed.name,
        changed.start_at,
        changed.is_complete,
        &changed.by,
        now,
        &authors,
    ];
    session.execute(sql, &values).await?;
    let sql = "UPDATE notifications SET expires_at = $2, delivery = $3, urgency = $4, notification = $5, data = $6, push = $7
               WHERE num = $1";
    let push = push_text(&new.push, false, None);
    let values = values![
        notification,
        new.expires_at,
        new.when.unwrap_or(When::Connected) as u8,
        new.urgency as u8,
        new.notification.as_ref().map(JsonText::as_str),
        new.data.as_ref().map(JsonText::as_str),
        push.as_ref(),
    ];
    session.execute(sql, &values).await?;
    // Nothing was recorded under the former variants.
    for sql in [
        "DELETE FROM notifications WHERE num IN (SELECT notification FROM campaign_variants WHERE campaign = $1)",
        "DELETE FROM variant_notifications WHERE num IN (SELECT notification FROM campaign_variants WHERE campaign = $1)",
        "DELETE FROM campaign_variants WHERE campaign = $1",
    ] {
        session.execute(sql, &values![num]).await?;
    }
    campaign::create_variants(session, num, next, new, now).await?;
    define(session, num, changed.definition.as_ref()).await?;
    Ok(Ok(revision + 1))
}

pub(crate) async fn start<S: Session>(
    session: &S,
    start: &StartDraft,
    now: Timestamp,
) -> Result<Result<(), Unready>, S::Error> {
    let Locked { num, state, draft, .. } = locked(session, start.app, start.id).await?;
    if let Err(unready) = ready(state, start.from, &draft, start.revision) {
        return Ok(Err(unready));
    }
    if start.needs_approval && draft.approved.is_none() {
        return Ok(Err(Unready::Unapproved));
    }
    let sql = "UPDATE campaigns SET state = $2, started_at = $3 WHERE num = $1";
    let started_at = (start.to == CampaignState::Running).then_some(now);
    session.execute(sql, &values![num, start.to as u8, started_at]).await?;
    Ok(Ok(()))
}

pub(crate) async fn approve<S: Session>(
    session: &S,
    app: AppId,
    id: CampaignId,
    revision: u64,
    by: Option<&String>,
    now: Timestamp,
) -> Result<Result<(), Unready>, S::Error> {
    let Locked { num, state, draft, .. } = locked(session, app, id).await?;
    if let Err(unready) = ready(state, CampaignState::Draft, &draft, revision) {
        return Ok(Err(unready));
    }
    if by.is_some_and(|by| draft.authors.contains(by)) {
        return Ok(Err(Unready::Author));
    }
    let sql = "UPDATE campaigns SET approved_by = $2, approved_at = $3 WHERE num = $1";
    session.execute(sql, &values![num, by, by.map(|_| now)]).await?;
    Ok(Ok(()))
}

fn ready(
    state: CampaignState,
    wanted: CampaignState,
    draft: &DraftState,
    revision: u64,
) -> Result<(), Unready> {
    match (draft.revision == revision, draft.is_complete) {
        _ if state != wanted => Err(Unready::State(state)),
        (false, _) => Err(Unready::Revision(draft.revision)),
        (true, false) => Err(Unready::Incomplete),
        (true, true) => Ok(()),
    }
}

/// Fails if a scheduled campaign would get more recipients than the uploader may add.
pub(crate) fn check_room(
    state: CampaignState,
    uploaded: u64,
    lines: usize,
    scheduled_max: Option<u64>,
) -> Result<(), Error> {
    match scheduled_max {
        Some(max) if state == CampaignState::Scheduled && uploaded + lines as u64 > max => {
            Err(Error::Limit(format!(
                "a scheduled campaign gets at most {max} recipients: change it, which makes it a draft, and let a \
                 second person approve it"
            )))
        }
        _ => Ok(()),
    }
}

/// Uploaded lines change the draft.
pub(crate) async fn uploaded<S: Session>(
    session: &S,
    num: CampaignNum,
    by: &str,
    now: Timestamp,
) -> Result<(), S::Error> {
    let sql = format!("SELECT {COLUMNS} FROM campaigns WHERE num = $1");
    let draft = session::first(session, &sql, &values![num], |row| state(row, 0)).await?;
    let authors = authors(draft.ok_or(Error::NotFound)?, by)?;
    let sql = "UPDATE campaigns SET revision = revision + 1, edited_by = $2, edited_at = $3, authors = $4,
                   approved_by = NULL, approved_at = NULL
               WHERE num = $1";
    session.execute(sql, &values![num, by, now, &authors]).await?;
    Ok(())
}
