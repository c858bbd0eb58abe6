//! A running campaign, compiled: what is rendered for a recipient, when, and at which rate.
//!
//! Created once from the stored request, and shared by the collector and the senders. Content that is the same for many
//! recipients (a variant without placeholders) is rendered once and shared.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use noroshi_push::{Content, Fields};
use noroshi_store::{Attributes, Campaign, NewVariant, PushRecipient, VariantNum, VariantSums};
use noroshi_types::local_time;
use noroshi_types::{AppId, CampaignId, Invalid, JsonText, Label, NotificationId, Timestamp, TokenKey};
use parking_lot::Mutex;

use crate::campaign::pacer::Pacer;
use crate::campaign::schedule::Schedule;
use crate::campaign::spec::{Audience, Spec};
use crate::campaign::trial::{Treatment, Trial};
use crate::campaign::upload::Own;
use crate::definition::Group;
use crate::template::{self, Template, Variables};
use crate::texts::Texts;

/// Shared contents that are kept: variants × due times of an ordinary campaign. Further ones are rendered each time.
const SHARED_MAX: usize = 4_096;

/// Why a recipient gets nothing: a placeholder has neither a value nor a default.
pub(crate) const MISSING_VARIABLE: &str = "missing_variable";
/// Neither the uploaded line nor the campaign has a message.
pub(crate) const NO_CONTENT: &str = "no_content";
/// The stored line is unreadable.
pub(crate) const BAD_LINE: &str = "bad_line";
/// The device belongs to another user now, who is not in the upload.
pub(crate) const NOT_UPLOADED: &str = "not_uploaded";

pub(crate) struct Plan {
    pub(crate) id: CampaignId,
    pub(crate) app: AppId,
    pub(crate) spec: Spec,
    pub(crate) schedule: Schedule,
    notification: NotificationId,
    message: Message,
    /// Set if the campaign sends the variants of an experiment.
    experiment: Option<ExperimentPlan>,
    /// Guards only the map.
    shared: Mutex<HashMap<ContentKey, Arc<Content>>>,
    /// Guards only the pacer. `None`: no rate.
    pacer: Option<Mutex<Pacer>>,
    zero: Instant,
}

/// The key of a shared content: the variant of the experiment, the language tag, and the expiry.
type ContentKey = (Option<VariantNum>, Option<String>, Timestamp);

/// The variants of an experiment, in the order of its definition.
struct ExperimentPlan {
    group: Group,
    variants: Vec<VariantPlan>,
}

struct VariantPlan {
    notification: NotificationId,
    /// `None`: nothing is sent.
    message: Option<Message>,
}

/// One message in all its languages.
struct Message {
    texts: Templates,
    locales: BTreeMap<String, Templates>,
}

struct Templates {
    notification: Option<Template>,
    data: Option<Template>,
}

impl Plan {
    /// For a campaign that has not started, `now` counts as its start.
    pub(crate) fn new(campaign: &Campaign, now: Timestamp) -> Result<Self, Invalid> {
        let spec = Spec::from_json(&campaign.spec)?;
        let message = Message::parse(&own(&spec), &spec.locales)?;
        let experiment =
            spec.trial.as_ref().map(|trial| ExperimentPlan::new(campaign, &spec, trial)).transpose()?;
        Ok(Self {
            id: campaign.id,
            app: campaign.app,
            schedule: spec.schedule(campaign.started_at.unwrap_or(now)),
            notification: campaign.notification,
            message,
            experiment,
            shared: Mutex::default(),
            pacer: spec.rate_per_second.map(|rate| Mutex::new(Pacer::new(rate))),
            zero: Instant::now(),
            spec,
        })
    }

    /// When a device is due; the same at every call.
    pub(crate) fn due_at(&self, attributes: &Attributes) -> Timestamp {
        match self.schedule.is_local() {
            true => self.schedule.due_at(&local_time::zone(attributes.timezone.as_deref())),
            false => self.schedule.start,
        }
    }

