//! Why a device has the newest state of a Live Activity or not, by what is stored of activity and device today.

use noroshi_push::{Condition, CredentialStatus};
use noroshi_store::{Activity, ActivityMember, Device, DeviceToken, TraceStep};
use noroshi_types::{Outcome, PushService, Target, Timestamp, TokenKind, Topic, UserId};

use super::target::{Later, Targeting, no, yes};
use super::{Reason, TargetedBy, recorded};

pub(crate) struct Facts<'a> {
    pub activity: &'a Activity,
    /// `None`: a newer program wrote it.
    pub target: Option<&'a Target>,
    pub attributes_type: &'a str,
    pub ios_via: Option<PushService>,
    pub device: &'a Device,
    /// `None`: the device takes no part.
    pub member: Option<&'a ActivityMember>,
    pub now: Timestamp,
    /// The app's pushes wait for its quota.
    pub waits_for_quota: bool,
    /// Of the node that answers.
    pub credentials: &'a [CredentialStatus],
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OfActivity {
    pub state: &'static str,
    pub targeted_by: TargetedBy,
    /// One sentence about `targeted_by`.
    pub targeting: String,
    /// Why no push brought the newest state. `None`: one did, or nothing is known that prevented it.
    pub cause: Option<Reason>,
    pub summary: String,
}

/// A sentence, and why the newest state did not arrive.
type Because = Option<(String, Reason)>;

