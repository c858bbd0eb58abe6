//! Whether a notification was for a device, by what is known today.

use noroshi_store::{CampaignState, PushStage, Subscribed, Trace, TracedCampaign, TracedTarget};
use noroshi_types::UserId;

use super::{Reason, Sentence};

noroshi_types::names! {
    /// What made a notification one for the device.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum TargetedBy {
        Device => "device",
        User => "user",
        Subscription => "subscription",
        Session => "session",
        Condition => "condition",
        Everyone => "everyone",
        Campaign => "campaign",
        Upload => "upload",
        Joined => "joined",
        Nothing => "none",
        Unknown => "unknown",
    }
}

/// Whether the device is in the audience of the campaign as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Segment {
    Inside,
    Outside,
    /// The audience is the uploaded users.
    Upload,
    /// It is no campaign, or its definition cannot be read.
    Unknown,
}

pub(super) struct Targeting {
    pub by: TargetedBy,
    pub sentence: String,
    /// Why it was not for the device as the device was then.
    pub missed: Option<Reason>,
}

pub(super) fn targeting(trace: &Trace, segment: Segment) -> Targeting {
    use TargetedBy as By;
    let device = &trace.device;
    let sent_at = trace.notification.sent_at;
    let registered_later = (device.created_at > sent_at).then(|| {
        let sentence =
            format!("the device was registered at {}, after the notification was sent.", device.created_at);
        (sentence, Reason::RegisteredLater)
    });
    // Something is recorded, so it was for the device, whatever is known otherwise.
    let is_reached = !trace.steps.is_empty()
        || trace.in_inbox
        || trace.push.is_some_and(|push| push.stage != PushStage::Collected);
    let later = if is_reached { None } else { registered_later };
    match &trace.target {
        TracedTarget::Devices { named: Some(true) } => yes(By::Device, "The request named the device", later),
        TracedTarget::Devices { .. } if is_reached => yes(By::Device, "The request named the device", None),
        TracedTarget::Devices { named: Some(false) } => no("The request did not name the device.", later),
        TracedTarget::Devices { named: None } => unrecorded("devices", later),
        TracedTarget::Users { named } => of_user(trace, *named, is_reached, later),
        TracedTarget::Topic { topic, subscription: Some(subscribed) } => {
            let sentence = format!("The device subscribes durably to the topic \"{topic}\"");
            yes(
                By::Subscription,
                &sentence,
                later.or_else(|| subscribed_later(trace, subscribed, is_reached)),
            )
        }
        TracedTarget::Topic { topic, subscription: None } if is_reached => yes(
            By::Session,
            &format!(
                "A session of the device subscribed to the topic \"{topic}\", or a durable subscription that has ended since \
                 did"
            ),
            None,
        ),
        TracedTarget::Topic { topic, subscription: None } => no(
            &format!(
                "The device does not subscribe to the topic \"{topic}\"; whether it had a subscription that has ended since \
                 is not recorded."
            ),
            later,
        ),
        TracedTarget::Everyone { .. } => yes(By::Everyone, "It was for all devices", later),
        TracedTarget::Condition { text, matches, matched } => {
            let sentence = format!("The device's subscriptions match the condition {text}");
            match (is_reached, matched, matches) {
                (true, ..) | (_, true, _) => yes(By::Condition, &sentence, later),
                (_, _, true) => {
                    let since = (
                        "the subscriptions began after the notification was sent.".to_owned(),
                        Reason::SubscribedLater,
                    );
                    yes(By::Condition, &sentence, later.or(Some(since)))
                }
                _ => no(
                    &format!(
                        "The device's durable subscriptions do not match the condition {text}; those that have ended since, \
                         and those of sessions, are not recorded."
                    ),
                    later,
                ),
            }
        }
        TracedTarget::Campaign(campaign) => of_campaign(campaign, segment, is_reached, later),
        TracedTarget::Unknown => Targeting {
            by: By::Unknown,
            sentence: "Whom it was for is not recorded.".to_owned(),
            missed: (!is_reached).then_some(Reason::NotRecorded),
        },
    }
}

/// What followed later: a clause after "but", and the reason.
pub(super) type Later = Option<(String, Reason)>;

/// It was for the device, unless something came later. `sentence` has no full stop.
pub(super) fn yes(by: TargetedBy, sentence: &str, later: Later) -> Targeting {
    match later {
        Some((clause, reason)) => {
            Targeting { by, sentence: format!("{sentence}, but {clause}"), missed: Some(reason) }
        }
        None => Targeting { by, sentence: format!("{sentence}."), missed: None },
    }
}

/// It was not for the device.
pub(super) fn no(sentence: &str, later: Later) -> Targeting {
    let by = TargetedBy::Nothing;
    match later {
        Some((clause, reason)) => Targeting { by, sentence: as_sentence(&clause), missed: Some(reason) },
        None => Targeting { by, sentence: sentence.to_owned(), missed: Some(Reason::NotTargeted) },
    }
}

