//! Pages of audiences. A page costs what it examines; a page of an upload whose users have k devices each reads up to k
//! times as many rows as it returns. A condition is evaluated in windows: the next devices of each of its topics, and of
//! the whole app where the condition holds without any subscription. Up to the smallest last device of the windows that
//! are full, every subscription is known, so that the condition can be decided.

use std::collections::BTreeMap;

use noroshi_types::{AppId, CampaignId, Condition, TokenKey, Topic};

use super::accept::TruthTable;
use super::campaign;
use super::device::{member_columns, member_of};
use super::push_token::Pushed;
use super::record::Record;
use super::session::{Session, values};
use crate::{AudienceMember, AudiencePage};

pub(crate) async fn everyone<S: Session>(
    session: &S,
    app: AppId,
    after: i64,
    limit: usize,
    token: Option<&TokenKey>,
) -> Result<AudiencePage, S::Error> {
    let pushed = Pushed::new(token, '$', 4);
    let sql = format!(
        "SELECT {} FROM devices d{} WHERE d.app = $1 AND d.num > $2 ORDER BY d.num LIMIT $3",
        member_columns(&pushed),
        pushed.join()
    );
    let values = [&values![app, after, limit], &pushed.values()[..]].concat();
    Ok(page_of(session.query(&sql, &values, |row| member_of(row)).await?, limit))
}

pub(crate) async fn of_topic<S: Session>(
    session: &S,
    app: AppId,
    topic: &Topic,
    after: i64,
    limit: usize,
    token: Option<&TokenKey>,
) -> Result<AudiencePage, S::Error> {
    if topic.is_everyone() {
        return everyone(session, app, after, limit, token).await;
    }
    let pushed = Pushed::new(token, '$', 5);
    let sql = format!(
        "SELECT {} FROM (
             SELECT device FROM subscriptions
             WHERE topic = (SELECT num FROM topics WHERE app = $1 AND name = $2) AND named = 1 AND device > $3
             ORDER BY device LIMIT $4) s {} devices d ON d.num = s.device{}
         ORDER BY d.num",
        member_columns(&pushed),
        S::ORDERED_JOIN,
        pushed.join()
    );
    let values = [&values![app, topic.as_str(), after, limit], &pushed.values()[..]].concat();
    Ok(page_of(session.query(&sql, &values, |row| member_of(row)).await?, limit))
}

/// The cursor is the sequence number of the last line that was read.
pub(crate) async fn of_upload<S: Session>(
    session: &S,
    app: AppId,
    id: CampaignId,
    after: i64,
    limit: usize,
    token: Option<&TokenKey>,
) -> Result<AudiencePage, S::Error> {
    let mut page = AudiencePage::default();
    let Some(campaign) = campaign::number(session, app, id).await? else { return Ok(page) };
    let pushed = Pushed::new(token, '$', 5);
    let sql = format!(
        "SELECT {}, l.seq, l.lines FROM (
             SELECT seq, \"user\", count(*) OVER () AS lines FROM (
                 SELECT seq, \"user\" FROM campaign_lines WHERE campaign = $2 AND seq > $3
                 ORDER BY seq LIMIT $4) page) l
         LEFT JOIN devices d ON d.app = $1 AND d.\"user\" = l.\"user\"{}
         ORDER BY l.seq, d.num",
        member_columns(&pushed),
        pushed.join()
    );
    let values = [&values![app, campaign, after, limit], &pushed.values()[..]].concat();
    let line_of = |row: &dyn Record| {
        let member = row.int_or_null(0)?.map(|_| member_of(row)).transpose()?;
        Ok((member, row.int(9)?, row.count(10)? as usize))
    };
    let rows = session.query(&sql, &values, line_of).await?;
    let (mut last, mut lines) = (after, 0);
    for (member, seq, count) in rows {
        if seq != last && page.members.len() >= limit {
            // The remaining lines belong to the next page.
            page.next = Some(last as u64);
            return Ok(page);
        }
        (last, lines) = (seq, count);
        page.unknown += u64::from(member.is_none());
        page.members.extend(member);
    }
    page.next = (lines >= limit || page.members.len() >= limit).then_some(last as u64);
    Ok(page)
}

/// A page that ends the audience unless it is full.
fn page_of(members: Vec<AudienceMember>, limit: usize) -> AudiencePage {
    let next = members.last().filter(|_| members.len() >= limit).map(|last| last.num.0);
    AudiencePage { members, unknown: 0, next }
}

pub(crate) struct Windows {
    limit: usize,
    /// The bits of each device.
    seen: BTreeMap<i64, u32>,
    horizon: i64,
}

impl Windows {
    /// Each window has at most `limit` devices.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, seen: BTreeMap::new(), horizon: i64::MAX }
    }

    /// Adds the window of a topic, sorted; `bits` has the topic's bit.
    pub(crate) fn add(&mut self, devices: &[i64], bits: u32) {
        if devices.len() >= self.limit {
            self.horizon = self.horizon.min(devices.last().copied().unwrap_or(i64::MAX));
        }
        for device in devices {
            *self.seen.entry(*device).or_default() |= bits;
        }
    }

    /// The devices that the condition selects, at most `limit`, and the cursor of the next page.
    pub(crate) fn select(self, condition: &Condition) -> (Vec<i64>, Option<u64>) {
        let table = TruthTable::of(condition);
        let selected = self.seen.range(..=self.horizon).filter(|(_, bits)| table.holds(**bits));
        let selected: Vec<i64> = selected.map(|(device, _)| *device).take(self.limit).collect();
        let full = selected.last().copied().filter(|_| selected.len() >= self.limit);
        let next = full.or((self.horizon < i64::MAX).then_some(self.horizon));
        (selected, next.map(|device| device as u64))
    }
}
