//! Devices: what registrations and changes do to them, their rows, and the rows of push recipients.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use noroshi_types::{
    AppId, DeviceId, DeviceNum, JsonText, PushEnvironment, PushService, PushToken, Timestamp, Topic, UserId,
    limits,
};

use super::device_seen::{self, day_of_row};
use super::preferences::{OWN, own_of_row};
use super::push_token::{self, Pushed, TokenWrites};
use super::record::{Record, invalid};
use super::session::{self, Session, values};
use crate::revocation::Subject;
use crate::{
    Attributes, AudienceMember, Device, DeviceChange, DeviceFilter, Error, PushRecipient, Registration,
    Revocation, Suspect, TokenChange, ids,
};

pub(crate) async fn number<S: Session>(
    session: &S,
    app: AppId,
    device: &DeviceId,
) -> Result<Option<DeviceNum>, S::Error> {
    let sql = "SELECT num FROM devices WHERE app = $1 AND id = $2";
    session::first(session, sql, &values![app, device.as_str()], |row| row.device(0)).await
}

/// The devices that the filter selects, without their topics, in the order of their numbers.
pub(crate) async fn list<S: Session>(
    session: &S,
    app: AppId,
    filter: &DeviceFilter,
) -> Result<Vec<Device>, S::Error> {
    let by_user = if filter.user.is_some() { "d.\"user\" = $4" } else { "CAST($4 AS TEXT) IS NULL" };
    let sql = format!(
        "SELECT {} FROM devices d WHERE d.app = $1 AND d.num > $2 AND {by_user} ORDER BY d.num LIMIT $3",
        *COLUMNS
    );
    let after = filter.after.map_or(0, |num| num.0);
    let values = values![app, after, filter.limit, filter.user.as_ref().map(UserId::as_str)];
    session.query(&sql, &values, |row| device_of(row)).await
}

/// What a registration or a change affects beyond the device's own columns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Effects {
    /// The device belongs to another user from now on.
    pub other_user: bool,
    /// Changes of tokens other than the main one.
    pub tokens: TokenWrites,
    /// Topics without a subscription so far, sorted.
    pub new_topics: Vec<Topic>,
}

impl Effects {
    /// Earlier reads of the device are outdated.
    pub(crate) fn revises(&self) -> bool {
        self.other_user || !self.new_topics.is_empty()
    }
}

impl Device {
    /// A device without any data; the engine assigns its number.
    pub(crate) fn fresh(app: AppId, id: DeviceId, now: Timestamp) -> Self {
        Self {
            num: DeviceNum(0),
            app,
            id,
            user: None,
            attributes: Attributes::default(),
            topics: Vec::new(),
            push_token: None,
            push_token_at: None,
            push_suspect: None,
            push_tokens: Vec::new(),
            token_version: 1,
            revoked: Revocation::default(),
            created_at: now,
            last_seen: None,
        }
    }

    /// Applies a registration. After an error the device is in an undefined state.
    pub(crate) fn register(&mut self, registration: Registration, now: Timestamp) -> Result<Effects, Error> {
        let Registration { device: _, user, attributes, topics, push_token, push_tokens, issued: _ } =
            registration;
        let other_user = user.is_some() && user != self.user;
        self.user = user.or(self.user.take());
        let known = &mut self.attributes;
        let Attributes { platform, locale, timezone, app_version, tags } = attributes;
        known.platform = platform.or(known.platform.take());
        known.locale = locale.or(known.locale.take());
        known.timezone = timezone.or(known.timezone.take());
        known.app_version = app_version.or(known.app_version.take());
        known.tags.extend(tags);
        let changes = push_tokens.into_iter().map(TokenChange::Set).collect();
        let tokens = self.change_tokens(changes, push_token.map(Some), now)?;
        let wanted: BTreeSet<Topic> = topics.into_iter().filter(|topic| !topic.is_everyone()).collect();
        let mut all: BTreeSet<Topic> = self.topics.drain(..).collect();
        let new_topics = wanted.into_iter().filter(|topic| all.insert(topic.clone())).collect();
        self.topics = all.into_iter().collect();
        self.check_limits()?;
        Ok(Effects { other_user, tokens, new_topics })
    }