fn unrecorded(what: &str, later: Later) -> Targeting {
    match later {
        Some((clause, reason)) => {
            Targeting { by: TargetedBy::Nothing, sentence: as_sentence(&clause), missed: Some(reason) }
        }
        None => Targeting {
            by: TargetedBy::Unknown,
            sentence: format!("An older version accepted it and did not record which {what} it named."),
            missed: Some(Reason::NotRecorded),
        },
    }
}

fn as_sentence(clause: &str) -> String {
    let mut letters = clause.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn of_user(trace: &Trace, named: Option<bool>, is_reached: bool, later: Later) -> Targeting {
    let device = &trace.device;
    let user = device.user.as_ref().map_or("", UserId::as_str);
    let changed = device.user_at.filter(|at| *at > trace.notification.sent_at);
    match (named, changed) {
        (Some(true), None) => {
            yes(TargetedBy::User, &format!("The request named the device's user \"{user}\""), later)
        }
        _ if is_reached => yes(TargetedBy::User, "The request named the user that the device had then", None),
        (Some(true), Some(at)) => {
            let since = format!("the device has had this user only since {at}.");
            let later = later.or(Some((since, Reason::UserChangedLater)));
            yes(TargetedBy::User, &format!("The request named the device's user \"{user}\""), later)
        }
        (Some(false), Some(at)) if later.is_none() => Targeting {
            by: TargetedBy::Unknown,
            sentence: format!(
                "The request did not name the device's user, which has been the user since {at}; the user before is not \
                 recorded."
            ),
            missed: Some(Reason::NotRecorded),
        },
        (Some(false), _) if device.user.is_none() => no("It was for users, and the device has none.", later),
        (Some(false), _) => no(&format!("The request did not name the device's user \"{user}\"."), later),
        (None, _) => unrecorded("users", later),
    }
}

fn subscribed_later(trace: &Trace, subscribed: &Subscribed, is_reached: bool) -> Later {
    let since = subscribed.since.filter(|since| *since > trace.notification.sent_at && !is_reached)?;
    Some((format!("it subscribed at {since}, after the notification was sent."), Reason::SubscribedLater))
}

fn of_campaign(campaign: &TracedCampaign, segment: Segment, is_reached: bool, later: Later) -> Targeting {
    use TargetedBy as By;
    // A device that registers while the campaign waits is in its audience.
    let later = later.filter(|_| campaign.is_past);
    let is_reached = is_reached || campaign.is_published;
    match segment {
        Segment::Upload => match campaign.uploaded {
            Some(true) => yes(By::Upload, "A line for the device's user was uploaded", later),
            _ if is_reached => yes(By::Upload, "A line for the user that the device had then was uploaded", None),
            Some(false) => no("No line for the device's user was uploaded.", later),
            None => Targeting {
                by: By::Unknown,
                sentence: "The uploaded lines of the campaign were removed.".to_owned(),
                missed: Some(Reason::NotRecorded),
            },
        },
        _ if is_reached => yes(By::Campaign, "The campaign selected the device", None),
        Segment::Inside if !campaign.is_past => yes(By::Campaign, "The device is in the campaign's audience", None),
        Segment::Inside if later.is_some() => {
            yes(By::Campaign, "The device is in the campaign's audience", later)
        }
        Segment::Inside => Targeting {
            by: By::Unknown,
            sentence: "The device is in the campaign's audience now; nothing is recorded from the time when the campaign \
                       selected its devices."
                .to_owned(),
            missed: Some(Reason::NotRecorded),
        },
        Segment::Outside => no("The device is not in the campaign's audience.", later),
        Segment::Unknown => Targeting {
            by: By::Unknown,
            sentence: "This version cannot read the campaign's audience.".to_owned(),
            missed: Some(Reason::NotRecorded),
        },
    }
}

/// The campaign has no result for a device that it is for.
pub(super) fn not_reached(state: CampaignState) -> Sentence {
    let (sentence, reason) = match state {
        CampaignState::Draft => ("The campaign is a draft.", Reason::NotReached),
        CampaignState::Scheduled => ("The campaign has not started yet.", Reason::NotReached),
        CampaignState::Running => ("The campaign has not come to the device yet.", Reason::NotReached),
        CampaignState::Paused => {
            ("The campaign is paused and has not come to the device yet.", Reason::NotReached)
        }
        CampaignState::Aborted => {
            ("The campaign was aborted before it came to the device.", Reason::Cancelled)
        }
        CampaignState::Done => {
            ("The campaign is done, and nothing is recorded for the device.", Reason::NotRecorded)
        }
    };
    (sentence.to_owned(), Some(reason))
}
