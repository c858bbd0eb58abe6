//! Encodes a batch for the queue between the dispatcher and a sender. Pure.
//!
//! ```text
//!   version  id  app  service  lane  due_at  attempt  work  campaign  [variant]  [token]  leased_until  n  n × difference to the previous
//! ```
//!
//! Numbers are LEB128: 500 neighbouring devices take about as many bytes. During an upgrade, nodes of two versions
//! share the queue: a batch of an unknown version is left to the store. A batch without a variant or a token is
//! written in the oldest format that can express it.

use bytes::Bytes;
use noroshi_cluster::batches::QueuedBatch;
use noroshi_store::{Batch, VariantNum, Work};
use noroshi_types::{
    AppId, BatchId, CampaignId, DeviceNum, Lane, NotificationId, PushService, Timestamp, TokenKey,
};

const PLAIN: u8 = 1;
/// With the campaign's variant that was drawn, or the fact that there is none.
const DRAWN: u8 = 2;
/// With the token that it is for, and the variant or 0 for not drawn.
const FOR_TOKEN: u8 = 3;

/// More recipients than any batch has.
const RECIPIENTS_MAX: u64 = 10_000;

pub(crate) fn encode(batch: &Batch) -> QueuedBatch {
    let mut body = Vec::with_capacity(64 + batch.recipients.len() * 2);
    body.push(match (&batch.token, batch.variant) {
        (Some(_), _) => FOR_TOKEN,
        (None, Some(_)) => DRAWN,
        (None, None) => PLAIN,
    });
    number(&mut body, batch.id.0);
    number(&mut body, u64::from(batch.app.0));
    body.push(batch.service.map_or(0, |service| service as u8));
    body.push(batch.lane as u8);
    number(&mut body, batch.due_at.0);
    number(&mut body, u64::from(batch.attempt));
    match batch.work {
        Work::Notification(id) => {
            body.push(1);
            body.extend_from_slice(id.as_bytes());
        }
        Work::Campaign(id) => {
            body.push(2);
            body.extend_from_slice(id.as_bytes());
        }
    }
    body.push(u8::from(batch.campaign.is_some()));
    body.extend_from_slice(batch.campaign.as_ref().map_or(&[][..], |id| &id.as_bytes()[..]));
    if let Some(token) = &batch.token {
        let text = token.to_string();
        body.push(batch.variant.map_or(0, |VariantNum(place)| place));
        number(&mut body, text.len() as u64);
        body.extend_from_slice(text.as_bytes());
    } else {
        body.extend(batch.variant.map(|VariantNum(place)| place));
    }
    number(&mut body, batch.leased_until.0);
    number(&mut body, batch.recipients.len() as u64);
    let mut before = 0;
    for device in &batch.recipients {
        number(&mut body, device.0.wrapping_sub(before));
        before = device.0;
    }
    QueuedBatch { key: batch.id.0, lane: batch.lane as u8, body: Bytes::from(body) }
}

