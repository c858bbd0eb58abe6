//! Reads everything that is known about a notification on a device ([`crate::Trace`]).

use noroshi_types::{
    AppId, CampaignId, Condition, DeviceId, DeviceNum, JsonText, NotificationId, Outcome, Timestamp, Topic,
    TraceContext, UserId, When,
};

use super::campaign::{CampaignNum, id_of, state_of};
use super::device::user_of;
use super::notification::{Standing, TO_CAMPAIGN};
use super::record::{Record, invalid, trace_of};
use super::session::{self, Session, values};
use super::topic::TopicNum;
use super::{device_list, named, opened, push_record};
use crate::ids::{Ids, Num};
use crate::{
    Error, Fallback, PendingPush, PushStage, Subscribed, TARGET_KINDS, Trace, TraceStep, TracedCampaign,
    TracedDevice, TracedNotification, TracedTarget, Work,
};

/// Notifications of a campaign that are looked at: a batch each.
const OF_CAMPAIGN_MAX: usize = 100_000;

/// The device's row.
struct Device {
    num: DeviceNum,
    shown: TracedDevice,
}

/// The notification's row.
struct Row {
    num: Num,
    shown: TracedNotification,
    target: u8,
    target_text: Option<String>,
    topic: Option<TopicNum>,
    offset: Option<i64>,
    campaign: Option<CampaignNum>,
    named: Option<Vec<u8>>,
    trace: Option<TraceContext>,
}

/// What became of a notification on a device.
pub(crate) async fn trace<S: Session>(
    session: &S,
    ids: &Ids,
    id: NotificationId,
    app: AppId,
    device_id: &DeviceId,
) -> Result<Option<Trace>, S::Error> {
    let Some(device) = device(session, app, device_id).await? else { return Ok(None) };
    let found = match ids.num(id) {
        Some(num) => notification(session, app, num).await?,
        None => None,
    };
    // A campaign has an id of its own kind.
    let found = match found {
        None => match recorded_under(session, app, CampaignId::from_bytes(*id.as_bytes())).await? {
            Some(num) => notification(session, app, num).await?,
            None => None,
        },
        found => found,
    };
    let Some(row) = found else { return Ok(None) };
    let mut nums = vec![row.num];
    let mut waiting = Vec::new();
    let mut is_subscribed = false;
    let target = if row.target == TO_CAMPAIGN {
        match campaign(session, &row, &device, device_id, &mut nums).await? {
            Some((campaign, num)) => {
                waiting.extend(in_batches_of_campaign(session, num, device.num).await?);
                TracedTarget::Campaign(Box::new(campaign))
            }
            None => TracedTarget::Unknown,
        }
    } else {
        let target = target(session, &row, &device, device_id).await?;
        is_subscribed = matches!(
            target,
            TracedTarget::Topic { subscription: Some(_), .. }
                | TracedTarget::Everyone { subscription: Some(_) }
        );
        target
    };
    let work = match &target {
        TracedTarget::Campaign(campaign) => Work::Campaign(campaign.id),
        _ => Work::Notification(ids.id(row.num)),
    };
    let attempts = push_record::of_device(session, app, push_record::Of::Work(work), device.num).await?;
    let (mut steps, mut in_inbox) = (Vec::new(), false);
    for num in nums {
        steps.extend(steps_of(session, num, device.num).await?);
        steps.extend(opened::step(session, num, device.num).await?);
        in_inbox |= is_in_inbox(session, num, device.num).await?;
        waiting.extend(in_batches(session, num, device.num).await?);
        waiting.extend(in_walk(session, num, device.num).await?);
    }
    steps.sort_by_key(|step: &TraceStep| (step.at, step.outcome as u8));
    let is_acked = steps.iter().any(|step| step.outcome == Outcome::Acked);
    // The claim will leave a device out that acknowledged.
    let push = waiting.into_iter().filter(|(_, is_settled)| *is_settled || !is_acked);
    Ok(Some(Trace {
        steps,
        in_inbox,
        subscribed: is_subscribed,
        trace: row.trace,
        notification: row.shown,
        device: device.shown,
        target,
        push: push.map(|(push, _)| push).min_by_key(|push| push.due_at),
        attempts,
    }))
}

async fn device<S: Session>(session: &S, app: AppId, id: &DeviceId) -> Result<Option<Device>, S::Error> {
    let sql = "SELECT num, \"user\", user_at, created_at FROM devices WHERE app = $1 AND id = $2";
    session::first(session, sql, &values![app, id.as_str()], |row| {
        let num = row.device(0)?;
        let (user, user_at) = (user_of(row, 1)?, row.time_or_null(2)?);
        Ok(Device { num, shown: TracedDevice { num, user, user_at, created_at: row.time(3)? } })
    })
    .await
}

