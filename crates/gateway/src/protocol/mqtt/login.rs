//! From CONNECT to a session.
//!
//! A session continues where the client asks for it (§3.1.2.4) and this node or the store knows it. Durable
//! subscriptions that a device made otherwise than over MQTT are part of every session.

use noroshi_auth::{Identity, Refused};
use noroshi_protocol::mqtt::{
    LogIn, LogInRefused, LoggedIn, OfferedWill, Qos, SubscribeOptions, Subscription as Held, TopicFilter,
};
use noroshi_store::Share;
use noroshi_types::{AppId, CloseReason, DeviceId, Topic};

use super::publish::data_bytes_max;
use super::session::{ParkedSession, ParkedSessions};
use super::stored::StoredSession;
use super::task::{Task, share};
use super::will::{self, When};
use super::{Mqtt, Request, origin, send, service};
use crate::protocol::context::Context;
use crate::protocol::effect::Effect;
use crate::session::login::OpenedSession;
use crate::session::topic_rules::TopicRules;
use crate::session::verification::close_reason;

/// What a session continues with.
#[derive(Default)]
struct Continued {
    /// The session existed before and the client resumes it.
    is_present: bool,
    subscriptions: Vec<Held>,
    /// Durable subscriptions of an earlier session that end.
    ended_topics: Vec<Topic>,
}

impl Mqtt {
    pub(super) fn log_in(&mut self, cx: &mut Context<'_>, login: &LogIn<'_>) {
        if !cx.admits() {
            return;
        }
        (self.clean_start, self.expiry_s) = (login.clean_start, login.session_expiry_s);
        let will = login.will.clone();
        let Some(token) = login.token else {
            return match anonymous(cx, login) {
                Ok(identity) => self.attach(cx, identity, None, will),
                Err(why) => {
                    cx.report_refusal(why);
                    cx.close(CloseReason::Unauthorized);
                }
            };
        };
        let request = Request::LogIn { device: login.device.map(Into::into), will };
        cx.verify(Some(token.into()), login.app.map(Into::into), request);
    }

    /// `device`: the device id that the client states in addition to its token.
    pub(super) fn let_in(
        &mut self,
        cx: &mut Context<'_>,
        answer: Result<Identity, Refused>,
        device: Option<&str>,
        will: Option<OfferedWill>,
    ) {
        match answer {
            Ok(identity) => self.attach(cx, identity, device, will),
            Err(refused) => cx.close(close_reason(&refused)),
        }
    }

    fn attach(
        &mut self,
        cx: &mut Context<'_>,
        identity: Identity,
        device: Option<&str>,
        will: Option<OfferedWill>,
    ) {
        let refused = match device.is_some_and(|device| device != identity.device.as_str()) {
            true => Some(LogInRefused::OtherDevice),
            false => will.and_then(|will| self.refuse_will(cx, identity.app, &will)),
        };
        let Some(refused) = refused else { return cx.attach(identity, Vec::new(), None) };
        cx.report_refusal(refused.text());
        let mut out = Vec::new();
        self.conversation.refuse_log_in(refused, &mut out);
        send(cx, out);
        cx.close(CloseReason::Unauthorized);
    }

    /// A will is a publication that waits, with the same limits.
    fn refuse_will(&self, cx: &Context<'_>, app: AppId, will: &OfferedWill) -> Option<LogInRefused> {
        // If the app has rules for publishing, only they decide, and only when the will is published.
        if !TopicRules(cx.delivery).has_publish_rules(app) && !cx.services.may_publish(app, &will.topic) {
            return Some(LogInRefused::Will);
        }
        let limit = cx.config().publish_bytes_max;
        let fits = will.payload_bytes <= limit
            && will.payload_bytes + will.properties_bytes <= data_bytes_max(limit)
            && self.conversation.will_data_bytes() <= data_bytes_max(limit);
        (!fits).then_some(LogInRefused::WillTooBig)
    }

