//! The list of an app's notifications, and the filters of the list of devices.

use std::borrow::Cow;

use noroshi_store::{
    DEVICES_READ_MAX, DevicePage, DeviceSearch, ListedNotification, ListedRecipient, NOTIFICATIONS_READ_MAX,
    NotificationFilter, Progress, Recipient, SeenFilter, TARGET_KINDS, TokenFilter,
};
use noroshi_types::{
    CampaignId, DeviceId, DeviceNum, JsonText, Label, NotificationId, PushService, Timestamp, TokenKind,
    Topic, Urgency, UserId, UtcDay,
};
use serde::{Deserialize, Serialize};

use crate::error::Problem;
use crate::handler::notification::{TargetBody, counts, state_name};
use crate::request::access::{Provider, Read};
use crate::request::page::{not_a_position, not_first, page_limit_of};
use crate::request::parameter::Query;
use crate::respond::{self, Answer};

/// Notifications of a page: each is read with its outcomes.
const LIMIT_DEFAULT: usize = 50;
const LIMIT_MAX: usize = 200;
/// Characters of a title or a text that a list shows.
const EXCERPT_CHARS: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NotificationsQuery {
    since: Option<String>,
    until: Option<String>,
    target: Option<String>,
    user: Option<String>,
    device: Option<String>,
    topic: Option<String>,
    campaign: Option<String>,
    category: Option<String>,
    urgency: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct PageBody {
    notifications: Vec<EntryBody>,
    next: Option<String>,
    /// The list is complete back to this time. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    searched_to: Option<String>,
}

#[derive(Serialize)]
struct EntryBody {
    id: String,
    sent_at: String,
    expires_at: String,
    when: &'static str,
    urgency: &'static str,
    target: TargetBody,
    targets: Option<u64>,
    title: Option<String>,
    text: Option<String>,
    category: Option<String>,
    campaign: Option<String>,
    /// Null like `counts`: too many outcomes for a list.
    state: Option<&'static str>,
    counts: Option<serde_json::Map<String, serde_json::Value>>,
    /// With a filter by user or device.
    #[serde(skip_serializing_if = "Option::is_none")]
    recipients: Option<Vec<RecipientBody>>,
}

#[derive(Serialize)]
struct RecipientBody {
    device: String,
    outcome: Option<&'static str>,
    at: Option<String>,
    /// The push service's own reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    in_inbox: bool,
}

/// The texts of a notification that a list shows.
#[derive(Deserialize, Default)]
struct Texts<'a> {
    #[serde(borrow)]
    title: Option<Cow<'a, str>>,
    #[serde(borrow)]
    body: Option<Cow<'a, str>>,
}

/// `GET /v1/notifications`
pub(crate) async fn notifications(
    provider: Provider<Read>,
    Query(query): Query<NotificationsQuery>,
) -> Answer {
    let filter = filter(query)?;
    let has_recipient = filter.recipient.is_some();
    let now = provider.delivery.clock().now();
    let page = provider.delivery.store().list_notifications(provider.app, filter, now).await?;
    let entry = |shown| entry(shown, has_recipient);
    respond::ok(&PageBody {
        notifications: page.notifications.into_iter().map(entry).collect(),
        next: page.next.map(|id| id.to_string()),
        searched_to: page.searched_to.map(|time| time.to_string()),
    })
}