impl Facts<'_> {
    pub(crate) fn explain(&self) -> OfActivity {
        let Targeting { by, sentence: targeting, missed } = self.targeting();
        let (state, meaning) = self.state();
        let because = match self.member {
            Some(member) => self.because(member, state),
            None => missed.map(|reason| (String::new(), reason)),
        };
        let (sentence, cause) = because.map_or((String::new(), None), |(text, cause)| (text, Some(cause)));
        let summary = format!("{meaning} {sentence}").trim_end().to_owned();
        OfActivity { state, targeted_by: by, targeting, cause, summary }
    }

    fn targeting(&self) -> Targeting {
        let Self { activity, device, .. } = *self;
        let is_in = self.target.is_some_and(|target| match target {
            Target::Devices(devices) => devices.contains(&device.id),
            Target::Users(users) => device.user.as_ref().is_some_and(|user| users.contains(user)),
            Target::Topic(topic) => device.topics.contains(topic),
            Target::Condition(condition) => condition.matches(|topic: &Topic| device.topics.contains(topic)),
            Target::Everyone => true,
        });
        let user = device.user.as_ref().map_or("", UserId::as_str);
        let (by, is, is_not) = match self.target {
            Some(Target::Devices(_)) => (
                TargetedBy::Device,
                "The request named the device".to_owned(),
                "The request did not name the device.".to_owned(),
            ),
            Some(Target::Users(_)) if user.is_empty() => (
                TargetedBy::User,
                "The request named the user that the device had then".to_owned(),
                "It is for users, and the device has none.".to_owned(),
            ),
            Some(Target::Users(_)) => (
                TargetedBy::User,
                format!("The request named the device's user \"{user}\""),
                format!("The request did not name the device's user \"{user}\"."),
            ),
            Some(Target::Topic(topic)) => (
                TargetedBy::Subscription,
                format!("The device subscribes durably to the topic \"{topic}\""),
                format!("The device does not subscribe durably to the topic \"{topic}\"."),
            ),
            Some(Target::Condition(condition)) => (
                TargetedBy::Condition,
                format!("The device's subscriptions match the condition {}", condition.as_str()),
                format!(
                    "The device's durable subscriptions do not match the condition {}.",
                    condition.as_str()
                ),
            ),
            Some(Target::Everyone) => {
                (TargetedBy::Everyone, "It is for all devices".to_owned(), String::new())
            }
            None => (TargetedBy::Unknown, String::new(), "This version cannot read its target.".to_owned()),
        };
        match self.member {
            Some(member) if member.is_of_another_user => yes(
                by,
                "The device was in the target when the activity started",
                Some(("it has changed its user since.".to_owned(), Reason::UserChangedLater)),
            ),
            Some(_) if is_in => yes(by, &is, None),
            Some(_) if activity.joinable => yes(
                TargetedBy::Joined,
                "The device joined, or was in the target when the activity started",
                None,
            ),
            Some(_) => yes(by, "The device was in the target when the activity started", None),
            None if is_in && activity.cursor.is_some() => {
                let clause = "the devices of the target are still being collected.".to_owned();
                yes(by, &is, Some((clause, Reason::NotReached)))
            }
            None if is_in => yes(by, &is, self.later(by)),
            None if self.target.is_none() => {
                Targeting { by, sentence: is_not, missed: Some(Reason::NotRecorded) }
            }
            None => no(&is_not, None),
        }
    }

    /// Why a device that is in the target does not take part.
    fn later(&self, by: TargetedBy) -> Later {
        let created_at = self.device.created_at;
        Some(match by {
            _ if created_at > self.activity.created_at => (
                format!("the device was registered at {created_at}, after the activity started."),
                Reason::RegisteredLater,
            ),
            TargetedBy::User => {
                ("the device got this user after the activity started.".to_owned(), Reason::UserChangedLater)
            }
            TargetedBy::Subscription | TargetedBy::Condition => {
                ("it subscribed after the activity started.".to_owned(), Reason::SubscribedLater)
            }
            _ => ("the activity had as many devices as it may have.".to_owned(), Reason::NotReached),
        })
    }

    /// The state of the device, and what it means.
    fn state(&self) -> (&'static str, &'static str) {
        let Some(member) = self.member else {
            return match self.activity.cursor {
                Some(_) => (
                    "not_invited",
                    "The devices of the target are still being collected; this one is not among them yet.",
                ),
                None => ("not_invited", "The activity is not for this device."),
            };
        };
        match member {
            _ if member.is_of_another_user => {
                ("other_user", "The device changed its user after the activity started, so it gets nothing.")
            }
            _ if member.has_token => {
                ("joined", "The device reported the token of its activity and gets every state.")
            }
            _ if self.activity.ended_at.is_some() && member.started > 0 => {
                ("joined", "The activity ended; its token was removed.")
            }
            _ if member.has_start_token && member.started > 0 => {
                ("started", "A push started the activity; the device has not reported its token yet.")
            }
            _ if member.has_start_token => ("invited", "A push starts the activity on the device."),
            _ if member.has_fcm_token => ("android", "The device gets every state as a data message."),
            _ => ("live_only", "The device has no token, so it gets the state only while it is connected."),
        }
    }

    fn because(&self, member: &ActivityMember, state: &str) -> Because {
        let reason = |sentence: &str, reason| Some((sentence.to_owned(), reason));
        let has_ended = self.activity.ended_at.is_some();
        let is_gone = member.outcome == Some(Outcome::PushTokenGone);
        let gone =
            "The push service reported that its token is invalid, and the app has registered no other one.";
        match state {
            "other_user" => reason("", Reason::UserChangedLater),
            "live_only" if is_gone => reason(gone, Reason::InvalidToken),
            "live_only" => reason("", Reason::NoToken),
            "started" if member.started == self.activity.version => None,
            "started" if is_gone => reason(gone, Reason::InvalidToken),
            "started" => reason("", Reason::AwaitingToken),
            _ if member.waits => Some(self.waiting(member, state)),
            _ => self.failed(member).or_else(|| self.unusable(state)).or_else(|| match state {
                "joined" => None,
                _ if member.started > 0 => None,
                _ if has_ended => reason("It ended before a push brought it to the device.", Reason::Ended),
                _ => reason(
                    "The device registered its token after the newest state was sent; it gets the next one.",
                    Reason::NextState,
                ),
            }),
        }
    }

    fn waiting(&self, member: &ActivityMember, state: &str) -> (String, Reason) {
        let is_later = member.due_at.is_some_and(|due_at| due_at > self.now);
        let due = match member.due_at {
            Some(at) if is_later => format!("A push of the newest state is due at {at}"),
            Some(at) => format!("A push of the newest state has been due since {at}"),
            None => "A push of the newest state waits".to_owned(),
        };
        match self.paused(state) {
            Some(why) => (
                format!("{due}; this node sends nothing to the push service for now ({why})."),
                Reason::PushServicePaused,
            ),
            None if self.waits_for_quota => {
                (format!("{due}; it waits because the app has used up its quota of pushes."), Reason::Quota)
            }
            None if is_later => (format!("{due}."), Reason::PushPending),
            None => (
                format!("{due}; it waits for a sender, or for an answer to the one before."),
                Reason::PushPending,
            ),
        }
    }

    /// Why the circuit breaker of the device's push service is open.
    fn paused(&self, state: &str) -> Option<&'static str> {
        let is_fcm = state == "android" || self.ios_via == Some(PushService::Fcm);
        let service = if is_fcm { PushService::Fcm } else { PushService::Apns };
        let environment = self.token(state).map(|token| token.token.environment).unwrap_or_default();
        let is_of =
            |status: &&CredentialStatus| (status.service, status.environment) == (service, environment);
        match self.credentials.iter().find(is_of)?.breaker {
            Condition::Open { reason, .. } | Condition::HalfOpen { reason } => Some(reason),
            Condition::Closed => None,
        }
    }

    /// The push of the newest state failed for good.
    fn failed(&self, member: &ActivityMember) -> Because {
        let (outcome, at) = (member.outcome?, member.at?);
        let step = TraceStep { at, outcome, reason: member.reason.clone() };
        let (sentence, reason) = recorded::push(&step).filter(|_| at >= self.activity.updated_at)?;
        Some((sentence, reason?))
    }

    /// The token by which the device gets its next state.
    fn token(&self, state: &str) -> Option<&DeviceToken> {
        let find = |kind, name: &str| {
            let is_it = |token: &&DeviceToken| token.key.kind() == kind && token.key.name() == name;
            self.device.push_tokens.iter().find(is_it)
        };
        match state {
            "joined" => find(TokenKind::LiveActivity, self.activity.id.as_str()),
            "invited" => {
                let start = |name| find(TokenKind::LiveActivityStart, name);
                start(self.attributes_type).or_else(|| start(""))
            }
            _ => find(TokenKind::Fcm, ""),
        }
    }

    /// Nothing is sent to the token.
    fn unusable(&self, state: &str) -> Because {
        let token = self.token(state)?;
        if token.is_expired(self.now) {
            return Some(("The token has expired.".to_owned(), Reason::ExpiredToken));
        }
        let suspect = token.suspect.as_ref()?;
        let sentence = format!("The token is suspended until it is registered again ({}).", suspect.reason);
        Some((sentence, Reason::SuspendedToken))
    }
}

