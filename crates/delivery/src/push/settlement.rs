//! The results of a batch, from its answers: outcomes, retries, tokens to remove.
//!
//! Decides what each answer means; the finisher writes all of it in one `Store::finish`.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use noroshi_push::Answer;
use noroshi_store::{
    Again, Batch, Fallback, Finished, InvalidToken, PushPart, PushRecipient, Rest, SuspectToken, VariantNum,
};
use noroshi_types::{BatchId, DeviceNum, Outcome, Timestamp};

use super::retry::{self, Backoff};
use super::token_health::{self, Rate, Realm, TokenHealth};

/// A push that was handed over, with what the evaluation of its answer needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) device: DeviceNum,
    pub(crate) token_at: Timestamp,
    pub(crate) realm: Realm,
    pub(crate) expires_at: Timestamp,
}

/// An outcome with its reason, and the variant of the devices.
type Fate = (Outcome, Option<&'static str>, Option<VariantNum>);

/// Collects the results of a batch.
pub(crate) struct Settlement {
    finished: Finished,
    parts: BTreeMap<Fate, Vec<DeviceNum>>,
    /// The variants drawn by this attempt, if the campaign sends variants; also [`VariantNum::NO_VARIANT`].
    variants: HashMap<DeviceNum, VariantNum>,
    /// The variant of the whole batch, if an earlier attempt drew it.
    drawn: Option<VariantNum>,
    again: BTreeMap<(Timestamp, u32, Option<VariantNum>, Fallback), Vec<DeviceNum>>,
}

/// A realm whose rate of suspect tokens changed.
pub(crate) type RateChange = (Realm, Rate);

impl Settlement {
    pub(crate) fn new(batch: &Batch) -> Self {
        Self {
            finished: Self::nothing(batch.id),
            parts: BTreeMap::new(),
            variants: HashMap::new(),
            drawn: batch.variant,
            again: BTreeMap::new(),
        }
    }

    fn nothing(batch: BatchId) -> Finished {
        Finished {
            batch,
            rest: None,
            parts: Vec::new(),
            again: Vec::new(),
            gone: Vec::new(),
            suspects: Vec::new(),
            latencies: Vec::new(),
            record: None,
        }
    }

    /// The variant of the device, drawn by `draw` if no earlier attempt did. Its outcome counts for that variant.
    /// `None`: the device has no variant, and keeps none.
    pub(crate) fn variant(
        &mut self,
        device: DeviceNum,
        draw: impl FnOnce() -> Option<VariantNum>,
    ) -> Option<VariantNum> {
        let drawn = self.drawn.or_else(draw);
        self.variants.extend(drawn.map(|variant| (device, variant)));
        self.variant_of(device)
    }

    fn drawn_for(&self, device: DeviceNum) -> Option<VariantNum> {
        self.drawn.or_else(|| self.variants.get(&device).copied())
    }

    fn variant_of(&self, device: DeviceNum) -> Option<VariantNum> {
        self.drawn_for(device).filter(|variant| *variant != VariantNum::NO_VARIANT)
    }

    pub(crate) fn part(&mut self, outcome: Outcome, reason: Option<&'static str>, device: DeviceNum) {
        let variant = self.variant_of(device);
        self.parts.entry((outcome, reason, variant)).or_default().push(device);
    }

    pub(crate) fn again(&mut self, due_at: Timestamp, attempt: u32, device: DeviceNum) {
        self.again_if(due_at, attempt, Fallback::Settled, device);
    }

    /// As [`Settlement::again`], if the device still needs the push then.
    pub(crate) fn again_if(
        &mut self,
        due_at: Timestamp,
        attempt: u32,
        fallback: Fallback,
        device: DeviceNum,
    ) {
        let variant = self.drawn_for(device);
        self.again.entry((due_at, attempt, variant, fallback)).or_default().push(device);
    }

    /// Adds the devices of the batch that the store did not find: they were deleted, or belong to another user now.
    pub(crate) fn missing(&mut self, batch: &Batch, found: &[PushRecipient]) {
        for device in &batch.recipients {
            if found.binary_search_by_key(device, |recipient| recipient.num).is_err() {
                self.part(Outcome::Unknown, None, *device);
            }
        }
    }

    /// A part of the results: these devices were accepted, while `rest` has no results yet.
    pub(crate) fn accepted(&self, devices: &[DeviceNum], rest: Rest) -> Finished {
        let mut by_variant: BTreeMap<Option<VariantNum>, Vec<DeviceNum>> = BTreeMap::new();
        for device in devices {
            by_variant.entry(self.variant_of(*device)).or_default().push(*device);
        }
        let part = |(variant, devices)| PushPart { outcome: Outcome::Pushed, reason: None, variant, devices };
        let parts = by_variant.into_iter().map(part).collect();
        Finished { rest: Some(rest), parts, ..Self::nothing(self.finished.batch) }
    }

    /// Evaluates the answers, which are in the order of `sent`. Those that are already `written` count only for the rates.
    pub(crate) fn answers(
        &mut self,
        batch: &Batch,
        sent: &[Sent],
        (answers, written): (Vec<Answer>, &[bool]),
        (token_health, backoff, now): (&TokenHealth, Backoff, Timestamp),
    ) -> Vec<RateChange> {
        let rates = count(token_health, sent, &answers, now);
        for ((sent, answer), written) in sent.iter().zip(answers).zip(written) {
            let device = sent.device;
            match answer {
                Answer::Accepted if *written => {}
                Answer::Accepted => self.part(Outcome::Pushed, None, device),
                Answer::Refused { reason } => self.part(Outcome::PushRefused, Some(reason), device),
                Answer::Unconfigured => self.part(Outcome::PushUnconfigured, None, device),
                Answer::Expired => self.part(Outcome::PushExpired, None, device),
                Answer::Later { reason, after } => self.later(batch, sent, reason, after, (backoff, now)),
                Answer::Gone { reason, since } => self.gone(sent, reason, since),
                Answer::Suspect { reason } => {
                    let normal = rates.get(&sent.realm).is_none_or(|rate| rate.is_normal());
                    self.suspect(sent, reason, normal);
                }
            }
        }
        rates.into_iter().filter(|(_, rate)| matches!(rate, Rate::Alarm { .. } | Rate::Over)).collect()
    }

    fn later(
        &mut self,
        batch: &Batch,
        sent: &Sent,
        reason: &'static str,
        after: Duration,
        (backoff, now): (Backoff, Timestamp),
    ) {
        // In whole seconds, and spread by batch: recipients with the same failure stay one row (one for each variant,
        // if the campaign sends variants).
        let after = Duration::from_secs(after.as_secs() + u64::from(after.subsec_nanos() > 0));
        let seed = retry::seed(batch.id, batch.attempt);
        match backoff.due_at(now, after, batch.attempt, seed, sent.expires_at) {
            Some(due_at) => self.again(due_at, batch.attempt.saturating_add(1), sent.device),
            None => self.part(Outcome::PushExpired, Some(reason), sent.device),
        }
    }

    fn gone(&mut self, sent: &Sent, reason: &'static str, since: Option<Timestamp>) {
        let Sent { device, token_at, .. } = *sent;
        if token_health::is_proof(since, token_at) {
            self.part(Outcome::PushTokenGone, Some(reason), device);
            self.finished.gone.push(InvalidToken { device, token_at, since, reason });
        } else {
            self.part(Outcome::PushRefused, Some(reason), device);
        }
    }

    fn suspect(&mut self, sent: &Sent, reason: &'static str, normal: bool) {
        let Sent { device, token_at, .. } = *sent;
        if normal {
            self.part(Outcome::PushTokenSuspect, Some(reason), device);
            self.finished.suspects.push(SuspectToken { device, token_at, reason });
        } else {
            // The credential is suspect, not the token: it stays.
            self.part(Outcome::PushRefused, Some(reason), device);
        }
    }

    pub(crate) fn finish(mut self, latencies: Vec<(u16, u32)>) -> Finished {
        let part = |((outcome, reason, variant), devices)| PushPart { outcome, reason, variant, devices };
        let again = |((due_at, attempt, variant, fallback), recipients)| Again {
            due_at,
            attempt,
            variant,
            fallback,
            recipients,
        };
        self.finished.parts = self.parts.into_iter().map(part).collect();
        self.finished.again = self.again.into_iter().map(again).collect();
        self.finished.latencies = latencies;
        self.finished
    }
}

/// The rates after this batch. Only answers of a push service about tokens count.
fn count(
    token_health: &TokenHealth,
    sent: &[Sent],
    answers: &[Answer],
    now: Timestamp,
) -> BTreeMap<Realm, Rate> {
    let mut sums: BTreeMap<Realm, (u64, u64)> = BTreeMap::new();
    for (sent, answer) in sent.iter().zip(answers) {
        let suspects = u64::from(matches!(answer, Answer::Suspect { .. }));
        if suspects > 0 || matches!(answer, Answer::Accepted | Answer::Gone { .. }) {
            let sum = sums.entry(sent.realm).or_default();
            *sum = (sum.0 + 1, sum.1 + suspects);
        }
    }
    let rate = |(realm, (answers, suspects))| (realm, token_health.count(realm, answers, suspects, now));
    sums.into_iter().map(rate).collect()
}

#[cfg(test)]
mod tests;
