//! The notifications that a filter selects: a walk over the app's notifications, the newest first, a bounded number of rows
//! for a page. Only the index by app costs anything when a notification is accepted.

mod recipient;

use noroshi_types::{AppId, CampaignId, Label, Outcome, Timestamp, Topic, Urgency, When};
use serde_json::Value as Json;

use self::recipient::Recipients;
use super::campaign::{CampaignNum, id_of};
use super::notification::{Standing, TO_CAMPAIGN, state_of};
use super::outcome::{NO_SUMS, Sums};
use super::record::{Record, unknown};
use super::session::{Session, values};
use super::topic::TopicNum;
use crate::ids::{self, Ids, Num};
use crate::{ListedNotification, NotificationFilter, NotificationPage, Progress, TARGET_KINDS};

/// Rows of one statement, if their columns are short.
const CHUNK: usize = 1_000;
/// Rows of one statement that also reads names: 250 × 40 KB at most.
const CHUNK_WITH_NAMES: usize = 250;
/// Bytes of names after which a page reads no further: a request may name 10,000.
const NAMES_BYTES_MAX: usize = 16 << 20;
/// Notifications of a campaign that are looked at: a batch each.
const OF_CAMPAIGN_MAX: usize = 100_000;
/// Rows of outcomes of one notification that are summed.
const SUMMED_MAX: u64 = 1_000;
/// Rows of outcomes that a page sums.
const SUMMED_OF_PAGE_MAX: u64 = 20_000;

/// A notification that the walk looks at.
struct Candidate {
    num: Num,
    target: u8,
    target_text: Option<String>,
    topic: Option<TopicNum>,
    created_at: Timestamp,
    urgency: u8,
    category: Option<Label>,
    named: Option<Vec<u8>>,
}

/// Where candidates come from.
enum Source {
    App,
    /// What remains of a campaign's notifications, the oldest first.
    Nums(Vec<Num>),
}

pub(crate) async fn notifications<S: Session>(
    session: &S,
    ids: &Ids,
    app: AppId,
    filter: &NotificationFilter,
    now: Timestamp,
) -> Result<NotificationPage, S::Error> {
    let (first, last) = ids::numbers(filter.since, filter.until);
    let mut below = filter.before.map_or(Num::MAX, ids::place).min(last.saturating_add(1));
    let mut source = match filter.campaign {
        Some(campaign) => Source::Nums(of_campaign(session, app, campaign, first, below).await?),
        None => Source::App,
    };
    let mut recipients = match &filter.recipient {
        Some(recipient) => match Recipients::read(session, app, recipient, first, below).await? {
            Some(recipients) => Some(recipients),
            None => return Ok(NotificationPage::default()),
        },
        None => None,
    };
    let (mut left, mut names_bytes, mut found, mut is_complete) = (filter.rows_max, 0, Vec::new(), false);
    'pages: while left > 0 && names_bytes < NAMES_BYTES_MAX && found.len() < filter.limit {
        let size = if recipients.is_some() { CHUNK_WITH_NAMES } else { CHUNK };
        let size = if filter.is_by_time() { filter.limit - found.len() } else { size };
        let size = size.min(left);
        let (chunk, is_last) = candidates(session, app, filter, &mut source, (first, below), size).await?;
        left -= chunk.len().min(left);
        names_bytes +=
            chunk.iter().map(|candidate| candidate.named.as_ref().map_or(0, Vec::len)).sum::<usize>();
        for candidate in chunk {
            let is_wanted = is_wanted(filter, &candidate)
                && match &mut recipients {
                    Some(recipients) => match recipients.include(session, &candidate).await? {
                        Some(is_included) => is_included,
                        // Too much was read for this page: the next one begins here.
                        None => break 'pages,
                    },
                    None => true,
                };
            below = candidate.num;
            if is_wanted {
                found.push(candidate.num);
                if found.len() == filter.limit {
                    break 'pages;
                }
            }
        }
        if is_last {
            is_complete = true;
            break;
        }
    }
    let next = (!is_complete && below > first && below != Num::MAX).then_some(below);
    let mut notifications = read(session, ids, app, now, &found).await?;
    if let Some(mut recipients) = recipients {
        recipients.add_steps(session, ids, &mut notifications).await?;
    }
    Ok(NotificationPage {
        notifications,
        next: next.map(|num| ids.id(num)),
        searched_to: next.map(ids::time),
    })
}

