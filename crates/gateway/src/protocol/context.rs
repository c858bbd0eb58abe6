//! What an adapter sees of its connection while it handles an input.
//!
//! A context is a set of references that lives for one call. It gives no access to other connections: what concerns
//! those is an [`Effect`].

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use crossbeam_channel::Receiver;
use futures_util::FutureExt as _;
use noroshi_auth::Identity;
use noroshi_delivery::Delivery;
use noroshi_delivery::rules::Verdict;
use noroshi_store::Place;
use noroshi_types::rule::Action;
use noroshi_types::{AppId, CloseReason, NotificationId, Quota, Timestamp, Topic, limits};

use super::effect::{Attach, Effect};
use super::jobs::{At, Completed, Jobs};
use super::services::Services;
use crate::config::Config;
use crate::fanout::Fanout;
use crate::fanout::mail::Mail;
use crate::fanout::marks::Marks;
use crate::io::timer::{Jitter, Now, ticks};
use crate::rate::{Bucket, Rate};
use crate::session::catch_up::CatchUp;
use crate::session::permission::Decided;
use crate::session::phase::{Phase, Ping};
use crate::session::registry::{Address, Session};
use crate::session::request::ClientRequest;
use crate::session::topic_index::{Subscription, TopicIndex};
use crate::wire::{Framing, Protocol};

/// What an adapter needs to encode a message.
pub(crate) struct Encoding<'a> {
    pub(crate) config: &'a Config,
    pub(crate) framing: Framing,
    pub(crate) now: Timestamp,
}

/// Facts of the connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    pub(crate) shard: u16,
    pub(crate) slot: u32,
    pub(crate) generation: u64,
    pub(crate) protocol: Protocol,
    pub(crate) framing: Framing,
    pub(crate) phase: Phase,
    /// Why it closes, if it does.
    pub(crate) close_reason: Option<CloseReason>,
    /// Why no device may log in now.
    pub(crate) turns_away: Option<CloseReason>,
}

impl Facts {
    pub(crate) fn at(&self) -> At {
        (self.slot, self.generation)
    }
}

/// The places up to which the session's messages were sent.
pub(crate) struct Progress<'a> {
    pub(crate) catch_up: &'a mut Option<Box<CatchUp>>,
    pub(crate) subscriptions: &'a [Subscription],
    pub(crate) topics: &'a TopicIndex,
    pub(crate) fanout: &'a Fanout,
    /// Messages in flight that wait for the connection.
    pub(crate) marks: Marks,
    /// Messages up to here were offered, or existed when the log-in was read.
    pub(crate) offered: NotificationId,
    pub(crate) watermark: NotificationId,
}

impl Progress<'_> {
    /// A new subscription does not deliver messages that were accepted up to here.
    pub(crate) fn offered(&self) -> Place {
        Place::of(self.offered)
    }

    /// A place, or the one before the first message that is marked for the connection and not offered yet.
    pub(crate) fn before_marked(&self, to: Place) -> Place {
        self.fanout.before_marked(self.marks, to)
    }

    /// Up to where the connection was sent what only filters with wildcards match; at least `floor`.
    pub(crate) fn sent_by_wildcard(&self, floor: Place) -> Place {
        let (offered, watermark) = (self.offered(), self.watermark);
        let sent_to = |catch_up: &CatchUp| catch_up.sent_to(offered, watermark);
        let to = self.catch_up.as_deref().map_or(offered, sent_to);
        self.before_marked(to).max(floor)
    }

    /// The connection no longer receives a topic by its name, which delivered the messages behind `behind`. Filters
    /// with wildcards still match it.
    pub(crate) fn end_name(&mut self, topic: &Topic, behind: Place) {
        let offered = self.before_marked(self.offered());
        let mut own_topics = self.own_topics();
        own_topics.retain(|own| own != topic);
        if let Some(catch_up) = self.catch_up.as_mut() {
            catch_up.end_name(topic, behind, offered, self.watermark);
            catch_up.await_gaps(own_topics, noroshi_delivery::id_at(offered));
        }
    }

    /// Topics that the connection itself subscribed to.
    pub(crate) fn own_topics(&self) -> Vec<Topic> {
        self.topics.own(self.subscriptions)
    }

    pub(crate) fn catch_up(&mut self) -> &mut CatchUp {
        self.catch_up.get_or_insert_default()
    }
}