/// `None`: not a parcel of this version.
pub(crate) fn decode(parcel: &QueuedBatch) -> Option<Batch> {
    let mut reader = Reader(&parcel.body);
    let version = reader.byte()?;
    if !matches!(version, PLAIN | DRAWN | FOR_TOKEN) {
        return None;
    }
    let id = BatchId(reader.number()?);
    let app = AppId(u32::try_from(reader.number()?).ok()?);
    let service = match reader.byte()? {
        0 => None,
        code => Some(PushService::from_code(code)?),
    };
    let lane = Lane::from_code(reader.byte()?)?;
    let due_at = Timestamp(reader.number()?);
    let attempt = u32::try_from(reader.number()?).ok()?;
    let work = match reader.byte()? {
        1 => Work::Notification(NotificationId::from_bytes(reader.id()?)),
        2 => Work::Campaign(CampaignId::from_bytes(reader.id()?)),
        _ => return None,
    };
    let campaign = match reader.byte()? {
        0 => None,
        1 => Some(CampaignId::from_bytes(reader.id()?)),
        _ => return None,
    };
    let variant = match version {
        DRAWN => Some(reader.byte().filter(|place| *place > 0).map(VariantNum)?),
        FOR_TOKEN => Some(reader.byte()?).filter(|place| *place > 0).map(VariantNum),
        _ => None,
    };
    let token = match version {
        FOR_TOKEN => {
            let length = usize::try_from(reader.number()?).ok()?;
            Some(TokenKey::parse(std::str::from_utf8(reader.bytes(length)?).ok()?).ok()?)
        }
        _ => None,
    };
    let leased_until = Timestamp(reader.number()?);
    let count = reader.number()?;
    // Each recipient takes at least a byte: checked before the allocation.
    if count > RECIPIENTS_MAX || count > reader.0.len() as u64 {
        return None;
    }
    let mut recipients = Vec::with_capacity(usize::try_from(count).ok()?);
    let mut before = 0_u64;
    for _ in 0..count {
        before = before.wrapping_add(reader.number()?);
        recipients.push(DeviceNum(before));
    }
    let sorted = recipients.is_sorted_by(|a, b| a < b);
    let right = id.0 == parcel.key && reader.0.is_empty() && sorted;
    right.then_some(Batch {
        id,
        app,
        service,
        lane,
        due_at,
        attempt,
        work,
        campaign,
        variant,
        token,
        leased_until,
        recipients,
    })
}

fn number(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn bytes(&mut self, length: usize) -> Option<&[u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            value |= part.checked_shl(shift).filter(|shifted| shifted >> shift == part)?;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn id(&mut self) -> Option<[u8; 16]> {
        let (id, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Batch {
        Batch {
            id: BatchId(u64::MAX),
            app: AppId(7),
            service: Some(PushService::WebPush),
            lane: Lane::Direct,
            due_at: Timestamp(1_800_000_000_123),
            attempt: 3,
            work: Work::Notification(NotificationId::from_bytes([5; 16])),
            campaign: None,
            variant: None,
            token: None,
            leased_until: Timestamp(1_800_000_060_123),
            recipients: (1_000..1_500).map(DeviceNum).chain([DeviceNum(u64::MAX)]).collect(),
        }
    }

    #[test]
    fn a_batch_reads_back() {
        let id = CampaignId::from_bytes([9; 16]);
        let published = Batch {
            service: None,
            work: Work::Campaign(id),
            campaign: Some(id),
            recipients: Vec::new(),
            ..batch()
        };
        let drawn = Batch { variant: Some(VariantNum(20)), ..published.clone() };
        let of_none = Batch { variant: Some(VariantNum::NO_VARIANT), ..drawn.clone() };
        let token = TokenKey::parse("controls/lamp").ok();
        let lamp = Batch { token: token.clone(), ..batch() };
        let drawn_lamp = Batch { token, ..drawn.clone() };
        for (batch, version) in [
            (batch(), PLAIN),
            (published, PLAIN),
            (drawn, DRAWN),
            (of_none, DRAWN),
            (lamp, FOR_TOKEN),
            (drawn_lamp, FOR_TOKEN),
        ] {
            let parcel = encode(&batch);
            assert_eq!(parcel.body[0], version);
            assert_eq!((parcel.key, parcel.lane), (batch.id.0, batch.lane as u8));
            assert_eq!(decode(&parcel), Some(batch));
        }
        assert!(encode(&batch()).body.len() < 600, "neighbours take a byte each");
    }

    #[test]
    fn a_damaged_parcel_is_refused() {
        let parcel = encode(&batch());
        for end in 0..parcel.body.len() {
            let cut = QueuedBatch { body: parcel.body.slice(..end), ..parcel.clone() };
            assert_eq!(decode(&cut), None, "{end} bytes");
        }
        let mut longer = parcel.body.to_vec();
        longer.push(0);
        assert_eq!(decode(&QueuedBatch { body: longer.into(), ..parcel.clone() }), None);
        let mut newer = parcel.body.to_vec();
        newer[0] = FOR_TOKEN + 1;
        assert_eq!(decode(&QueuedBatch { body: newer.into(), ..parcel.clone() }), None);
        assert_eq!(decode(&QueuedBatch { key: 1, ..parcel }), None, "the key of another batch");
    }
}