impl NotificationFilter {
    /// Every notification of the time is wanted.
    fn is_by_time(&self) -> bool {
        let Self { target, topic, campaign, category, urgency, recipient, .. } = self;
        target.is_none()
            && topic.is_none()
            && campaign.is_none()
            && category.is_none()
            && urgency.is_none()
            && recipient.is_none()
    }
}

fn is_wanted(filter: &NotificationFilter, candidate: &Candidate) -> bool {
    let NotificationFilter { target, topic, category, urgency, .. } = filter;
    let kind = TARGET_KINDS.get(usize::from(candidate.target)).copied();
    let is_to_topic = |topic: &Topic| match kind {
        Some("topic") => candidate.target_text.as_deref() == Some(topic.as_str()),
        Some("everyone") => topic.is_everyone(),
        _ => false,
    };
    target.is_none_or(|target| kind == Some(target))
        && topic.as_ref().is_none_or(is_to_topic)
        && category.as_ref().is_none_or(|category| candidate.category.as_ref() == Some(category))
        && urgency.is_none_or(|urgency| candidate.urgency == urgency as u8)
}

/// The numbers of all notifications of a campaign in a range, the oldest first: its batches that were published, and those
/// under which it and its variants are recorded.
async fn of_campaign<S: Session>(
    session: &S,
    app: AppId,
    id: CampaignId,
    first: Num,
    below: Num,
) -> Result<Vec<Num>, S::Error> {
    let sql = "SELECT num, notification FROM campaigns WHERE id = $1 AND app = $2";
    let of_row = |row: &dyn Record| Ok((row.int(0)?, row.int_or_null(1)?));
    let found = session.query(sql, &values![id.as_bytes(), app], of_row).await?;
    let Some((campaign, own)) = found.into_iter().next() else { return Ok(Vec::new()) };
    let mut nums: Vec<Num> = own.into_iter().collect();
    let sql = "SELECT notification FROM campaign_variants WHERE campaign = $1";
    nums.extend(session.query(sql, &values![campaign], |row| row.int(0)).await?);
    let sql = "SELECT num FROM notifications WHERE campaign = $1 LIMIT $2";
    nums.extend(session.query(sql, &values![campaign, OF_CAMPAIGN_MAX], |row| row.int(0)).await?);
    nums.retain(|num| (first..below).contains(num));
    nums.sort_unstable();
    nums.dedup();
    Ok(nums)
}

/// At most `size` candidates below a number, the newest first, and whether there are no more.
async fn candidates<S: Session>(
    session: &S,
    app: AppId,
    filter: &NotificationFilter,
    source: &mut Source,
    (first, below): (Num, Num),
    size: usize,
) -> Result<(Vec<Candidate>, bool), S::Error> {
    let (has_category, has_names) = (filter.category.is_some(), filter.recipient.is_some());
    let mut columns = "n.num, n.target, n.target_text, n.topic, n.created_at, n.urgency".to_owned();
    // Only if they are needed: both may be long.
    columns.push_str(if has_category { ", n.push" } else { "" });
    columns.push_str(if has_names { ", n.named" } else { "" });
    let of_row = |row: &dyn Record| {
        Ok(Candidate {
            num: row.int(0)?,
            target: row.code(1)?,
            target_text: row.string_or_null(2)?,
            topic: row.int_or_null(3)?,
            created_at: row.time(4)?,
            urgency: row.code(5)?,
            category: if has_category { category_of(row.text_or_null(6)?) } else { None },
            named: match has_names {
                true => row.bytes_or_null(6 + usize::from(has_category))?.map(<[u8]>::to_vec),
                false => None,
            },
        })
    };
    match source {
        Source::App => {
            let sql = format!(
                "SELECT {columns} FROM notifications n WHERE n.app = $1 AND n.num < $2 AND n.num >= $3
                 ORDER BY n.num DESC LIMIT $4"
            );
            let chunk = session.query(&sql, &values![app, below, first, size], of_row).await?;
            let is_last = chunk.len() < size;
            Ok((chunk, is_last))
        }
        Source::Nums(nums) => {
            let chunk = nums.split_off(nums.len().saturating_sub(size));
            let sql = format!(
                "SELECT {columns} FROM {} AS k {} notifications n ON n.num = k.num WHERE n.app = $2",
                S::numbers("$1"),
                S::ORDERED_JOIN
            );
            let mut chunk = session.query(&sql, &values![&list(chunk.into_iter()), app], of_row).await?;
            chunk.sort_unstable_by_key(|candidate| std::cmp::Reverse(candidate.num));
            Ok((chunk, nums.is_empty()))
        }
    }
}