#[cfg(test)]
mod tests {
    use noroshi_types::{
        ActivityId, AppId, Condition as Topics, DeviceId, DeviceNum, JsonText, PushEnvironment, PushToken,
        TokenKey,
    };

    use super::*;

    const START: Timestamp = Timestamp(1_800_000_000_000);
    const NEWEST: Timestamp = Timestamp(START.0 + 60_000);
    const NOW: Timestamp = Timestamp(START.0 + 120_000);

    fn activity() -> Activity {
        Activity {
            num: 1,
            app: AppId(1),
            id: ActivityId::parse("m1").expect("an id"),
            version: 3,
            spec: JsonText::from_valid("{}"),
            target: None,
            state: JsonText::from_valid("{}"),
            of_users: true,
            joinable: false,
            devices: 1,
            cursor: None,
            created_at: START,
            updated_at: NEWEST,
            expires_at: Timestamp(NOW.0 + 1),
            ended_at: None,
        }
    }

    fn device() -> Device {
        Device {
            num: DeviceNum(1),
            app: AppId(1),
            id: DeviceId::parse("d1").expect("an id"),
            user: UserId::parse("u1").ok(),
            attributes: Default::default(),
            topics: vec![Topic::parse("match").expect("a topic")],
            push_token: None,
            push_token_at: None,
            last_seen: None,
            push_suspect: None,
            push_tokens: Vec::new(),
            token_version: 0,
            revoked: Default::default(),
            created_at: Timestamp(START.0 - 1),
        }
    }

