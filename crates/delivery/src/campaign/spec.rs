//! A campaign's request, checked: recipients, message, time and rate.
//!
//! The API parses a request into a [`Spec`]; [`Spec::check`] holds every rule that spans fields. The store keeps it as
//! JSON (`stored`), and every later start reads it back. It never changes after the campaign was created.

use std::collections::BTreeMap;

use noroshi_store::Attributes;
use noroshi_types::local_time::{LocalTime, QuietHours};
use noroshi_types::{
    Invalid, JsonText, Label, Lane, Push, Timestamp, Topic, TraceContext, Ttl, Urgency, When, limits,
};

use crate::campaign::schedule::Schedule;
use crate::campaign::trial::{OwnMessage, Trial};
use crate::filter::Filter;
use crate::template::{NAME_BYTES_MAX, Template};
use crate::texts::{Texts, check_locales};

mod stored;

pub use crate::campaign::audience::Audience;
pub use crate::template::LOCALES_MAX;

pub const NAME_MAX: usize = 255;
pub const VARIABLES_MAX: usize = 100;
pub const VARIABLE_BYTES_MAX: usize = 1_024;
pub const BATCH_SIZE_MAX: u32 = limits::CAMPAIGN_BATCH_MAX;
/// Far above what any push service accepts from one app.
pub const RATE_MAX: u32 = 1_000_000;

/// A campaign's request.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    pub name: Option<String>,
    pub audience: Audience,
    /// Selects devices of the audience. Not for uploaded audiences.
    pub filter: Filter,
    pub message: CampaignMessage,
    /// By language tag; a missing part is taken from the message.
    pub locales: BTreeMap<String, Texts>,
    /// Set if the campaign sends the variants of an experiment.
    pub trial: Option<Trial>,
    /// Defaults of placeholders, for recipients without a value of their own.
    pub variables: BTreeMap<String, String>,
    /// The earliest time; `None`: as soon as the campaign is started.
    pub start_at: Option<Timestamp>,
    pub local_time: Option<LocalTime>,
    /// Ignored if the urgency is high.
    pub quiet_hours: Option<QuietHours>,
    /// Recipients a second, 1 to [`RATE_MAX`].
    pub rate_per_second: Option<u32>,
    /// [`Lane::Extra`] or [`Lane::Campaign`].
    pub lane: Lane,
    /// Recipients in one batch, 1 to [`BATCH_SIZE_MAX`].
    pub batch_size: u32,
    /// Whether the campaign starts, or waits for `start_at`, when it is created. Otherwise it is a draft until it is
    /// started.
    pub start: bool,
    /// The trace of the request that created it, to which everything that it sends belongs.
    pub trace: Option<TraceContext>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CampaignMessage {
    pub notification: Option<JsonText>,
    pub data: Option<JsonText>,
    pub urgency: Urgency,
    /// Counted from the time a device is due.
    pub ttl: Ttl,
    pub collapse_key: Option<Box<str>>,
    /// `None`: only push services. Otherwise each batch is an ordinary notification to its devices.
    pub when: Option<When>,
    pub push: Push,
    /// What preferences decide by.
    pub category: Option<Label>,
}

impl Spec {
    /// Checks the rules that span fields. The error names field and rule.
    pub fn check(self) -> Result<Self, Invalid> {
        let refuse = |rule: &'static str| Err(Invalid::new(rule));
        if self.name.as_ref().is_some_and(|name| name.is_empty() || name.len() > NAME_MAX) {
            return refuse("name: 1 to 255 bytes");
        }
        if self.audience == Audience::Upload && !self.filter.is_empty() {
            return refuse("audience.devices: uploaded users are not filtered");
        }
        if self.audience == Audience::Upload && self.start {
            return refuse("start: an upload audience is started when its recipients are there");
        }
        if self.lane == Lane::Direct {
            return refuse("lane: `campaign` or `extra`");
        }
        if !(1..=BATCH_SIZE_MAX).contains(&self.batch_size) {
            return refuse("batch_size: 1 to 1000");
        }
        if self.rate_per_second.is_some_and(|rate| !(1..=RATE_MAX).contains(&rate)) {
            return refuse("rate_per_second: 1 to 1000000");
        }
        self.filter.check()?;
        self.check_content()?;
        Ok(self)
    }

    fn check_content(&self) -> Result<(), Invalid> {
        let has_content = self.message.notification.is_some() || self.message.data.is_some();
        if !has_content && self.audience != Audience::Upload {
            return Err(Invalid::new("message: it has `notification`, `data` or both"));
        }
        check_locales(&self.locales)?;
        check_variables(&self.variables)?;
        self.trial.as_ref().map_or(Ok(()), Trial::check)?;
        let own = || self.trial.iter().flat_map(Trial::messages);
        own().try_for_each(|message| check_locales(&message.locales))?;
        let variants = self.locales.values().chain(own().flat_map(OwnMessage::contents));
        let texts = variants.flat_map(Texts::parts);
        for text in texts.chain([&self.message.notification, &self.message.data].into_iter().flatten()) {
            self.check_template(text)?;
        }
        Ok(())
    }

    /// Only uploaded recipients have values of their own. Elsewhere a placeholder without a default would be missing
    /// for every recipient.
    fn check_template(&self, text: &JsonText) -> Result<(), Invalid> {
        let template = Template::parse(text.clone())?;
        let missing = template.names().find(|name| !self.variables.contains_key(*name));
        match missing.filter(|_| self.audience != Audience::Upload) {
            Some(name) => Err(Invalid::new(format!(
                "variables: {{{{{name}}}}} has no default, and only uploaded recipients bring their own"
            ))),
            None => Ok(()),
        }
    }

    /// Whether a device with these attributes and durable subscriptions is in the audience. False for an uploaded
    /// audience: it has users.
    pub fn selects(&self, device: &Attributes, topics: &[Topic]) -> bool {
        let subscribes = |topic: &Topic| topics.contains(topic);
        let is_inside = match &self.audience {
            Audience::Everyone | Audience::Devices => true,
            Audience::Topic(topic) => subscribes(topic) || topic.is_everyone(),
            Audience::Condition(condition) => condition.matches(subscribes),
            Audience::Upload => false,
        };
        is_inside && self.filter.matches(device)
    }

    /// When devices are due, if the campaign starts at `started_at`.
    pub fn schedule(&self, started_at: Timestamp) -> Schedule {
        Schedule {
            start: self.start_at.map_or(started_at, |start_at| start_at.max(started_at)),
            local_time: self.local_time,
            quiet_hours: self.quiet_hours.filter(|_| self.message.urgency != Urgency::High),
        }
    }

    /// Recipients in one batch. With a rate, those of a tenth of a second, so that the rate is even.
    pub fn recipients_per_batch(&self) -> usize {
        let even = self.rate_per_second.map_or(BATCH_SIZE_MAX, |rate| (rate / 10).max(1));
        even.min(self.batch_size) as usize
    }
}

/// Checks names and values of variables, of a campaign or of one recipient.
pub fn check_variables(variables: &BTreeMap<String, String>) -> Result<(), Invalid> {
    let fits = variables.len() <= VARIABLES_MAX
        && variables.iter().all(|(name, value)| {
            (1..=NAME_BYTES_MAX).contains(&name.len()) && value.len() <= VARIABLE_BYTES_MAX
        });
    match fits {
        true => Ok(()),
        false => Err(Invalid::new(format!(
            "variables: at most {VARIABLES_MAX}, names of 1 to {NAME_BYTES_MAX} and values of at most {VARIABLE_BYTES_MAX} bytes"
        ))),
    }
}

#[cfg(test)]
pub(crate) mod tests;
