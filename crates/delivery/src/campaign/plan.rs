//! A running campaign, compiled: what is rendered for a recipient, when, and how fast.
//!
//! Made once from the stored request and shared by the collector and the senders. What is the same for many
//! recipients (a variant without placeholders) is rendered once and shared by all of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use noroshi_push::{Content, Fields};
use noroshi_store::{Attributes, Campaign, PushRecipient};
use noroshi_types::{AppId, CampaignId, Invalid, JsonText, NotificationId, Timestamp};
use parking_lot::Mutex;

use crate::campaign::bucket::Bucket;
use crate::campaign::line::Own;
use crate::campaign::schedule::{self, Schedule};
use crate::campaign::spec::{Audience, Spec};
use crate::campaign::template::{self, Template, Variables};

/// Contents that are kept for sharing: variants × due times of an ordinary campaign. Beyond it they are
/// rendered anew.
const SHARED_MAX: usize = 4_096;

/// Why a recipient gets nothing: no word for a placeholder, and no default.
pub(crate) const MISSING_VARIABLE: &str = "missing_variable";
/// An uploaded line without a message of its own, in a campaign without one.
pub(crate) const NO_CONTENT: &str = "no_content";
/// The stored line cannot be read.
pub(crate) const BAD_LINE: &str = "bad_line";
/// The device is another user's now, of whom the upload says nothing.
pub(crate) const NOT_UPLOADED: &str = "not_uploaded";

pub(crate) struct Plan {
    pub(crate) id: CampaignId,
    pub(crate) app: AppId,
    pub(crate) spec: Spec,
    pub(crate) schedule: Schedule,
    notification: NotificationId,
    message: Texts,
    variants: BTreeMap<String, Texts>,
    /// Guards only the map.
    shared: Mutex<HashMap<Variety, Arc<Content>>>,
    /// Guards only the bucket. None: as fast as it goes.
    bucket: Option<Mutex<Bucket>>,
    zero: Instant,
}

/// What a shared content differs by: the variant's language tag, and when it expires.
type Variety = (Option<String>, Timestamp);

struct Texts {
    notification: Option<Template>,
    data: Option<Template>,
}

/// What is shown and carried, for one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rendered {
    pub(crate) notification: Option<JsonText>,
    pub(crate) data: Option<JsonText>,
}

impl Plan {
    /// `now` stands for the start of a campaign that has not started.
    pub(crate) fn new(campaign: &Campaign, now: Timestamp) -> Result<Self, Invalid> {
        let spec = Spec::from_json(&campaign.spec)?;
        let message = Texts::parse(spec.message.notification.as_ref(), spec.message.data.as_ref())?;
        let mut variants = BTreeMap::new();
        for (tag, variant) in &spec.locales {
            let notification = variant.notification.as_ref().or(spec.message.notification.as_ref());
            let texts = Texts::parse(notification, variant.data.as_ref().or(spec.message.data.as_ref()))?;
            variants.insert(tag.clone(), texts);
        }
        Ok(Self {
            id: campaign.id,
            app: campaign.app,
            schedule: spec.schedule(campaign.started_at.unwrap_or(now)),
            notification: campaign.notification,
            message,
            variants,
            shared: Mutex::default(),
            bucket: spec.rate_per_second.map(|rate| Mutex::new(Bucket::new(rate))),
            zero: Instant::now(),
            spec,
        })
    }

    /// When a device is due; the same at every call.
    pub(crate) fn due_at(&self, attributes: &Attributes) -> Timestamp {
        match self.schedule.is_local() {
            true => self.schedule.due_at(&schedule::zone(attributes.timezone.as_deref())),
            false => self.schedule.start,
        }
    }

    /// When the quiet hours of a device end that it is in.
    pub(crate) fn quiet_until(&self, attributes: &Attributes, now: Timestamp) -> Option<Timestamp> {
        let quiet = self.schedule.quiet_hours?;
        quiet.until(now, &schedule::zone(attributes.timezone.as_deref()))
    }