fn filter(query: NotificationsQuery) -> Result<NotificationFilter, Problem> {
    let NotificationsQuery {
        since,
        until,
        target,
        user,
        device,
        topic,
        campaign,
        category,
        urgency,
        after,
        limit,
    } = query;
    let user = given(user).map(|text| UserId::parse(&text).map_err(|wrong| Problem::from(wrong).at("user")));
    let device =
        given(device).map(|text| DeviceId::parse(&text).map_err(|wrong| Problem::from(wrong).at("device")));
    let recipient = match (user.transpose()?, device.transpose()?) {
        (Some(_), Some(_)) => return Err(Problem::parameter("device", "give a user or a device, not both")),
        (Some(user), None) => Some(Recipient::User(user)),
        (None, Some(device)) => Some(Recipient::Device(device)),
        (None, None) => None,
    };
    let target = given(target).map(|text| {
        TARGET_KINDS.into_iter().find(|kind| *kind == text).ok_or_else(|| one_of("target", &TARGET_KINDS))
    });
    let topic = given(topic).map(|text| match text == Topic::everyone().as_str() {
        true => Ok(Topic::everyone()),
        false => Topic::parse_any(&text).map_err(|wrong| Problem::from(wrong).at("topic")),
    });
    let campaign = given(campaign)
        .map(|text| CampaignId::parse(&text).map_err(|wrong| Problem::from(wrong).at("campaign")));
    let category =
        given(category).map(|text| Label::parse(&text).map_err(|wrong| Problem::from(wrong).at("category")));
    let urgency = given(urgency).map(|text| {
        Urgency::named(&text).ok_or_else(|| one_of("urgency", &Urgency::ALL.map(Urgency::as_str)))
    });
    let before = not_first(after).map(|after| NotificationId::parse(&after).map_err(|_| not_a_position()));
    Ok(NotificationFilter {
        since: time("since", since)?,
        until: time("until", until)?,
        target: target.transpose()?,
        topic: topic.transpose()?,
        campaign: campaign.transpose()?,
        category: category.transpose()?,
        urgency: urgency.transpose()?,
        recipient,
        before: before.transpose()?,
        limit: page_limit_of(limit, LIMIT_DEFAULT, LIMIT_MAX)?,
        rows_max: NOTIFICATIONS_READ_MAX,
    })
}

/// An empty value is no filter, which suits forms and scripts.
fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn time(name: &'static str, text: Option<String>) -> Result<Option<Timestamp>, Problem> {
    let Some(text) = given(text) else { return Ok(None) };
    let rule = "must be a time such as 2026-11-27T12:00:00Z";
    Timestamp::parse(&text).map(Some).ok_or_else(|| Problem::parameter(name, rule))
}

fn one_of(name: &str, values: &[&str]) -> Problem {
    Problem::parameter(name, format!("must be one of {}", values.join(", ")))
}

fn entry(shown: ListedNotification, has_recipient: bool) -> EntryBody {
    let texts: Texts<'_> = shown
        .notification
        .as_ref()
        .map(JsonText::as_str)
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let (state, counts) = match shown.progress {
        Some(Progress { state, counts: sums }) => (Some(state_name(state)), Some(counts(sums))),
        None => (None, None),
    };
    EntryBody {
        id: shown.id.to_string(),
        sent_at: shown.sent_at.to_string(),
        expires_at: shown.expires_at.to_string(),
        when: shown.when.as_str(),
        urgency: shown.urgency.as_str(),
        target: TargetBody::new(shown.target, shown.target_text),
        targets: shown.targets,
        title: texts.title.map(excerpt),
        text: texts.body.map(excerpt),
        category: shown.category.map(|category| category.to_string()),
        campaign: shown.campaign.map(|campaign| campaign.to_string()),
        state,
        counts,
        recipients: has_recipient.then(|| shown.recipients.into_iter().map(recipient).collect()),
    }
}

fn recipient(shown: ListedRecipient) -> RecipientBody {
    let ListedRecipient { device, step, in_inbox } = shown;
    RecipientBody {
        device: device.to_string(),
        outcome: step.as_ref().map(|step| step.outcome.as_str()),
        at: step.as_ref().map(|step| step.at.to_string()),
        reason: step.and_then(|step| step.reason),
        in_inbox,
    }
}

fn excerpt(text: Cow<'_, str>) -> String {
    match text.char_indices().nth(EXCERPT_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

/// The filters of `GET /v1/devices` other than the user.
pub(crate) struct DeviceQuery {
    pub(crate) platform: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) service: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) seen: Option<String>,
    pub(crate) seen_after: Option<String>,
    pub(crate) seen_before: Option<String>,
}

impl DeviceQuery {
    /// The page of devices, if there is a filter.
    pub(crate) async fn page(
        self,
        provider: &Provider<Read>,
        user: Option<&UserId>,
        after: Option<DeviceNum>,
        limit: usize,
    ) -> Result<Option<DevicePage>, Problem> {
        let platform = given(self.platform);
        if let Some(platform) = &platform
            && !crate::body::PLATFORMS.contains(&platform.as_str())
        {
            return Err(one_of("platform", &crate::body::PLATFORMS));
        }
        let token = token_filter(given(self.token), given(self.service), given(self.kind))?;
        let seen = seen_filter(
            given(self.seen),
            time("seen_after", self.seen_after)?,
            time("seen_before", self.seen_before)?,
        )?;
        if platform.is_none() && token.is_none() && seen.is_none() {
            return Ok(None);
        }
        let (user, rows_max) = (user.cloned(), DEVICES_READ_MAX);
        let search = DeviceSearch { user, platform, token, seen, after, limit, rows_max };
        let now = provider.delivery.clock().now();
        Ok(Some(provider.delivery.store().search_devices(provider.app, search, now).await?))
    }
}