    /// The filters of the stored session that the client continues, without those that name a topic.
    pub(super) fn filters_of_stored(&self, stored: Option<&[u8]>) -> Vec<TopicFilter> {
        match stored.filter(|_| !self.clean_start).and_then(StoredSession::parse) {
            Some((stored, false)) => {
                let filters = stored.subscriptions.into_iter().map(|held| held.filter);
                filters.filter(|filter| filter.topic().is_none()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Sends CONNACK; from here on the keep alive counts. Returns bytes that came before.
    pub(super) fn begin_session(&mut self, cx: &mut Context<'_>, begun: &OpenedSession) -> Vec<u8> {
        let (services, session) = (cx.services, &begun.session);
        // What another holder of the device left ends here, its will unpublished.
        let parked = service(services).sessions.take(session.device_key);
        let (mut parked, other) = match parked {
            Some(parked) if parked.session.holder() == session.holder() => (Some(parked), None),
            parked => (None, parked),
        };
        will::count_withheld(services, other.is_some_and(|other| other.will.is_some()));
        let (mut ended, mut gaps, mut owed) = (Vec::new(), Vec::new(), Vec::new());
        let continued = self.continue_stored(cx, begun, parked.as_ref(), &mut owed);
        let Continued { is_present: present, mut subscriptions, ended_topics } = continued;
        let due = match parked.as_ref().filter(|_| present) {
            // What this node remembers is newer: the store may not have it yet.
            Some(parked) => {
                (self.since, owed) = (parked.progress.since, parked.owed());
                (ended, gaps) = (parked.progress.ended.clone(), parked.progress.gaps.clone());
                parked.progress.retained_due.clone()
            }
            None => subscriptions.iter().filter(|held| held.retained_due).map(retained_by).collect(),
        };
        let saved = parked.as_mut().and_then(|parked| parked.saved.take());
        let will = parked.and_then(|parked| parked.will);
        for topic in begun.topics.iter().filter(|topic| !ended_topics.contains(topic)) {
            add_durable(&mut subscriptions, topic);
        }
        let filters = subscriptions.iter().map(|held| &held.filter);
        let wild: Vec<TopicFilter> = filters.filter(|filter| filter.has_wildcards()).cloned().collect();
        let logged_in = LoggedIn {
            device: session.device.as_str(),
            origin: origin(session),
            session_present: present,
            subscriptions,
            saved: saved.filter(|_| present),
        };
        let shares = shares_of(&logged_in.subscriptions);
        self.has_shares = !shares.is_empty();
        let mut out = Vec::new();
        let mut early = self.conversation.logged_in(&services.config.mqtt, logged_in, &mut out);
        if !early.is_empty() {
            // The beginning of a packet that follows the early ones: both go through the decoder again, in order.
            early.append(&mut self.decoder.take_partial());
        }
        send(cx, out);
        cx.effects.extend(wild.iter().map(|filter| Effect::AddFilter(filter.as_str().into())));
        if let Some(catch_up) = cx.progress.catch_up.as_mut() {
            if !wild.is_empty() {
                catch_up.read_log(self.since, begun.as_of);
                catch_up.ended().restore(ended);
                catch_up.gaps().restore(gaps);
            }
            catch_up.send_again(owed);
        }
        // A session that does not continue has ended (§3.1.3.2.2).
        if let Some(will) = will.filter(|_| !present) {
            will::publish(services, cx.delivery, session, *will, When::Now);
        }
        if begun.kept.is_some() && !present {
            cx.push(Effect::Unsubscribe(ended_topics.clone()));
            self.enqueue(cx, Task::Forget { topics: ended_topics, write: None });
        }
        if !shares.is_empty() {
            self.enqueue(cx, Task::Join { shares });
        }
        cx.continue_with(Request::ServeWildcards { is_first: false, retained: due });
        self.set_timeout(cx);
        early
    }

    /// Decides whether the client continues a session, and which stored state it continues with.
    fn continue_stored(
        &mut self,
        cx: &Context<'_>,
        begun: &OpenedSession,
        parked: Option<&ParkedSession>,
        owed: &mut Vec<noroshi_protocol::mqtt::UnacknowledgedMessage>,
    ) -> Continued {
        let (session, now) = (&begun.session, cx.now.wall);
        let sessions: &ParkedSessions = &service(cx.services).sessions;
        let (stored, has_ended) = begun.kept.as_deref().and_then(StoredSession::parse).unzip();
        let has_ended = has_ended.unwrap_or(false);
        // SUBACK granted a subscription that topic rules deny now. A new session begins, so that the client subscribes
        // again and receives the refusal.
        let keeps_all = stored.as_ref().is_none_or(|stored: &StoredSession| {
            let mut own = stored.subscriptions.iter().filter(|held| held.is_of_client);
            let rules = TopicRules(cx.delivery);
            own.all(|held| rules.may_keep_filter(session, &begun.permitted, held.filter.plain()))
        });
        // What this node remembers knows when it ends.
        let goes_on = |stored: &StoredSession| {
            let lasts = cx.services.registry.is_shared() || !sessions.has_ended(session.app, stored, now);
            lasts && !sessions.final_writes().ends_session(session.device_key)
        };
        let known = !has_ended
            && match parked {
                Some(parked) => parked.ends_at > now,
                None => stored.as_ref().is_some_and(goes_on),
            };
        let is_present = known && keeps_all && !self.clean_start;
        self.resumed = is_present;
        self.since = begun.as_of;
        match stored {
            Some(stored) if is_present => {
                (self.since, *owed) = (stored.since, stored.owed);
                Continued { is_present, subscriptions: stored.subscriptions, ended_topics: Vec::new() }
            }
            Some(stored) => {
                let own = stored.subscriptions.iter().filter(|held| held.is_of_client);
                let ended_topics = own.filter_map(|held| held.filter.topic()).collect();
                Continued { is_present, ended_topics, ..Continued::default() }
            }
            None => Continued { is_present, ..Continued::default() },
        }
    }
}

/// Without a token a client is the device that its identifier names, which is made on first use; or why it is not let
/// in.
fn anonymous(cx: &Context<'_>, login: &LogIn<'_>) -> Result<Identity, &'static str> {
    let config = cx.config();
    let name = config.anonymous_app.as_deref().filter(|_| config.mqtt.anonymous);
    let app = name.and_then(|name| cx.services.auth.app_id(name)).ok_or("no token was given")?;
    let id = match login.client_id {
        "" => format!("anonymous-{:016x}", cx.services.generations.next_number()),
        id => id.to_owned(),
    };
    let device = DeviceId::parse(&id)
        .map_err(|_| "no token was given, and the client identifier is not a valid device id")?;
    Ok(Identity::anonymous(app, device))
}

fn retained_by(held: &Held) -> Box<str> {
    held.filter.as_str().into()
}

/// The shared subscriptions of a session, with the QoS that was granted.
fn shares_of(subscriptions: &[Held]) -> Vec<(Share, u8)> {
    let share = |held: &Held| Some((share(&held.filter)?, held.options.qos() as u8));
    subscriptions.iter().filter_map(share).collect()
}

/// Adds a durable subscription that was not made over MQTT, if its name is valid in MQTT.
fn add_durable(subscriptions: &mut Vec<Held>, topic: &Topic) {
    if let Ok(filter) = TopicFilter::parse(topic.as_str())
        && !filter.has_wildcards()
        && subscriptions.iter().all(|held| held.filter != filter)
    {
        let options = SubscribeOptions::new(Qos::AtLeastOnce);
        subscriptions.push(Held {
            filter,
            options,
            id: 0,
            is_of_client: false,
            since: 0,
            retained_due: false,
        });
    }
}