    /// Applies a change. After an error the device is in an undefined state.
    pub(crate) fn change(&mut self, change: DeviceChange, now: Timestamp) -> Result<Effects, Error> {
        let DeviceChange { user, platform, locale, timezone, app_version, tags, push_token, push_tokens } =
            change;
        let other_user = user.as_ref().is_some_and(|user| *user != self.user);
        self.user = user.unwrap_or(self.user.take());
        let tokens = self.change_tokens(push_tokens, push_token, now)?;
        let known = &mut self.attributes;
        known.platform = platform.unwrap_or(known.platform.take());
        known.locale = locale.unwrap_or(known.locale.take());
        known.timezone = timezone.unwrap_or(known.timezone.take());
        known.app_version = app_version.unwrap_or(known.app_version.take());
        for (name, value) in tags {
            match value {
                Some(value) => known.tags.insert(name, value),
                None => known.tags.remove(&name),
            };
        }
        self.check_limits()?;
        Ok(Effects { other_user, tokens, new_topics: Vec::new() })
    }

    fn check_limits(&self) -> Result<(), Error> {
        if self.attributes.tags.len() > limits::TAGS_MAX {
            return Err(Error::Limit(format!("a device has at most {} tags", limits::TAGS_MAX)));
        }
        check_topics(self.topics.len())
    }
}

/// Fails if a device may not have this many topics.
pub(crate) fn check_topics(count: usize) -> Result<(), Error> {
    match count <= limits::TOPICS_PER_DEVICE_MAX {
        true => Ok(()),
        false => Err(Error::Limit(format!("a device has at most {} topics", limits::TOPICS_PER_DEVICE_MAX))),
    }
}

/// The time of a revocation only moves forward, even if the clock does not.
pub(crate) const REVOKE: &str = "INSERT INTO revocations (app, kind, id, revoked_at) VALUES ($1, $2, $3, $4)
     ON CONFLICT (app, kind, id) DO UPDATE SET revoked_at = excluded.revoked_at
     WHERE revocations.revoked_at < excluded.revoked_at";

/// Revokes the app JWTs of a device or a user.
pub(crate) async fn revoke<S: Session>(
    session: &S,
    app: AppId,
    subject: Subject,
    id: &str,
    now: Timestamp,
) -> Result<(), S::Error> {
    session.execute(REVOKE, &values![app, subject as u8, id, now]).await?;
    Ok(())
}

/// A UUIDv4 (RFC 9562 §5.4).
pub(crate) fn draw_id() -> Result<DeviceId, Error> {
    let bits = u128::from(ids::random_bits()) << 64 | u128::from(ids::random_bits());
    let id = uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid().to_string();
    DeviceId::parse(&id).map_err(|error| Error::Engine(error.to_string()))
}

/// Tags as JSON; `None` for no tags.
pub(crate) fn tags_text(tags: &BTreeMap<String, String>) -> Result<Option<String>, Error> {
    let text = (!tags.is_empty()).then(|| serde_json::to_string(tags)).transpose();
    text.map_err(|error| Error::Engine(error.to_string()))
}

/// Columns of `devices d` for [`device_of`].
pub(crate) static COLUMNS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "d.num, d.app, d.id, d.\"user\", d.platform, d.locale, d.timezone, d.app_version, d.tags, \
         d.push_token, d.token_version, d.created_at, d.push_service, d.push_environment, d.push_suspect_at, \
         d.push_suspect_reason, \
         (SELECT r.revoked_at FROM revocations r WHERE r.app = d.app AND r.kind = 0 AND r.id = d.id), \
         (SELECT r.revoked_at FROM revocations r WHERE r.app = d.app AND r.kind = 1 AND r.id = d.\"user\"), \
         d.push_token_at, {}, {}",
        push_token::LIST,
        device_seen::DAY
    )
});

/// The number of [`COLUMNS`].
pub(crate) const COLUMN_COUNT: usize = 21;