    /// The end of the quiet hours that a device is in, if it is.
    pub(crate) fn quiet_until(&self, attributes: &Attributes, now: Timestamp) -> Option<Timestamp> {
        let quiet = self.schedule.quiet_hours?;
        quiet.until(now, &local_time::zone(attributes.timezone.as_deref()))
    }

    pub(crate) fn expires_at(&self, attributes: &Attributes) -> Timestamp {
        self.due_at(attributes).saturating_add(self.spec.message.ttl.duration())
    }

    /// The variant of a recipient, or [`VariantNum::NO_VARIANT`] outside the audience of the experiment. `None`: the
    /// campaign has no experiment.
    pub(crate) fn draw(&self, recipient: &PushRecipient) -> Option<VariantNum> {
        let PushRecipient { user, id, attributes, .. } = recipient;
        let place = self.experiment.as_ref()?.group.place_of(user.as_ref(), id, attributes);
        let number = place.and_then(|place| u8::try_from(place + 1).ok());
        Some(number.map_or(VariantNum::NO_VARIANT, VariantNum))
    }

    /// Whether recipients with this variant get nothing.
    pub(crate) fn holds_out(&self, variant: Option<VariantNum>) -> bool {
        self.variant(variant).is_some_and(|variant| variant.message.is_none())
    }

    fn variant(&self, variant: Option<VariantNum>) -> Option<&VariantPlan> {
        self.experiment.as_ref()?.variants.get(usize::from(variant?.0).checked_sub(1)?)
    }

    fn message(&self, variant: Option<VariantNum>) -> &Message {
        self.variant(variant).and_then(|variant| variant.message.as_ref()).unwrap_or(&self.message)
    }

    /// The content for a push service, or the reason why the recipient gets nothing.
    pub(crate) fn content(
        &self,
        recipient: &PushRecipient,
        variant: Option<VariantNum>,
    ) -> Result<Arc<Content>, &'static str> {
        let expires_at = self.expires_at(&recipient.attributes);
        let (tag, texts) = self.message(variant).texts(&recipient.attributes);
        let make = || {
            let rendered = self.render(recipient, variant)?;
            Ok(Arc::new(Content::new(self.fields(rendered, variant, expires_at))))
        };
        let of_own = self.spec.audience == Audience::Upload || recipient.line.is_some();
        if of_own || !texts.is_constant() {
            return make();
        }
        let key = (variant, tag.map(str::to_owned), expires_at);
        if let Some(content) = self.shared.lock().get(&key) {
            return Ok(content.clone());
        }
        let content = make()?;
        let mut shared = self.shared.lock();
        if shared.len() < SHARED_MAX {
            return Ok(shared.entry(key).or_insert(content).clone());
        }
        Ok(content)
    }

    pub(crate) fn render(
        &self,
        recipient: &PushRecipient,
        variant: Option<VariantNum>,
    ) -> Result<Texts, &'static str> {
        if self.spec.audience == Audience::Upload && recipient.line.is_none() {
            return Err(NOT_UPLOADED);
        }
        let own = recipient.line.as_ref().map(Own::from_json).transpose().map_err(|_| BAD_LINE)?;
        let own = own.unwrap_or_default();
        let (_, texts) = self.message(variant).texts(&recipient.attributes);
        let variables = Variables { own: &own.variables, defaults: &self.spec.variables };
        let one = |given: Option<JsonText>, template: &Option<Template>| match (given, template) {
            (Some(given), _) => Ok(Some(given)),
            (None, Some(template)) => template.render(variables).map(Some).map_err(|_| MISSING_VARIABLE),
            (None, None) => Ok(None),
        };
        let rendered = Texts {
            notification: one(own.notification, &texts.notification)?,
            data: one(own.data, &texts.data)?,
        };
        match rendered.is_empty() {
            true => Err(NO_CONTENT),
            false => Ok(rendered),
        }
    }

    fn fields(&self, rendered: Texts, variant: Option<VariantNum>, expires_at: Timestamp) -> Fields {
        let notification = self.variant(variant).map_or(self.notification, |variant| variant.notification);
        let message = &self.spec.message;
        Fields {
            notification_id: Some(notification),
            notification: rendered.notification,
            data: rendered.data,
            urgency: message.urgency,
            collapse_key: message.collapse_key.clone(),
            expires_at,
            unread: None,
            kind: message.push.token.as_ref().map(TokenKey::kind),
            own: message.push.own.clone(),
        }
    }

    /// When these recipients may be sent, if the campaign has a rate.
    pub(crate) fn turn(&self, recipients: usize) -> Option<Instant> {
        let pacer = self.pacer.as_ref()?;
        Some(self.zero + pacer.lock().turn(self.zero.elapsed(), recipients))
    }

    /// How far ahead turns are assigned, if the campaign has a rate.
    pub(crate) fn ahead(&self) -> Option<std::time::Duration> {
        Some(self.pacer.as_ref()?.lock().wait(self.zero.elapsed()))
    }
}

