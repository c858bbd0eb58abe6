//! Live Activities: a state that devices show for hours, such as a score or a delivery, and that one call updates on all
//! of them.
//!
//! ```text
//!   start · update · end ──► Store (newest state, slices due) ──► push::activity ──► push services
//!            └──► Publisher: the same state as a collapsing message for connected devices
//! ```
//!
//! An update writes the newest state and marks slices of devices due; nothing is queued for each update. `push::activity`
//! collects the devices and sends. This module decides what an update means: it never calls a push service.
//!
//! Order: the state is committed first, and then published. After a crash in between, the provider has no answer and
//! repeats its call; a state is complete, so a repetition does no harm.

mod budget;
pub(crate) mod content;
pub mod spec;

use std::sync::Arc;
use std::time::Duration;

use noroshi_push::Fields;
use noroshi_store::{
    Activity, ActivityChange, ActivityMember, ActivityProgress, Idempotency, Joined, NewActivity,
};
use noroshi_types::{
    ActivityId, AppId, Category, DeviceId, DeviceNum, NotificationId, Push, Request, Target, Timestamp,
    TokenKey, TokenKind, Ttl, Urgency, limits,
};

use crate::cluster::Nodes;
use crate::context::Context;
use crate::error::Error;
use crate::publish::Publisher;
use crate::push_work::PushWork;

pub use content::ID_ATTRIBUTE;
pub use spec::{Alert, Spec, State, Update};

use content::{Form, Version};

/// Attempts of an update that others overtake.
const ATTEMPTS_MAX: usize = 32;

/// What a provider starts.
#[derive(Debug, Clone)]
pub struct Start {
    pub id: ActivityId,
    pub target: Target,
    pub spec: Spec,
    pub first: Update,
    pub ttl: Duration,
    /// Any device of the app that reports a token joins, not only those of the target.
    pub joinable: bool,
}

/// An activity with what is stored of it.
#[derive(Debug, Clone)]
pub struct Shown {
    pub activity: Activity,
    pub spec: Spec,
    pub state: State,
    /// Updates with a high priority that the budget has left.
    pub high_left: u32,
}

/// What became of a change.
#[derive(Debug, Clone)]
pub struct Changed {
    pub shown: Shown,
    /// The change has a high priority.
    pub high: bool,
    /// The message for connected devices; `None`: the node had no room for it, and it was not to be stored.
    pub notification: Option<NotificationId>,
    /// The answer repeats that of an earlier request with the same idempotency key.
    pub replayed: bool,
}

pub struct Activities {
    pub(crate) context: Arc<Context>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) work: Arc<PushWork>,
}

impl Activities {
    /// Starts an activity. Not cancel-safe.
    pub async fn start(
        &self,
        app: AppId,
        start: Start,
        idempotency: Option<Idempotency>,
    ) -> Result<Changed, Error> {
        self.nodes.require_activities()?;
        let now = self.context.now();
        let Start { id, target, spec, first, ttl, joinable } = start;
        let spec =
            Spec { named: matches!(target, Target::Users(_) | Target::Devices(_)) && !joinable, ..spec };
        let new = NewActivity {
            app,
            id,
            spec: spec.to_json(),
            target: spec::target_json(&target),
            state: State::new(first, now).to_json(),
            // As for notifications: a message of a topic is addressed to the device, regardless of its user.
            of_users: matches!(target, Target::Users(_) | Target::Devices(_) | Target::Condition(_)),
            joinable,
            expires_at: now.saturating_add(ttl),
            idempotency,
        };
        let created = self.context.store.create_activity(new, now).await?;
        self.work.wake_activities();
        let shown = shown(created.activity, now)?;
        // The first answer may have been lost with the message.
        let notification = match shown.activity.version {
            1 => self.publish(&shown, target).await?,
            _ => None,
        };
        Ok(Changed { high: true, notification, replayed: created.replayed, shown })
    }