/// The category in the column `push`.
fn category_of(push: Option<&str>) -> Option<Label> {
    let section: Json = serde_json::from_str(push?).ok()?;
    Label::parse(section.get("category")?.as_str()?).ok()
}

/// Numbers as the value of [`Session::numbers`].
pub(super) fn list(nums: impl Iterator<Item = Num>) -> String {
    let nums: Vec<String> = nums.map(|num| num.to_string()).collect();
    format!("[{}]", nums.join(","))
}

/// What is shown of notifications, in their order. Leaves out those that were removed meanwhile, and those of campaigns
/// that have not started.
async fn read<S: Session>(
    session: &S,
    ids: &Ids,
    app: AppId,
    now: Timestamp,
    nums: &[Num],
) -> Result<Vec<ListedNotification>, S::Error> {
    if nums.is_empty() {
        return Ok(Vec::new());
    }
    let wanted = list(nums.iter().copied());
    let (numbers, join) = (S::numbers("$1"), S::ORDERED_JOIN);
    let sql = format!(
        "SELECT n.num, n.created_at, n.expires_at, n.delivery, n.urgency, n.target, n.target_text, n.targets,
                n.notification, n.push, n.standing, n.topic, n.campaign
         FROM {numbers} AS k {join} notifications n ON n.num = k.num WHERE n.app = $2"
    );
    let of_row = |row: &dyn Record| {
        let shown = ListedNotification {
            id: ids.id(row.int(0)?),
            sent_at: row.time(1)?,
            expires_at: row.time(2)?,
            when: When::from_code(row.code(3)?).ok_or_else(|| unknown("delivery"))?,
            urgency: Urgency::from_code(row.code(4)?).ok_or_else(|| unknown("urgency"))?,
            target: TARGET_KINDS.get(usize::from(row.code(5)?)).copied().unwrap_or("unknown"),
            target_text: row.string_or_null(6)?,
            targets: row.count_or_null(7)?,
            notification: row.json_or_null(8)?,
            category: category_of(row.text_or_null(9)?),
            campaign: None,
            progress: None,
            recipients: Vec::new(),
        };
        let (standing, in_topic) = (Standing::from_code(row.code(10)?), row.int_or_null(11)?.is_some());
        Ok((row.int(0)?, shown, standing, in_topic, row.int_or_null(12)?, row.code(5)? == TO_CAMPAIGN))
    };
    let mut rows = session.query(&sql, &values![&wanted, app], of_row).await?;
    rows.sort_unstable_by_key(|(num, ..)| std::cmp::Reverse(*num));
    let sums = sums(session, nums).await?;
    let campaigns = campaigns(session, rows.iter().map(|row| (row.0, row.4, row.5))).await?;
    let shown = rows.into_iter().filter_map(|(num, shown, standing, in_topic, _, is_of_campaign)| {
        let campaign = campaigns.iter().find(|(of, ..)| *of == num);
        // The notification of a draft exists from the start; nothing was sent.
        if is_of_campaign && campaign.is_some_and(|(_, _, has_started)| !has_started) {
            return None;
        }
        let of = |(_, sums): &(Num, Sums)| Progress {
            state: state_of(standing, sums, in_topic, shown.expires_at <= now),
            counts: Outcome::ALL
                .into_iter()
                .map(|outcome| (outcome, sums[outcome as usize]))
                .filter(|(_, count)| *count > 0)
                .collect(),
        };
        let progress = sums.iter().find(|(summed, _)| *summed == num).map(of);
        Some(ListedNotification { progress, campaign: campaign.map(|(_, id, _)| *id), ..shown })
    });
    Ok(shown.collect())
}