/// The way to the shards.
pub(crate) trait Network: Send + Sync {
    /// Queues a stanza for a session. Without room the stanza is lost.
    fn relay(&self, to: Address, stanza: Bytes);

    /// Wakes the shard that handles parked sessions.
    fn wake_first_shard(&self);

    /// Passes the result of a job to the shard of its connection.
    fn complete(&self, shard: u16, at: At, done: Box<dyn Completed>);
}

pub(crate) struct Peers<'a> {
    pub(crate) network: &'a Arc<dyn Network>,
    /// The shard's own mail, which other shards add to at any moment.
    pub(crate) mail: &'a Receiver<Mail>,
    pub(crate) has_stalled: bool,
}

impl Peers<'_> {
    /// Whether mail waits for this shard now: a stanza for one of its own sessions must queue behind it.
    pub(crate) fn has_mail(&self) -> bool {
        self.has_stalled || !self.mail.is_empty()
    }
}

pub(crate) struct Context<'a> {
    pub(crate) services: &'a Arc<Services>,
    pub(crate) delivery: &'a Arc<Delivery>,
    pub(crate) now: Now,
    pub(crate) facts: Facts,
    pub(crate) session: Option<&'a Arc<Session>>,
    /// When the shard calls the adapter next.
    pub(crate) timeout_tick: &'a mut u32,
    pub(crate) deadline_tick: &'a mut u32,
    pub(crate) ping: &'a mut Ping,
    pub(crate) progress: Progress<'a>,
    pub(crate) peers: Peers<'a>,
    pub(crate) jobs: &'a mut Jobs,
    pub(crate) effects: &'a mut Vec<Effect>,
    pub(crate) frames: &'a mut Bucket,
    pub(crate) frames_in: &'a mut u64,
    pub(crate) jitter: &'a mut Jitter,
}