    /// It has a token of the activity, and the newest state.
    fn member() -> ActivityMember {
        ActivityMember {
            num: DeviceNum(1),
            started: 1,
            version: 3,
            sent_at: Some(NEWEST),
            waits: false,
            due_at: None,
            outcome: Some(Outcome::Pushed),
            reason: None,
            at: Some(START),
            has_token: true,
            has_start_token: true,
            has_fcm_token: false,
            is_of_another_user: false,
            attempts: Vec::new(),
        }
    }

    fn users(names: &[&str]) -> Target {
        Target::Users(names.iter().map(|name| UserId::parse(name).expect("a user")).collect())
    }

    struct Case {
        activity: Activity,
        device: Device,
        target: Target,
        member: Option<ActivityMember>,
        waits_for_quota: bool,
        credentials: Vec<CredentialStatus>,
    }

    fn case(member: Option<ActivityMember>) -> Case {
        let (activity, device, target) = (activity(), device(), users(&["u1"]));
        Case { activity, device, target, member, waits_for_quota: false, credentials: Vec::new() }
    }

    impl Case {
        fn explain(&self) -> OfActivity {
            let facts = Facts {
                activity: &self.activity,
                target: Some(&self.target),
                attributes_type: "Match",
                ios_via: None,
                device: &self.device,
                member: self.member.as_ref(),
                now: NOW,
                waits_for_quota: self.waits_for_quota,
                credentials: &self.credentials,
            };
            let found = facts.explain();
            assert!(found.targeting.ends_with('.') && found.summary.ends_with('.'), "{found:?}");
            found
        }

        fn check(&self, by: TargetedBy, cause: Option<Reason>) {
            let found = self.explain();
            assert_eq!((found.targeted_by, found.cause), (by, cause), "{found:?}");
        }
    }

    #[test]
    fn targets_are_compared_with_the_device() {
        use TargetedBy::{Condition, Device, Everyone, Joined, Nothing, Subscription, User};
        let topic = |name| Target::Topic(Topic::parse(name).expect("a topic"));
        let devices = |name| Target::Devices(vec![DeviceId::parse(name).expect("an id")]);
        let condition = |text| Target::Condition(Topics::parse(text).expect("a condition"));
        for (target, by, missed) in [
            (users(&["u1"]), User, Reason::UserChangedLater),
            (users(&["u2"]), Nothing, Reason::NotTargeted),
            (devices("d1"), Device, Reason::NotReached),
            (devices("d2"), Nothing, Reason::NotTargeted),
            (topic("match"), Subscription, Reason::SubscribedLater),
            (topic("other"), Nothing, Reason::NotTargeted),
            (condition("'match' in topics"), Condition, Reason::SubscribedLater),
            (condition("!('match' in topics)"), Nothing, Reason::NotTargeted),
            (Target::Everyone, Everyone, Reason::NotReached),
        ] {
            let out = Case { target: target.clone(), ..case(None) };
            out.check(by, Some(missed));
            if by != Nothing {
                Case { target: target.clone(), ..case(Some(member())) }.check(by, None);
                let collecting = Activity { cursor: Some(1), ..activity() };
                let collecting = Case { activity: collecting, target: target.clone(), ..case(None) };
                collecting.check(by, Some(Reason::NotReached));
                let new = noroshi_store::Device { created_at: NOW, ..device() };
                Case { device: new, target, ..case(None) }.check(by, Some(Reason::RegisteredLater));
            }
        }
        let open = Activity { joinable: true, ..activity() };
        Case { activity: open, target: topic("other"), ..case(Some(member())) }.check(Joined, None);
        Case { target: topic("other"), ..case(Some(member())) }.check(Subscription, None);
        let other = ActivityMember { is_of_another_user: true, ..member() };
        case(Some(other)).check(User, Some(Reason::UserChangedLater));
    }