async fn notification<S: Session>(session: &S, app: AppId, num: Num) -> Result<Option<Row>, S::Error> {
    let sql = "SELECT num, created_at, expires_at, delivery, target, target_text, topic, topic_offset, campaign, named,
                      trace, standing, collapse_key IS NOT NULL
               FROM notifications WHERE num = $1 AND app = $2";
    session::first(session, sql, &values![num, app], |row| {
        let standing = Standing::from_code(row.code(11)?);
        Ok(Row {
            num: row.int(0)?,
            shown: TracedNotification {
                sent_at: row.time(1)?,
                expires_at: row.time(2)?,
                when: When::from_code(row.code(3)?).unwrap_or(When::Stored),
                has_collapse_key: row.flag(12)?,
                is_cancelled: standing == Standing::Cancelled,
                is_replaced: standing == Standing::Replaced,
            },
            target: row.code(4)?,
            target_text: row.string_or_null(5)?,
            topic: row.int_or_null(6)?,
            offset: row.int_or_null(7)?,
            campaign: row.int_or_null(8)?,
            named: row.bytes_or_null(9)?.map(<[u8]>::to_vec),
            trace: trace_of(row, 10)?,
        })
    })
    .await
}

/// The notification that a campaign's outcomes are recorded under.
async fn recorded_under<S: Session>(
    session: &S,
    app: AppId,
    id: CampaignId,
) -> Result<Option<Num>, S::Error> {
    let sql = "SELECT notification FROM campaigns WHERE id = $1 AND app = $2";
    session::first(session, sql, &values![id.as_bytes(), app], |row| row.int(0)).await
}

/// Whom a notification is for that no campaign is recorded under.
async fn target<S: Session>(
    session: &S,
    row: &Row,
    device: &Device,
    id: &DeviceId,
) -> Result<TracedTarget, S::Error> {
    let names = |name: &str| row.named.as_ref().map(|named| named::contains(named, name));
    Ok(match TARGET_KINDS.get(usize::from(row.target)).copied() {
        Some("users") => TracedTarget::Users {
            named: match &device.shown.user {
                Some(user) => names(user.as_str()),
                None => row.named.as_ref().map(|_| false),
            },
        },
        Some("devices") => TracedTarget::Devices { named: names(id.as_str()) },
        Some("topic") => TracedTarget::Topic {
            topic: Topic::from_trusted(row.target_text.as_deref().unwrap_or_default()),
            subscription: subscription(session, row, device.num).await?,
        },
        Some("everyone") => {
            TracedTarget::Everyone { subscription: subscription(session, row, device.num).await? }
        }
        Some("condition") => {
            let text = row.target_text.clone().unwrap_or_default();
            let condition = Condition::parse(&text).map_err(|error| invalid("condition", error))?;
            let topics = subscriptions(session, device.num).await?;
            let holds = |until: Timestamp| {
                let has = |topic: &Topic| {
                    topics.iter().any(|(name, since)| name == topic && since.is_none_or(|at| at <= until))
                };
                condition.matches(has)
            };
            let (matches, matched) = (holds(Timestamp(u64::MAX)), holds(row.shown.sent_at));
            TracedTarget::Condition { text, matches, matched }
        }
        _ => TracedTarget::Unknown,
    })
}

/// The device's subscription to the notification's topic.
async fn subscription<S: Session>(
    session: &S,
    row: &Row,
    device: DeviceNum,
) -> Result<Option<Subscribed>, S::Error> {
    let (Some(topic), Some(offset)) = (row.topic, row.offset) else { return Ok(None) };
    let sql = "SELECT since, position >= $3 FROM subscriptions WHERE device = $1 AND topic = $2";
    session::first(session, sql, &values![device.0, topic, offset], |row| {
        Ok(Subscribed { since: row.time_or_null(0)?, is_past: row.flag(1)? })
    })
    .await
}

/// The device's topics, and since when it subscribes to each.
async fn subscriptions<S: Session>(
    session: &S,
    device: DeviceNum,
) -> Result<Vec<(Topic, Option<Timestamp>)>, S::Error> {
    let sql = "SELECT t.name, s.since FROM subscriptions s JOIN topics t ON t.num = s.topic
               WHERE s.device = $1 AND s.named = 1";
    session
        .query(sql, &values![device.0], |row| Ok((Topic::from_trusted(row.text(0)?), row.time_or_null(1)?)))
        .await
}