    /// Sets a new state. Not cancel-safe.
    pub async fn update(&self, app: AppId, id: &ActivityId, update: Update) -> Result<Changed, Error> {
        self.change(app, id, |shown, now| {
            let frequent = shown.spec.frequent_updates;
            let (next, high) = shown.state.next(update.clone(), shown.activity.version + 1, frequent, now);
            (next, high, None)
        })
        .await
    }

    /// Ends an activity with its last state. Not cancel-safe.
    pub async fn end(
        &self,
        app: AppId,
        id: &ActivityId,
        last: Update,
        dismiss_at: Option<Timestamp>,
    ) -> Result<Changed, Error> {
        self.change(app, id, |shown, now| {
            let next = shown.state.end(last.clone(), shown.activity.version + 1, dismiss_at, (false, now));
            (next, true, Some(now.saturating_add(limits::ACTIVITY_RETENTION)))
        })
        .await
    }

    /// Ends an activity whose time is over.
    pub(crate) async fn expire(&self, app: AppId, id: &ActivityId) -> Result<(), Error> {
        let expired = self.change(app, id, |shown, now| {
            let next = shown.state.end(Update::default(), shown.activity.version + 1, None, (true, now));
            (next, true, Some(now.saturating_add(limits::ACTIVITY_RETENTION)))
        });
        expired.await.map(drop)
    }

    async fn change(
        &self,
        app: AppId,
        id: &ActivityId,
        next: impl Fn(&Shown, Timestamp) -> (State, bool, Option<Timestamp>) + Send + Sync,
    ) -> Result<Changed, Error> {
        self.nodes.require_activities()?;
        for _ in 0..ATTEMPTS_MAX {
            let now = self.context.now();
            let found = self.context.store.activity(app, id).await?;
            let activity = found.ok_or(noroshi_store::Error::NotFound)?;
            if activity.ended_at.is_some() {
                return Err(noroshi_store::Error::Conflict.into());
            }
            let (from, target) = (activity.version, activity.target.clone());
            let target = target.as_ref().map(spec::target_of).transpose().map_err(unreadable)?;
            let before = shown(activity, now)?;
            let (state, high, forget_at) = next(&before, now);
            let change = ActivityChange { app, id: id.clone(), from, state: state.to_json(), forget_at };
            let activity = match self.context.store.change_activity(change, now).await {
                Ok(activity) => activity,
                // Another update came first; this one builds on it.
                Err(noroshi_store::Error::Conflict) => continue,
                Err(error) => return Err(error.into()),
            };
            self.work.wake_activities();
            let shown = shown(activity, now)?;
            let notification = match target {
                Some(target) => self.publish(&shown, target).await?,
                None => None,
            };
            return Ok(Changed { shown, high, notification, replayed: false });
        }
        Err(Error::Overloaded)
    }