/// The notifications under which the variants of a campaign's experiment are recorded.
pub(crate) fn notifications(spec: &Spec) -> Vec<NewVariant> {
    let shown = |name: &Label| match spec.trial.as_ref().and_then(|trial| trial.treatments.get(name)) {
        None => own(spec),
        Some(Treatment::HoldOut) => Texts::default(),
        Some(Treatment::Own(message)) => message.content.or(&own(spec)),
    };
    let shown = spec.trial.iter().flat_map(Trial::names).map(shown);
    shown.map(|Texts { notification, data }| NewVariant { notification, data }).collect()
}

/// The campaign's message.
fn own(spec: &Spec) -> Texts {
    Texts { notification: spec.message.notification.clone(), data: spec.message.data.clone() }
}

impl ExperimentPlan {
    fn new(campaign: &Campaign, spec: &Spec, trial: &Trial) -> Result<Self, Invalid> {
        let unreadable = || Invalid::new("a stored campaign has variants of an experiment that is not known");
        let definition = trial.definition.clone().ok_or_else(unreadable)?;
        if definition.variants.len() != campaign.variants.len() {
            return Err(unreadable());
        }
        let plan = |(name, sums): (&Label, &VariantSums)| {
            let message = match trial.treatments.get(name) {
                None => Some(Message::parse(&own(spec), &spec.locales)?),
                Some(Treatment::HoldOut) => None,
                Some(Treatment::Own(message)) => {
                    Some(Message::parse(&message.content.or(&own(spec)), &message.locales)?)
                }
            };
            Ok(VariantPlan { notification: sums.notification, message })
        };
        let variants = trial.names().zip(&campaign.variants).map(plan).collect::<Result<_, Invalid>>()?;
        Ok(Self { group: Group::new(trial.experiment.clone(), definition), variants })
    }
}

impl Message {
    fn parse(whole: &Texts, locales: &BTreeMap<String, Texts>) -> Result<Self, Invalid> {
        let locale =
            |(tag, variant): (&String, &Texts)| Ok((tag.clone(), Templates::parse(&variant.or(whole))?));
        let locales = locales.iter().map(locale).collect::<Result<_, Invalid>>()?;
        Ok(Self { texts: Templates::parse(whole)?, locales })
    }

    /// The texts in the device's language, with its tag, or those of the message.
    fn texts(&self, attributes: &Attributes) -> (Option<&str>, &Templates) {
        match template::lookup(&self.locales, attributes.locale.as_deref()) {
            Some((tag, texts)) => (Some(tag), texts),
            None => (None, &self.texts),
        }
    }
}

impl Templates {
    fn parse(content: &Texts) -> Result<Self, Invalid> {
        let template = |text: &Option<JsonText>| text.clone().map(Template::parse).transpose();
        Ok(Self { notification: template(&content.notification)?, data: template(&content.data)? })
    }

    fn is_constant(&self) -> bool {
        [&self.notification, &self.data].into_iter().flatten().all(Template::is_constant)
    }
}

#[cfg(test)]
pub(crate) mod tests;