    #[test]
    fn what_keeps_a_state_from_a_device_is_named() {
        let check = |member, cause| case(Some(member)).check(TargetedBy::User, cause);
        check(member(), None);
        let failed = |outcome, at| ActivityMember {
            outcome: Some(outcome),
            reason: Some("BadTopic".to_owned()),
            at: Some(at),
            ..member()
        };
        check(failed(Outcome::PushRefused, NEWEST), Some(Reason::PushRefused));
        check(failed(Outcome::PushRefused, START), None);
        check(failed(Outcome::PushUnconfigured, NEWEST), Some(Reason::NotConfigured));
        check(failed(Outcome::PushExpired, NEWEST), Some(Reason::PushExpired));
        check(failed(Outcome::PushTokenSuspect, NEWEST), Some(Reason::SuspendedToken));
        let without = |member: ActivityMember| ActivityMember { has_token: false, ..member };
        check(without(member()), Some(Reason::AwaitingToken));
        check(without(ActivityMember { started: 3, ..member() }), None);
        check(without(failed(Outcome::PushTokenGone, START)), Some(Reason::InvalidToken));
        let bare = ActivityMember { has_start_token: false, outcome: None, ..without(member()) };
        check(bare.clone(), Some(Reason::NoToken));
        check(ActivityMember { outcome: Some(Outcome::PushTokenGone), ..bare }, Some(Reason::InvalidToken));
        let invited = ActivityMember { started: 0, outcome: None, at: None, ..without(member()) };
        check(invited.clone(), Some(Reason::NextState));
        let over = Activity { ended_at: Some(NEWEST), ..activity() };
        Case { activity: over, ..case(Some(invited)) }.check(TargetedBy::User, Some(Reason::Ended));
    }

    #[test]
    fn tokens_that_get_nothing_are_named() {
        let with = |expires_at, suspect| {
            let key = TokenKey::new(TokenKind::LiveActivity, "m1").expect("a key");
            let token = PushToken {
                service: PushService::Apns,
                environment: PushEnvironment::Production,
                json: JsonText::from_valid("{}"),
            };
            let token = DeviceToken { key, token, registered_at: START, suspect, expires_at };
            let device = Device { push_tokens: vec![token], ..device() };
            Case { device, ..case(Some(member())) }.explain().cause
        };
        assert_eq!(with(None, None), None);
        assert_eq!(with(Some(NOW), None), Some(Reason::ExpiredToken));
        let suspect = noroshi_store::Suspect { at: START, reason: "DeviceTokenNotForTopic".to_owned() };
        assert_eq!(with(None, Some(suspect)), Some(Reason::SuspendedToken));
    }

    #[test]
    fn a_push_waits_for_its_time_a_quota_or_its_service() {
        let waits = |due_at| case(Some(ActivityMember { waits: true, due_at, version: 2, ..member() }));
        let later = waits(Some(Timestamp(NOW.0 + 1)));
        later.check(TargetedBy::User, Some(Reason::PushPending));
        assert!(later.explain().summary.contains("is due at"), "{:?}", later.explain());
        waits(None).check(TargetedBy::User, Some(Reason::PushPending));
        let quota = Case { waits_for_quota: true, ..waits(Some(NOW)) };
        quota.check(TargetedBy::User, Some(Reason::Quota));
        let breaker = Condition::HalfOpen { reason: "InvalidProviderToken" };
        let status = |service| CredentialStatus {
            service,
            environment: PushEnvironment::Production,
            provider: "".into(),
            connections: 0,
            in_flight: 0,
            queued: 0,
            breaker,
            paused: None,
            last_error: None,
        };
        let broken = |service| Case { credentials: vec![status(service)], ..waits(Some(NOW)) };
        broken(PushService::Apns).check(TargetedBy::User, Some(Reason::PushServicePaused));
        broken(PushService::Fcm).check(TargetedBy::User, Some(Reason::PushPending));
    }
}
