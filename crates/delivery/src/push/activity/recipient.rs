//! What one device of a slice gets: a push to one of its tokens, nothing, or an outcome without a push. Pure.

use noroshi_store::{ActivityRecipient, ActivityToken};
use noroshi_types::{Outcome, PushService, Timestamp};

use crate::activity::content::Form;

/// The ways to devices that the app has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ways {
    /// iOS is reached over FCM.
    pub(super) ios_over_fcm: bool,
    pub(super) ended: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Plan {
    /// A push over APNs, or a data message for Android, to this token.
    Push { form: Form, token: ActivityToken },
    /// A push for iOS to the FCM token `token`, with the token that ActivityKit issued.
    OverFcm { form: Form, token: ActivityToken, live: ActivityToken },
    /// No push, and why.
    Outcome(Outcome),
    /// The device has no token that could get it, or was started and has not reported its token yet.
    Nothing,
}

pub(super) fn plan(recipient: ActivityRecipient, ways: Ways, now: Timestamp) -> Plan {
    let ActivityRecipient { platform, started, token, start, fcm, .. } = recipient;
    let alive =
        |token: Option<ActivityToken>| token.filter(|token| token.expires_at.is_none_or(|end| end > now));
    let (token, start, fcm) = (alive(token), alive(start), alive(fcm));
    let is_ios = token.is_some()
        || start.is_some()
        || platform.is_some_and(|platform| {
            ["ios", "ipados", "watchos"].iter().any(|name| platform.eq_ignore_ascii_case(name))
        });
    let live = match (token, start) {
        (Some(token), _) => (Form::Update, token),
        (None, Some(start)) if started == 0 && !ways.ended => (Form::Start, start),
        _ if is_ios => return Plan::Nothing,
        _ => {
            return match fcm {
                None => Plan::Nothing,
                // Nothing was started, so nothing ends.
                Some(_) if started == 0 && ways.ended => Plan::Nothing,
                Some(fcm) => pushed(Form::Android(started == 0), fcm),
            };
        }
    };
    let (form, live) = live;
    if live.suspect {
        return Plan::Outcome(Outcome::PushTokenSuspect);
    }
    match fcm {
        _ if !ways.ios_over_fcm => pushed(form, live),
        Some(fcm) if fcm.suspect => Plan::Outcome(Outcome::PushTokenSuspect),
        Some(fcm) => Plan::OverFcm { form, token: fcm, live },
        None => Plan::Outcome(Outcome::NoPushToken),
    }
}

fn pushed(form: Form, token: ActivityToken) -> Plan {
    if token.suspect { Plan::Outcome(Outcome::PushTokenSuspect) } else { Plan::Push { form, token } }
}

/// Whether iOS is reached over FCM.
pub(super) fn ios_over_fcm(wanted: Option<PushService>, configured: &[PushService]) -> bool {
    match wanted {
        Some(service) => service == PushService::Fcm,
        None => !configured.contains(&PushService::Apns) && configured.contains(&PushService::Fcm),
    }
}

#[cfg(test)]
mod tests {
    use noroshi_types::{DeviceNum, JsonText, PushEnvironment, PushToken, TokenKey};

    use super::*;

    const NOW: Timestamp = Timestamp(1_000);
    const APNS: Ways = Ways { ios_over_fcm: false, ended: false };

    fn token(key: &str) -> ActivityToken {
        let key = TokenKey::parse(key).expect("a key");
        ActivityToken {
            token: PushToken {
                service: key.kind().service(),
                environment: PushEnvironment::Production,
                json: JsonText::from_valid("{}"),
            },
            key,
            registered_at: Timestamp(1),
            suspect: false,
            expires_at: None,
        }
    }

    fn device() -> ActivityRecipient {
        ActivityRecipient {
            num: DeviceNum(1),
            platform: None,
            started: 0,
            token: None,
            start: None,
            fcm: None,
        }
    }

    fn form(plan: Plan) -> Option<Form> {
        match plan {
            Plan::Push { form, .. } | Plan::OverFcm { form, .. } => Some(form),
            Plan::Outcome(_) | Plan::Nothing => None,
        }
    }

    #[test]
    fn ios_is_started_once_and_updated_by_its_own_token() {
        let invited = || ActivityRecipient { start: Some(token("live-activity-start")), ..device() };
        assert_eq!(form(plan(invited(), APNS, NOW)), Some(Form::Start));
        let started = ActivityRecipient { started: 1, ..invited() };
        assert_eq!(plan(started.clone(), APNS, NOW), Plan::Nothing, "it has not reported its token");
        let joined = ActivityRecipient { token: Some(token("live-activity/a")), ..started };
        assert_eq!(form(plan(joined.clone(), APNS, NOW)), Some(Form::Update));
        let ended = Ways { ended: true, ..APNS };
        assert_eq!(form(plan(joined, ended, NOW)), Some(Form::Update));
        assert_eq!(plan(invited(), ended, NOW), Plan::Nothing, "it is over");
        let late = ActivityToken { expires_at: Some(NOW), ..token("live-activity-start") };
        let late = ActivityRecipient { start: Some(late), ..device() };
        assert_eq!(plan(late, APNS, NOW), Plan::Nothing);
    }

    #[test]
    fn a_suspect_token_gets_nothing() {
        let suspect = ActivityToken { suspect: true, ..token("live-activity/a") };
        let recipient = ActivityRecipient { token: Some(suspect), ..device() };
        assert_eq!(plan(recipient, APNS, NOW), Plan::Outcome(Outcome::PushTokenSuspect));
    }

    #[test]
    fn ios_over_fcm_needs_both_tokens() {
        let fcm = Ways { ios_over_fcm: true, ..APNS };
        let alone = ActivityRecipient { token: Some(token("live-activity/a")), ..device() };
        assert_eq!(plan(alone.clone(), fcm, NOW), Plan::Outcome(Outcome::NoPushToken));
        let both = ActivityRecipient { fcm: Some(token("fcm")), ..alone };
        assert!(matches!(plan(both, fcm, NOW), Plan::OverFcm { form: Form::Update, .. }));
        assert!(ios_over_fcm(None, &[PushService::Fcm]));
        assert!(!ios_over_fcm(None, &[PushService::Fcm, PushService::Apns]));
        assert!(ios_over_fcm(Some(PushService::Fcm), &[PushService::Apns]));
    }

    #[test]
    fn android_gets_every_state_and_ios_no_data_message() {
        let android = ActivityRecipient { fcm: Some(token("fcm")), ..device() };
        assert_eq!(form(plan(android.clone(), APNS, NOW)), Some(Form::Android(true)));
        let started = ActivityRecipient { started: 3, ..android.clone() };
        assert_eq!(form(plan(started.clone(), APNS, NOW)), Some(Form::Android(false)));
        let ended = Ways { ended: true, ..APNS };
        assert_eq!(form(plan(started, ended, NOW)), Some(Form::Android(false)));
        assert_eq!(plan(android.clone(), ended, NOW), Plan::Nothing);
        let ios = ActivityRecipient { platform: Some("iOS".to_owned()), ..android };
        assert_eq!(plan(ios, APNS, NOW), Plan::Nothing);
        assert_eq!(plan(device(), APNS, NOW), Plan::Nothing);
    }
}