/// The campaign that is recorded under a notification. Adds its other notifications that may be for the device to
/// `nums`, unless the notification is that of one variant.
async fn campaign<S: Session>(
    session: &S,
    row: &Row,
    device: &Device,
    id: &DeviceId,
    nums: &mut Vec<Num>,
) -> Result<Option<(TracedCampaign, CampaignNum)>, S::Error> {
    const COLUMNS: &str = "num, id, spec, state, started_at, cursor, walked, uploaded, lines";
    let of_row = |row: &dyn Record| {
        let campaign = TracedCampaign {
            id: id_of(row, 1)?,
            spec: JsonText::from_valid(row.string(2)?),
            state: state_of(row, 3)?,
            started_at: row.time_or_null(4)?,
            is_past: row.flag(6)?,
            uploaded: None,
            is_published: false,
        };
        // Lines that were uploaded are there until they are removed.
        let has_lines = row.count(7)? == 0 || row.flag(8)?;
        Ok((row.int(0)?, campaign, row.count(5)?, row.count(7)? > 0, has_lines))
    };
    let found = match row.campaign {
        Some(num) => {
            let sql = format!("SELECT {COLUMNS} FROM campaigns WHERE num = $1");
            session.query(&sql, &values![num], of_row).await?
        }
        None => {
            let sql = format!("SELECT {COLUMNS} FROM campaigns WHERE notification = $1");
            session.query(&sql, &values![row.num], of_row).await?
        }
    };
    let Some((num, mut campaign, cursor, is_upload, has_lines)) = found.into_iter().next() else {
        return Ok(None);
    };
    // The cursor of an upload counts lines.
    campaign.is_past |= !is_upload && cursor >= device.num.0;
    if has_lines {
        let user = device.shown.user.as_ref().map_or("", UserId::as_str);
        let sql = "SELECT seq FROM campaign_lines WHERE campaign = $1 AND \"user\" = $2";
        let line = session::first(session, sql, &values![num, user], |row| row.int(0)).await?;
        campaign.uploaded = Some(line.is_some());
    }
    if row.campaign.is_none() {
        let sql = "SELECT num, target, named FROM notifications WHERE campaign = $1 LIMIT $2";
        let of_row = |row: &dyn Record| {
            let is_named = row.bytes_or_null(2)?.map(|found| named::contains(found, id.as_str()));
            Ok((row.int(0)?, row.code(1)? == TO_CAMPAIGN, is_named))
        };
        for (num, is_variant, is_named) in session.query(sql, &values![num, OF_CAMPAIGN_MAX], of_row).await? {
            campaign.is_published |= !is_variant && is_named == Some(true);
            // Older programs did not record whom they named.
            if is_variant || is_named != Some(false) {
                nums.push(num);
            }
        }
    }
    Ok(Some((campaign, num)))
}

/// The steps of a device that the parts of a notification list. Outcomes that only a newer program knows are skipped.
async fn steps_of<S: Session>(session: &S, num: Num, device: DeviceNum) -> Result<Vec<TraceStep>, S::Error> {
    let sql = "SELECT outcome, at, devices, reason FROM outcomes WHERE num = $1 ORDER BY seq";
    let of_row = |row: &dyn Record| {
        let Some(outcome) = Outcome::from_code(row.code(0)?) else { return Ok(None) };
        Ok(match is_listed(row.bytes(2)?, device) {
            true => Some(TraceStep { at: row.time(1)?, outcome, reason: row.string_or_null(3)? }),
            false => None,
        })
    };
    Ok(session.query(sql, &values![num], of_row).await?.into_iter().flatten().collect())
}

async fn is_in_inbox<S: Session>(session: &S, num: Num, device: DeviceNum) -> Result<bool, S::Error> {
    let sql = "SELECT num FROM inbox WHERE device = $1 AND num = $2";
    Ok(session::first(session, sql, &values![device.0, num], |row| row.int(0)).await?.is_some())
}

/// Push work of a device, and whether it is settled that the device needs the push.
type Waiting = (PendingPush, bool);

async fn in_batches<S: Session>(session: &S, num: Num, device: DeviceNum) -> Result<Vec<Waiting>, S::Error> {
    let sql = "SELECT recipients, due_at, leased_until, taken_at, fallback FROM push_queue WHERE num = $1 AND num > 0";
    let found = session.query(sql, &values![num], |row| waiting(row, device)).await?;
    Ok(found.into_iter().flatten().collect())
}

/// Batches of the campaign's own message.
async fn in_batches_of_campaign<S: Session>(
    session: &S,
    campaign: CampaignNum,
    device: DeviceNum,
) -> Result<Vec<Waiting>, S::Error> {
    let sql = "SELECT recipients, due_at, leased_until, taken_at, fallback FROM push_queue
               WHERE campaign = $1 AND campaign > 0 AND num = 0";
    let found = session.query(sql, &values![campaign], |row| waiting(row, device)).await?;
    Ok(found.into_iter().flatten().collect())
}

fn waiting(row: &dyn Record, device: DeviceNum) -> Result<Option<Waiting>, Error> {
    if !is_listed(row.bytes(0)?, device) {
        return Ok(None);
    }
    let stage = match row.int(2)? > 0 {
        true => PushStage::Taken { since: row.time_or_null(3)? },
        false => PushStage::Queued,
    };
    let is_settled = Fallback::from_code(row.code(4)?) == Fallback::Settled;
    Ok(Some((PendingPush { due_at: row.time(1)?, stage }, is_settled)))
}

/// The walk that has not come to the device yet.
async fn in_walk<S: Session>(session: &S, num: Num, device: DeviceNum) -> Result<Option<Waiting>, S::Error> {
    let sql = "SELECT due_at, fallback FROM push_walks WHERE num = $1 AND cursor < $2";
    session::first(session, sql, &values![num, device.0], |row| {
        let is_settled = Fallback::from_code(row.code(1)?) == Fallback::Settled;
        Ok((PendingPush { due_at: row.time(0)?, stage: PushStage::Collected }, is_settled))
    })
    .await
}

/// Whether a device list has the device.
fn is_listed(devices: &[u8], device: DeviceNum) -> bool {
    device_list::decode(devices).take_while(|listed| *listed <= device).any(|listed| listed == device)
}
