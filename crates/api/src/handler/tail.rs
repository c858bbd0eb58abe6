//! The live tail of an app: an event stream of what happens to its notifications and devices now.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State as Shared;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::{HeaderValue, header};
use noroshi_console::Made;
use noroshi_tail::{Filter, Kinds, Refused, Tails, Viewer, kinds};
use noroshi_types::{AppId, CampaignId, DeviceId, NotificationId, Permission, Topic, UserId};
use serde::Deserialize;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::error::{Code, Problem};
use crate::request::parameter::Query;
use crate::request::session::Person;
use crate::respond::Answer;

/// How often a stream checks that its person still may see it.
const CHECK_EVERY: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    kinds: Option<String>,
    user: Option<String>,
    device: Option<String>,
    topic: Option<String>,
    notification: Option<String>,
    campaign: Option<String>,
}

/// `GET /v1/tail`
pub(crate) async fn show(
    Shared(tails): Shared<Arc<Tails>>,
    person: Person,
    Query(asked): Query<Asked>,
) -> Answer {
    let app = person.app_id()?;
    let sees_nodes = person.caller.require(None, Permission::Read).is_ok();
    let shows_networks = person.caller.require(Some(app), Permission::Devices).is_ok();
    let filter = Filter { shows_networks, ..filter(app, &asked)? };
    let viewer = tails.open(person.caller.person.id, sees_nodes, filter).await?;
    let mut checks = interval_at(Instant::now() + CHECK_EVERY, CHECK_EVERY);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stream = Stream { viewer, app, sees_nodes, shows_networks, person, checks };
    let events = stream::unfold(stream, async |mut stream| {
        let event = stream.next().await?;
        Some((Ok::<Bytes, std::convert::Infallible>(event), stream))
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Ok((headers, Body::from_stream(events)).into_response() as Response)
}

fn filter(app: AppId, asked: &Asked) -> Result<Filter, Problem> {
    let kinds = match &asked.kinds {
        None => Kinds::all(),
        Some(names) => Kinds::parse(names).ok_or_else(|| {
            let known: Vec<&str> = kinds::SHOWN.iter().map(|kind| kind.as_str()).collect();
            Problem::parameter("kinds", format!("must be a list of {}", known.join(",")))
        })?,
    };
    let id = "must be a UUID";
    Ok(Filter {
        app,
        kinds,
        user: parse("user", asked.user.as_deref(), "must be a user's id", |text| UserId::parse(text).ok())?,
        device: parse("device", asked.device.as_deref(), "must be a device's id", |text| {
            DeviceId::parse(text).ok()
        })?,
        topic: parse("topic", asked.topic.as_deref(), "must be the name of a topic", |text| {
            Topic::parse(text).ok()
        })?,
        notification: parse("notification", asked.notification.as_deref(), id, |text| {
            NotificationId::parse(text).ok()
        })?,
        campaign: parse("campaign", asked.campaign.as_deref(), id, |text| CampaignId::parse(text).ok())?,
        shows_networks: false,
    })
}

fn parse<T>(
    name: &'static str,
    text: Option<&str>,
    rule: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Problem> {
    let Some(text) = text else { return Ok(None) };
    parse(text).map(Some).ok_or_else(|| Problem::parameter(name, rule))
}

/// An open tail, and who sees it.
struct Stream {
    viewer: Viewer,
    app: AppId,
    sees_nodes: bool,
    shows_networks: bool,
    person: Person,
    checks: Interval,
}

impl Stream {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            tokio::select! {
                biased;
                // First: events that waited for a slow client may be newer than the end of its role.
                _ = self.checks.tick() => self.check().await?,
                event = self.viewer.next() => return event,
            }
        }
    }

    /// A session or a role that ended ends the stream, and so does a store that does not answer: the page tries again.
    async fn check(&self) -> Option<()> {
        let Person { desk, token, .. } = &self.person;
        let caller = desk.console.caller(token, Made::InBackground, desk.now()).await.ok()?;
        caller.require(Some(self.app), Permission::Read).ok()?;
        // Who may see less than before opens another tail.
        let sees_nodes = caller.require(None, Permission::Read).is_ok();
        let shows_networks = caller.require(Some(self.app), Permission::Devices).is_ok();
        (sees_nodes >= self.sees_nodes && shows_networks >= self.shows_networks).then_some(())
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => Self::new(Code::Overloaded, refused.to_string()),
            Refused::FullForPerson => Self::new(Code::LimitExceeded, refused.to_string()),
            Refused::Closed => Self::new(Code::Unavailable, refused.to_string()),
            Refused::Store(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Asked {
        Asked { kinds: None, user: None, device: None, topic: None, notification: None, campaign: None }
    }

    #[test]
    fn a_filter_is_read_or_refused() {
        assert_eq!(filter(AppId(1), &asked()).expect("a filter"), Filter::of(AppId(1)));
        let text = |text: &str| Some(text.to_owned());
        let some = Asked { kinds: text("written,rejected"), topic: text("news"), ..asked() };
        let some = filter(AppId(1), &some).expect("a filter");
        assert_eq!((some.kinds.iter().count(), some.topic), (2, Topic::parse("news").ok()));
        for (wrong, field) in [
            (Asked { kinds: text("written,audit"), ..asked() }, "kinds"),
            (Asked { kinds: text(""), ..asked() }, "kinds"),
            (Asked { user: text(""), ..asked() }, "user"),
            (Asked { device: text("a\u{0}"), ..asked() }, "device"),
            (Asked { topic: text("news/#"), ..asked() }, "topic"),
            (Asked { notification: text("1"), ..asked() }, "notification"),
            (Asked { campaign: text("1"), ..asked() }, "campaign"),
        ] {
            let problem = filter(AppId(1), &wrong).expect_err(field);
            assert!(format!("{problem:?}").contains(field), "{problem:?}");
        }
    }
}