impl Context<'_> {
    pub(crate) fn config(&self) -> &Config {
        &self.services.config
    }

    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn send(&mut self, bytes: impl Into<bytes::Bytes>) {
        self.effects.push(Effect::Send(bytes.into()));
    }

    pub(crate) fn close(&mut self, reason: CloseReason) {
        self.effects.push(Effect::Close(reason));
    }

    /// Checks a token: [`super::effect::Reply::Verified`] follows.
    pub(crate) fn verify(
        &mut self,
        token: Option<Box<str>>,
        app: Option<Box<str>>,
        request: impl ClientRequest,
    ) {
        self.effects.push(Effect::Verify { token, app, request: Box::new(request) });
    }

    /// Logs in with a verified token. `resume`: the last message that the client has.
    pub(crate) fn attach(&mut self, identity: Identity, topics: Vec<Topic>, resume: Option<NotificationId>) {
        self.effects.push(Effect::Attach(Box::new(Attach { identity, topics, resume })));
    }

    /// Lets topic rules decide: [`super::effect::Reply::Decided`] follows.
    pub(crate) fn authorize(&mut self, request: impl ClientRequest) {
        self.effects.push(Effect::Authorize(Box::new(request)));
    }

    /// Replaces the session's token: [`super::effect::Reply::Renewed`] follows.
    pub(crate) fn renew_token(&mut self, token: &str, request: impl ClientRequest) {
        self.effects.push(Effect::RenewToken { token: token.into(), request: Box::new(request) });
    }

    /// Continues behind the effects so far: [`super::effect::Reply::Continue`] follows.
    pub(crate) fn continue_with(&mut self, request: impl ClientRequest) {
        self.effects.push(Effect::Continue(Box::new(request)));
    }

    /// The time for a ping, or for the answer to one, has come. True if the caller must send a ping now.
    pub(crate) fn needs_ping(&mut self) -> bool {
        let (interval, timeout) = (self.config().ping_interval, ticks(self.config().ping_timeout));
        let state = *self.ping;
        match state {
            Ping::None => {
                *self.ping = Ping::Sent;
                self.set_timeout(self.now.tick.saturating_add(timeout));
            }
            Ping::Answered => {
                *self.ping = Ping::None;
                let next = self.now.tick_after(interval).saturating_sub(timeout);
                self.set_timeout(next.max(self.now.tick + 1));
            }
            Ping::Sent => self.close(CloseReason::PingTimeout),
        }
        state == Ping::None
    }

    /// Takes a frame off the connection's allowance. False, and the connection closes, if none is left.
    pub(crate) fn take_frame(&mut self, rate: Option<Rate>) -> bool {
        *self.frames_in += 1;
        let rate = rate.unwrap_or_else(|| self.services.frame_rate());
        let taken = self.frames.take(rate, self.now.ms32());
        if !taken {
            self.close(CloseReason::RateLimited);
        }
        taken
    }

    /// Whether devices may log in now; if not, the connection closes.
    pub(crate) fn admits(&mut self) -> bool {
        if let Some(reason) = self.facts.turns_away {
            self.services.metrics.admission_refused.inc();
            self.close(reason);
        }
        self.facts.turns_away.is_none()
    }

    pub(crate) fn report_refusal(&mut self, why: impl Into<Box<str>>) {
        self.effects.push(Effect::ReportRefusal(why.into()));
    }

    /// The shard calls `handle_timeout` at this tick.
    pub(crate) fn set_timeout(&mut self, tick: u32) {
        *self.timeout_tick = tick;
    }

    pub(crate) fn clear_timeout(&mut self) {
        self.set_timeout(u32::MAX);
    }

    /// The shard calls `handle_deadline` at this tick, or closes a connection that is not open yet.
    pub(crate) fn set_deadline(&mut self, tick: u32) {
        *self.deadline_tick = tick;
    }

    pub(crate) fn clear_deadline(&mut self) {
        self.set_deadline(u32::MAX);
    }

    /// Runs a job outside the shard. `Adapter::handle_done` follows with `done`, which gets None if the job panicked.
    pub(crate) fn run<T, D: Completed>(
        &self,
        job: impl Future<Output = T> + Send + 'static,
        done: impl FnOnce(Option<T>) -> D + Send + 'static,
    ) {
        let (shard, at) = (self.facts.shard, self.facts.at());
        let (network, services) = (self.peers.network.clone(), self.services.clone());
        self.delivery.work(async move {
            let result = AssertUnwindSafe(job).catch_unwind().await.ok();
            if result.is_none() {
                services.metrics.panics.inc();
            }
            network.complete(shard, at, Box::new(done(result)));
        });
    }

    /// Counts a subscription that only the app's quota refuses.
    pub(crate) fn count_over_subscriptions(&self, app: AppId, most: usize) {
        if most < limits::TOPICS_PER_DEVICE_MAX {
            let _ = self.delivery.quotas.refused(app, Quota::SubscriptionsPerDevice);
        }
    }

    /// A number below `below`, to spread load. Not for secrets.
    pub(crate) fn jitter(&mut self, below: u64) -> u64 {
        self.jitter.draw(below)
    }

    /// Whether the client may publish to the topic of a request. If the app has rules for publishing, only they decide;
    /// otherwise the app's filters do.
    pub(crate) fn publishes(&self, topic: &Topic, Decided { rules, verdicts }: &Decided) -> bool {
        let Some(session) = self.session else { return false };
        match rules.as_ref().is_some_and(|rules| rules.rules.rules(Action::Publish).is_some()) {
            true => verdicts.first().is_some_and(|(_, verdict)| *verdict == Verdict::Allowed),
            false => self.services.may_publish(session.app, topic),
        }
    }
}