    pub(crate) fn expires_at(&self, attributes: &Attributes) -> Timestamp {
        self.due_at(attributes).saturating_add(self.spec.message.ttl.duration())
    }

    /// What a push service gets for this recipient, or why it gets nothing.
    pub(crate) fn content(&self, recipient: &PushRecipient) -> Result<Arc<Content>, &'static str> {
        let expires_at = self.expires_at(&recipient.attributes);
        let variant = self.variant(&recipient.attributes);
        let texts = variant.map_or(&self.message, |(_, texts)| texts);
        let of_own = self.spec.audience == Audience::Upload || recipient.line.is_some();
        if of_own || !texts.is_constant() {
            return Ok(Arc::new(Content::new(self.fields(self.render(recipient)?, expires_at))));
        }
        let key = (variant.map(|(tag, _)| tag.to_owned()), expires_at);
        if let Some(content) = self.shared.lock().get(&key) {
            return Ok(content.clone());
        }
        let content = Arc::new(Content::new(self.fields(self.render(recipient)?, expires_at)));
        let mut shared = self.shared.lock();
        if shared.len() < SHARED_MAX {
            return Ok(shared.entry(key).or_insert(content).clone());
        }
        Ok(content)
    }

    pub(crate) fn render(&self, recipient: &PushRecipient) -> Result<Rendered, &'static str> {
        if self.spec.audience == Audience::Upload && recipient.line.is_none() {
            return Err(NOT_UPLOADED);
        }
        let own = recipient.line.as_ref().map(Own::from_json).transpose().map_err(|_| BAD_LINE)?;
        let own = own.unwrap_or_default();
        let texts = self.variant(&recipient.attributes).map_or(&self.message, |(_, texts)| texts);
        let variables = Variables { own: &own.variables, defaults: &self.spec.variables };
        let one = |given: Option<JsonText>, template: &Option<Template>| match (given, template) {
            (Some(given), _) => Ok(Some(given)),
            (None, Some(template)) => template.render(variables).map(Some).map_err(|_| MISSING_VARIABLE),
            (None, None) => Ok(None),
        };
        let rendered = Rendered {
            notification: one(own.notification, &texts.notification)?,
            data: one(own.data, &texts.data)?,
        };
        match rendered.notification.is_none() && rendered.data.is_none() {
            true => Err(NO_CONTENT),
            false => Ok(rendered),
        }
    }

    fn variant(&self, attributes: &Attributes) -> Option<(&str, &Texts)> {
        template::lookup(&self.variants, attributes.locale.as_deref())
    }

    fn fields(&self, rendered: Rendered, expires_at: Timestamp) -> Fields {
        let message = &self.spec.message;
        Fields {
            notification_id: Some(self.notification),
            notification: rendered.notification,
            data: rendered.data,
            urgency: message.urgency,
            collapse_key: message.collapse_key.clone(),
            expires_at,
            apns: message.push.apns.clone(),
            fcm: message.push.fcm.clone(),
            webpush: message.push.webpush.clone(),
        }
    }

    /// When these recipients may be sent, if the campaign has a rate.
    pub(crate) fn turn(&self, recipients: usize) -> Option<Instant> {
        let bucket = self.bucket.as_ref()?;
        Some(self.zero + bucket.lock().turn(self.zero.elapsed(), recipients))
    }

    /// How far ahead its turns are given away, if the campaign has a rate.
    pub(crate) fn ahead(&self) -> Option<std::time::Duration> {
        Some(self.bucket.as_ref()?.lock().wait(self.zero.elapsed()))
    }
}

impl Texts {
    fn parse(notification: Option<&JsonText>, data: Option<&JsonText>) -> Result<Self, Invalid> {
        let template = |text: Option<&JsonText>| text.cloned().map(Template::parse).transpose();
        Ok(Self { notification: template(notification)?, data: template(data)? })
    }

    fn is_constant(&self) -> bool {
        [&self.notification, &self.data].into_iter().flatten().all(Template::is_constant)
    }
}

#[cfg(test)]
pub(crate) mod tests;