fn token_filter(
    token: Option<String>,
    service: Option<String>,
    kind: Option<String>,
) -> Result<Option<TokenFilter>, Problem> {
    let service = service.map(|text| {
        let services = PushService::ALL.map(PushService::as_str);
        PushService::named(&text).ok_or_else(|| one_of("service", &services))
    });
    let kind = kind.map(|text| {
        TokenKind::named(&text).ok_or_else(|| one_of("kind", &TokenKind::ALL.map(TokenKind::as_str)))
    });
    let (service, kind) = (service.transpose()?, kind.transpose()?);
    let suspended = match token.as_deref() {
        Some("none") if service.is_some() || kind.is_some() => {
            return Err(Problem::parameter("token", "`none` goes with neither `service` nor `kind`"));
        }
        Some("none") => return Ok(Some(TokenFilter::None)),
        Some("any") | None => None,
        Some("usable") => Some(false),
        Some("suspended") => Some(true),
        Some(_) => return Err(one_of("token", &["none", "any", "usable", "suspended"])),
    };
    let is_given = token.is_some() || service.is_some() || kind.is_some();
    Ok(is_given.then_some(TokenFilter::Some { service, kind, suspended }))
}

/// Times count by their day in UTC, because the store knows no more: `after` includes its day, `before` does not. So the two
/// of one time divide the devices that were seen at all.
fn seen_filter(
    seen: Option<String>,
    after: Option<Timestamp>,
    before: Option<Timestamp>,
) -> Result<Option<SeenFilter>, Problem> {
    match seen.as_deref() {
        None if after.is_none() && before.is_none() => Ok(None),
        None => {
            let from = after.map_or(UtcDay(0), UtcDay::of);
            let before = before.map_or(UtcDay(u32::MAX), UtcDay::of);
            Ok(Some(SeenFilter::Days { from, before }))
        }
        Some("never") if after.is_some() || before.is_some() => {
            let rule = "`never` goes with neither `seen_after` nor `seen_before`";
            Err(Problem::parameter("seen", rule))
        }
        Some("never") => Ok(Some(SeenFilter::Never)),
        Some(_) => Err(one_of("seen", &["never"])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(excerpt(Cow::from("狼煙")), "狼煙");
        let long = "狼".repeat(EXCERPT_CHARS + 1);
        assert_eq!(excerpt(Cow::from(long)), format!("{}…", "狼".repeat(EXCERPT_CHARS)));
    }

    #[test]
    fn filters_by_day_are_read() {
        let time = |text: &str| Timestamp::parse(text);
        let (day, noon) = (time("2026-11-27T00:00:00Z"), time("2026-11-27T12:00:00Z"));
        let read = |after, before| seen_filter(None, after, before).ok().flatten();
        let of = UtcDay::of(noon.expect("a time"));
        let (first, last) = (UtcDay(0), UtcDay(u32::MAX));
        assert_eq!(read(noon, None), Some(SeenFilter::Days { from: of, before: last }));
        assert_eq!(read(None, noon), Some(SeenFilter::Days { from: first, before: of }));
        assert_eq!(read(day, day), read(noon, noon));
        assert_eq!(read(None, None), None);
        let never = |after| seen_filter(Some("never".to_owned()), after, None);
        assert_eq!(never(None).ok(), Some(Some(SeenFilter::Never)));
        assert!(never(day).is_err() && seen_filter(Some("x".to_owned()), None, None).is_err());
    }

    #[test]
    fn token_filters_are_read() {
        let text = |text: &str| Some(text.to_owned());
        let read = |token: &str, service: Option<String>| token_filter(text(token), service, None);
        let some = |service, suspended| Some(TokenFilter::Some { service, kind: None, suspended });
        assert_eq!(read("none", None).ok(), Some(Some(TokenFilter::None)));
        assert_eq!(read("any", text("fcm")).ok(), Some(some(Some(PushService::Fcm), None)));
        assert_eq!(read("usable", None).ok(), Some(some(None, Some(false))));
        assert_eq!(read("suspended", None).ok(), Some(some(None, Some(true))));
        assert_eq!(token_filter(None, None, None).ok(), Some(None));
        assert!(
            read("none", text("fcm")).is_err() && read("x", None).is_err() && read("any", text("x")).is_err()
        );
    }
}