/// The device of a row, without its topics.
pub(crate) fn device_of(row: &(impl Record + ?Sized)) -> Result<Device, Error> {
    let push_suspect = match row.time_or_null(14)? {
        Some(at) => Some(Suspect { at, reason: row.string_or_null(15)?.unwrap_or_default() }),
        None => None,
    };
    Ok(Device {
        num: row.device(0)?,
        app: row.app(1)?,
        id: id_of(row, 2)?,
        user: user_of(row, 3)?,
        attributes: attributes_of(row, 4)?,
        topics: Vec::new(),
        push_token: token_of(row, 9, 12)?,
        push_token_at: row.time_or_null(18)?,
        push_suspect,
        push_tokens: push_token::list_of(row.text_or_null(19)?)?,
        token_version: row.int(10)? as u32,
        revoked: Revocation { device: row.time_or_null(16)?, user: row.time_or_null(17)? },
        created_at: row.time(11)?,
        last_seen: day_of_row(row, 20)?,
    })
}

pub(crate) fn id_of(row: &(impl Record + ?Sized), column: usize) -> Result<DeviceId, Error> {
    DeviceId::parse(row.text(column)?).map_err(|error| invalid("device id", error))
}

pub(crate) fn user_of(row: &(impl Record + ?Sized), column: usize) -> Result<Option<UserId>, Error> {
    let user = row.text_or_null(column)?.map(UserId::parse).transpose();
    user.map_err(|error| invalid("user id", error))
}

/// Reads `platform, locale, timezone, app_version, tags` from column `first` on.
fn attributes_of(row: &(impl Record + ?Sized), first: usize) -> Result<Attributes, Error> {
    let tags = row.text_or_null(first + 4)?.map(serde_json::from_str).transpose();
    Ok(Attributes {
        platform: row.string_or_null(first)?,
        locale: row.string_or_null(first + 1)?,
        timezone: row.string_or_null(first + 2)?,
        app_version: row.string_or_null(first + 3)?,
        tags: tags.map_err(|error| invalid("tags", error))?.unwrap_or_default(),
    })
}

/// Reads `push_token` from column `json`, and `push_service, push_environment` from column `service` on. A service that
/// only a newer program knows counts as no token, because this program cannot send to it.
fn token_of(row: &(impl Record + ?Sized), json: usize, service: usize) -> Result<Option<PushToken>, Error> {
    let code = row.code_or_null(service)?.and_then(PushService::from_code);
    let (Some(service), Some(json), environment) =
        (code, row.string_or_null(json)?, row.code_or_null(service + 1)?)
    else {
        return Ok(None);
    };
    let environment = environment.and_then(PushEnvironment::from_code).unwrap_or_default();
    Ok(Some(PushToken { service, environment, json: JsonText::from_valid(json) }))
}

/// Columns of `devices d` for [`member_of`]; [`Pushed`] says of which token.
pub(crate) fn member_columns(pushed: &Pushed<'_>) -> String {
    let [_, service, _, _, suspect, _] = pushed.columns();
    format!(
        "d.num, d.\"user\", d.platform, d.locale, d.timezone, d.app_version, d.tags, {service}, \
         {suspect} IS NOT NULL"
    )
}

pub(crate) fn member_of(row: &(impl Record + ?Sized)) -> Result<AudienceMember, Error> {
    Ok(AudienceMember {
        num: row.device(0)?,
        user: user_of(row, 1)?,
        attributes: attributes_of(row, 2)?,
        service: row.code_or_null(7)?.and_then(PushService::from_code),
        suspect: row.flag(8)?,
    })
}

/// Columns of `devices d` for [`recipient_of`]; [`Pushed`] says of which token.
pub(crate) fn recipient_columns(pushed: &Pushed<'_>) -> String {
    let [json, service, environment, at, suspect, expires_at] = pushed.columns();
    format!(
        "d.num, d.id, d.\"user\", d.platform, d.locale, d.timezone, d.app_version, d.tags, \
         {json}, {service}, {environment}, {at}, {suspect} IS NOT NULL, {expires_at}, {OWN}"
    )
}

/// The recipient of a row, without the line of a campaign.
pub(crate) fn recipient_of(row: &(impl Record + ?Sized)) -> Result<PushRecipient, Error> {
    Ok(PushRecipient {
        num: row.device(0)?,
        id: id_of(row, 1)?,
        user: user_of(row, 2)?,
        attributes: attributes_of(row, 3)?,
        token: token_of(row, 8, 9)?,
        token_at: row.time_or_null(11)?.unwrap_or(Timestamp(0)),
        token_expires_at: row.time_or_null(13)?,
        suspect: row.flag(12)?,
        preferences: own_of_row(row, 14)?.merged(),
        line: None,
    })
}