/// The sums of outcomes of those notifications that have few enough.
async fn sums<S: Session>(session: &S, nums: &[Num]) -> Result<Vec<(Num, Sums)>, S::Error> {
    let (numbers, join) = (S::numbers("$1"), S::ORDERED_JOIN);
    let sql = format!(
        "SELECT k.num, (SELECT count(*) FROM (SELECT 1 FROM outcomes o WHERE o.num = k.num LIMIT $2) AS parts),
                (SELECT count(*) FROM (SELECT 1 FROM openings p WHERE p.num = k.num LIMIT $2) AS opened)
         FROM {numbers} AS k"
    );
    let of_row = |row: &dyn Record| Ok((row.int(0)?, row.count(1)?, row.count(2)?));
    let wanted = list(nums.iter().copied());
    let mut left = SUMMED_OF_PAGE_MAX;
    let mut sums: Vec<(Num, Sums)> = Vec::with_capacity(nums.len());
    for (num, parts, opened) in session.query(&sql, &values![&wanted, SUMMED_MAX + 1], of_row).await? {
        if parts <= SUMMED_MAX && opened <= SUMMED_MAX && parts <= left {
            left -= parts;
            let mut own = NO_SUMS;
            own[Outcome::Opened as usize] = opened;
            sums.push((num, own));
        }
    }
    let sql =
        format!("SELECT o.num, o.outcome, o.count FROM {numbers} AS k {join} outcomes o ON o.num = k.num");
    let of_row = |row: &dyn Record| Ok((row.int(0)?, row.code(1)?, row.count(2)?));
    let few = list(sums.iter().map(|(num, _)| *num));
    for (num, outcome, count) in session.query(&sql, &values![&few], of_row).await? {
        let own = sums.iter_mut().find(|(summed, _)| *summed == num);
        // Outcomes that only a newer program knows are skipped.
        if let Some(sum) = own.and_then(|(_, own)| own.get_mut(usize::from(outcome))) {
            *sum += count;
        }
    }
    Ok(sums)
}

/// The campaigns of notifications, and whether each has started: those that published them, and those that are recorded
/// under them.
async fn campaigns<S: Session>(
    session: &S,
    rows: impl Iterator<Item = (Num, Option<CampaignNum>, bool)>,
) -> Result<Vec<(Num, CampaignId, bool)>, S::Error> {
    let rows: Vec<_> = rows.filter(|(_, campaign, is_own)| campaign.is_some() || *is_own).collect();
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let (numbers, join) = (S::numbers("$1"), S::ORDERED_JOIN);
    let by_num =
        format!("SELECT c.num, c.id, c.started_at FROM {numbers} AS k {join} campaigns c ON c.num = k.num");
    let by_notification = format!(
        "SELECT c.notification, c.id, c.started_at FROM {numbers} AS k {join} campaigns c ON c.notification = k.num"
    );
    let of_row = |row: &dyn Record| Ok((row.int(0)?, id_of(row, 1)?, row.time_or_null(2)?.is_some()));
    let published = list(rows.iter().filter_map(|(_, campaign, _)| *campaign));
    let published = session.query(&by_num, &values![&published], of_row).await?;
    let recorded = list(rows.iter().filter(|(_, _, is_own)| *is_own).map(|(num, _, _)| *num));
    let mut found = session.query(&by_notification, &values![&recorded], of_row).await?;
    for (num, campaign, _) in rows {
        let of = published.iter().find(|(of, ..)| Some(*of) == campaign);
        found.extend(of.map(|(_, id, has_started)| (num, *id, *has_started)));
    }
    Ok(found)
}
