//! Publishes a batch of a campaign as ordinary notifications to its devices, so that live delivery, the inbox and
//! fallback work as for any other notification.
//!
//! Recipients with the same text share one notification. Its idempotency key contains the batch, the text and the
//! recipients. So a batch that is sent again after a crash publishes nothing twice, and a recipient that was left out
//! the first time (its quiet hours have ended since) does not count as served.

use std::collections::BTreeMap;

use noroshi_store::{Batch, Finished, Idempotency, OfCampaign, PushRecipient, VariantNum};
use noroshi_types::{Category, DeviceId, DeviceNum, Outcome, Request, Target, When};
use ring::digest;

use super::finisher::{PAUSE_MAX, PAUSE_MIN};
use super::pipeline::Pipeline;
use super::settlement::Settlement;
use crate::campaign::plan::Plan;
use crate::error::Error;
use crate::quota::{Origin, OverQuota};
use crate::texts::Texts;

/// Why a recipient of a campaign got nothing: the inboxes of the app are at their quota.
const QUOTA_EXCEEDED: &str = "quota_exceeded";

/// Recipients with the same key share a notification: the variant, and a hash of the text.
type Key = (Option<VariantNum>, [u8; 32]);

/// Publishes a batch. Retries while the store or the shards have no room.
pub(crate) async fn publish(
    pipeline: &Pipeline,
    batch: &Batch,
    plan: &Plan,
    recipients: Vec<PushRecipient>,
) -> Finished {
    let now = pipeline.context.now();
    let mut settlement = Settlement::new(batch);
    let mut texts: BTreeMap<Key, (Texts, Vec<DeviceId>, Vec<DeviceNum>)> = BTreeMap::new();
    settlement.missing(batch, &recipients);
    for recipient in recipients {
        // Before the draw: an abort during quiet hours must not change the proportions of the variants.
        if let Some(until) = plan.quiet_until(&recipient.attributes, now) {
            settlement.again(until, batch.attempt, recipient.num);
            continue;
        }
        let variant = settlement.variant(recipient.num, || plan.draw(&recipient));
        if plan.holds_out(variant) {
            settlement.part(Outcome::HeldOut, None, recipient.num);
            continue;
        }
        match plan.render(&recipient, variant) {
            Ok(rendered) => {
                let key = (variant, hash(&rendered, &[]));
                let (_, ids, nums) = texts.entry(key).or_insert((rendered, Vec::new(), Vec::new()));
                ids.push(recipient.id);
                nums.push(recipient.num);
            }
            Err(reason) => settlement.part(Outcome::PushRefused, Some(reason), recipient.num),
        }
    }
    for ((variant, _), (rendered, devices, nums)) in texts {
        let hash = hash(&rendered, &devices);
        let request = request(plan, rendered, devices);
        if publish_one(pipeline, batch, (plan, variant), request, hash).await.is_err() {
            // Waiting for room would delay other senders.
            nums.into_iter().for_each(|num| settlement.part(Outcome::PushRefused, Some(QUOTA_EXCEEDED), num));
        }
    }
    settlement.finish(Vec::new())
}

/// Retries until the notification is accepted, or the app's quota refuses it.
async fn publish_one(
    pipeline: &Pipeline,
    batch: &Batch,
    (plan, variant): (&Plan, Option<VariantNum>),
    request: Request,
    hash: [u8; 32],
) -> Result<(), OverQuota> {
    let text: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    // The API accepts no space in a key, so no key of a provider begins like this one.
    let key = format!(" campaign/{}/{}/{text}", plan.id, batch.id.0);
    let mut pause = PAUSE_MIN;
    loop {
        let idempotency = Some(Idempotency { key: key.as_str().into(), body_hash: hash });
        let origin = Origin::Campaign(OfCampaign { id: plan.id, lane: batch.lane, variant });
        match pipeline.publisher.publish_from(plan.app, request.clone(), idempotency, origin).await {
            Ok(_) | Err(Error::Store(noroshi_store::Error::Closed)) => return Ok(()),
            Err(Error::OverQuota(over)) => return Err(over),
            // The app was deleted, or two texts of the batch share the first bytes of their hash.
            Err(Error::Store(noroshi_store::Error::NotFound | noroshi_store::Error::IdempotencyConflict)) => {
                return Ok(());
            }
            Err(error) => {
                pipeline.metrics.store_errors.inc();
                tracing::debug!(%error, campaign = %plan.id, "could not publish a batch; retrying");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn request(plan: &Plan, rendered: Texts, devices: Vec<DeviceId>) -> Request {
    let message = &plan.spec.message;
    Request {
        target: Target::Devices(devices),
        when: message.when.unwrap_or(When::Stored),
        ttl: message.ttl,
        urgency: message.urgency,
        waits_for_use: false,
        category: message.category.clone().map(|name| Category { name, is_essential: false }),
        collapse_key: message.collapse_key.clone(),
        retain: false,
        notification: rendered.notification,
        data: rendered.data,
        push: message.push.clone(),
        item: None,
        trace: plan.spec.trace,
    }
}

fn hash(rendered: &Texts, devices: &[DeviceId]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    let texts =
        [&rendered.notification, &rendered.data].map(|text| text.as_ref().map_or("", |text| text.as_str()));
    for text in texts.into_iter().chain(devices.iter().map(DeviceId::as_str)) {
        context.update(&(text.len() as u64).to_be_bytes());
        context.update(text.as_bytes());
    }
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use noroshi_types::JsonText;

    use super::*;

    #[test]
    fn the_same_text_for_other_recipients_is_another_notification() {
        let text = |text: &'static str| Texts { notification: Some(JsonText::from_valid(text)), data: None };
        let device = |id: &str| DeviceId::parse(id).expect("an id");
        let both = [device("a"), device("b")];
        assert_eq!(hash(&text("1"), &both), hash(&text("1"), &both));
        assert_ne!(hash(&text("1"), &both), hash(&text("1"), &both[..1]), "one was quiet the first time");
        assert_ne!(hash(&text("1"), &both), hash(&text("2"), &both));
    }
}