    /// The state for connected devices. A message that is not stored may be dropped when the node has no room: the next
    /// one replaces it anyway.
    async fn publish(&self, shown: &Shown, target: Target) -> Result<Option<NotificationId>, Error> {
        let Shown { activity, spec, .. } = shown;
        let version = shown.version(activity.version.saturating_sub(1));
        let until =
            activity.ended_at.map_or(activity.expires_at, |at| at.saturating_add(limits::ACTIVITY_RETENTION));
        let ttl = until.saturating_since(activity.updated_at).min(limits::TTL_MAX);
        let request = Request {
            target,
            when: spec.when,
            ttl: Ttl::new(ttl).unwrap_or_default(),
            urgency: Urgency::Normal,
            waits_for_use: false,
            // The user starts and ends it on the device.
            category: Some(Category::exempt(None)),
            collapse_key: Some(activity.id.as_str().into()),
            retain: false,
            notification: version.shown(),
            data: Some(version.live()),
            item: None,
            push: Push::default(),
            trace: None,
        };
        match self.publisher.publish(activity.app, request, None).await {
            Ok(receipt) => Ok(Some(receipt.id)),
            Err(Error::Overloaded | Error::NoRoom { .. } | Error::OverQuota(_))
                if spec.when != noroshi_types::When::Stored =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// With its target. `None`: the app has no activity of this id.
    pub async fn find(&self, app: AppId, id: &ActivityId) -> Result<Option<Shown>, Error> {
        let found = self.context.store.activity(app, id).await?;
        found.map(|activity| shown(activity, self.context.now())).transpose()
    }

    /// How far its newest state has come.
    pub async fn progress(&self, of: &Shown) -> Result<ActivityProgress, Error> {
        Ok(self.context.store.activity_progress(of.activity.num).await?)
    }

    /// The newest first: those before `before`.
    pub async fn list(&self, app: AppId, before: Option<u64>, limit: usize) -> Result<Vec<Shown>, Error> {
        let now = self.context.now();
        let found = self.context.store.activities(app, before, limit).await?;
        found.into_iter().map(|activity| shown(activity, now)).collect()
    }

    /// A device that takes part; `None`: it does not.
    pub async fn member(&self, of: &Shown, device: &DeviceId) -> Result<Option<ActivityMember>, Error> {
        let attributes = &of.spec.attributes_type;
        Ok(self.context.store.activity_member(of.activity.num, device, attributes).await?)
    }

    /// A device registered a token: if it is that of an activity, the device joins, and gets the newest state unless it
    /// has it.
    pub async fn joined(&self, app: AppId, device: DeviceNum, key: &TokenKey) -> Result<(), Error> {
        if key.kind() != TokenKind::LiveActivity {
            return Ok(());
        }
        let Ok(id) = ActivityId::parse(key.name()) else { return Ok(()) };
        if self.context.store.join_activity(app, &id, device, self.context.now()).await? == Joined::Behind {
            self.work.wake_activities();
        }
        Ok(())
    }
}

impl Shown {
    /// `None`: it was not read.
    pub fn target(&self) -> Result<Option<Target>, Error> {
        self.activity.target.as_ref().map(spec::target_of).transpose().map_err(unreadable)
    }

    /// The newest version for devices that have version `has`.
    pub(crate) fn version(&self, has: u64) -> Version<'_> {
        Version {
            id: &self.activity.id,
            spec: &self.spec,
            state: &self.state,
            version: self.activity.version,
            has,
            expires_at: self.activity.expires_at,
            ended_at: self.activity.ended_at,
        }
    }
}

/// What push services would get of a start, to check it before it is accepted.
pub fn fields_of_start(start: &Start, now: Timestamp) -> Vec<Fields> {
    let state = State::new(start.first.clone(), now);
    of_all_forms(&start.id, &start.spec, &state, now)
}

/// What push services would get of an update, to check it before it is accepted.
pub fn fields_of_update(
    id: &ActivityId,
    spec: &Spec,
    state: &State,
    update: &Update,
    now: Timestamp,
) -> Vec<Fields> {
    let (next, _) = state.next(update.clone(), u64::MAX, false, now);
    // A later device is started with it.
    of_all_forms(id, spec, &next, now)
}

fn of_all_forms(id: &ActivityId, spec: &Spec, state: &State, now: Timestamp) -> Vec<Fields> {
    let expires_at = now.saturating_add(limits::ACTIVITY_TTL_MAX);
    let version = Version { id, spec, state, version: u64::MAX, has: 0, expires_at, ended_at: None };
    [Form::Start, Form::Update, Form::Android(true)].map(|form| version.fields(form)).into()
}

/// With what is stored of it.
pub(crate) fn shown(activity: Activity, now: Timestamp) -> Result<Shown, Error> {
    let spec = Spec::from_json(&activity.spec).map_err(unreadable)?;
    let state = State::from_json(&activity.state).map_err(unreadable)?;
    let high_left = state.budget.left(spec.frequent_updates, now);
    Ok(Shown { activity, spec, state, high_left })
}

/// Written by a newer program, or damaged.
#[allow(clippy::needless_pass_by_value)] // for `map_err`
fn unreadable(error: noroshi_types::Invalid) -> Error {
    noroshi_store::Error::Engine(format!("invalid stored activity: {error}")).into()
}
