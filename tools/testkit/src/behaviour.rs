//! The behaviour of a fake in addition to its service's rules: latency, scripted answers, and connection
//! failures. In JSON it is the body of `POST /behave`: given fields replace the current values, the others
//! remain.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::latency::{Late, Latency};

/// Maximum number of scripts for tokens and for next requests.
const SCRIPTS_MAX: usize = 1_000_000;

/// The current behaviour of a fake.
#[derive(Debug, Clone, Serialize)]
pub struct Behaviour {
    pub latency: Latency,
    pub late: Option<Late>,
    /// Maximum number of open streams per connection; more are refused (REFUSED_STREAM).
    pub streams_max: u32,
    /// With token authentication, APNs allows only one stream until the first authorised push.
    pub one_until_authorised: bool,
    /// Further connections are reset, as Apple does.
    pub connections_max: u32,
    pub handshake_ms: u64,
    /// How far the fake's clock is ahead of the system clock; used to let tokens expire.
    pub clock_ahead_s: u64,
    /// Renewals of provider tokens more often than every 20 minutes are rejected as too many updates.
    pub renewal: Renewal,
    #[serde(skip)]
    pub(crate) tokens: HashMap<String, Scripted>,
    #[serde(skip)]
    pub(crate) next: VecDeque<Scripted>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            latency: Latency::None,
            late: None,
            streams_max: 1_000,
            one_until_authorised: true,
            connections_max: 1_000,
            handshake_ms: 0,
            clock_ahead_s: 0,
            renewal: Renewal::Team,
            tokens: HashMap::new(),
            next: VecDeque::new(),
        }
    }
}

/// The scope of the limit on renewals of provider tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Renewal {
    /// All connections of a team, as at Apple.
    Team,
    /// No limit, for senders that are restarted often.
    Any,
}

/// A scripted answer to a request that keeps all rules.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scripted {
    /// Number of requests before it takes effect.
    #[serde(default)]
    pub after: u64,
    /// How often it is given; default: always for a token, once for next requests.
    #[serde(default)]
    pub count: Option<u64>,
    #[serde(default, rename = "do")]
    pub act: Act,
    #[serde(default)]
    pub status: u16,
    #[serde(default)]
    pub reason: String,
    /// Milliseconds since 1970 (APNs' `timestamp`); default: now.
    #[serde(default)]
    pub timestamp: Option<u64>,
    #[serde(default)]
    pub retry_after_s: Option<u64>,
}

/// What to do with a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Answer with `status` and `reason`.
    #[default]
    Answer,
    /// RST_STREAM with REFUSED_STREAM: not processed.
    Refuse,
    /// RST_STREAM with INTERNAL_ERROR after processing.
    Reset,
    /// Process it without ever answering.
    Silence,
    /// Process it and reset the TCP connection before the answer.
    Disconnect,
    /// GOAWAY: this stream and later ones are not processed; the connection ends when the earlier ones have been
    /// answered.
    GoAway,
}

/// A change of behaviour, as sent to the control port.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The fake to change; default: all.
    pub service: Option<crate::Service>,
    /// Start from the defaults; the renewal limit keeps its initial value.
    #[serde(default)]
    pub reset: bool,
    pub latency: Option<Latency>,
    /// `{"share":0,"ms":0}` disables it.
    pub late: Option<Late>,
    pub streams_max: Option<u32>,
    pub one_until_authorised: Option<bool>,
    pub connections_max: Option<u32>,
    pub handshake_ms: Option<u64>,
    pub clock_ahead_s: Option<u64>,
    pub renewal: Option<Renewal>,
    /// By device token.
    #[serde(default)]
    pub tokens: HashMap<String, Scripted>,
    /// Applied in this order.
    #[serde(default)]
    pub next: Vec<Scripted>,
    /// Send GOAWAY on every connection now.
    #[serde(default)]
    pub go_away: bool,
    /// Reset every connection now.
    #[serde(default)]
    pub disconnect: bool,
}

impl Behaviour {
    /// Applies the whole change or nothing.
    pub(crate) fn change(&mut self, change: Change) -> Result<(), String> {
        change.check()?;
        if change.reset {
            *self = Self { renewal: self.renewal, ..Self::default() };
        }
        if self.tokens.len() + change.tokens.len() > SCRIPTS_MAX
            || self.next.len() + change.next.len() > SCRIPTS_MAX
        {
            return Err(format!("at most {SCRIPTS_MAX} scripts are possible"));
        }
        set(&mut self.latency, change.latency);
        set(&mut self.late, change.late.map(Some));
        set(&mut self.streams_max, change.streams_max);
        set(&mut self.one_until_authorised, change.one_until_authorised);
        set(&mut self.connections_max, change.connections_max);
        set(&mut self.handshake_ms, change.handshake_ms);
        set(&mut self.clock_ahead_s, change.clock_ahead_s);
        set(&mut self.renewal, change.renewal);
        self.tokens.extend(change.tokens);
        self.next.extend(change.next);
        Ok(())
    }

    /// The script for a valid request with this token.
    pub(crate) fn script(&mut self, token: &str) -> Option<Scripted> {
        if let Some(script) = self.tokens.get_mut(token)
            && take(script, u64::MAX)
        {
            return Some(script.clone());
        }
        while let Some(script) = self.next.front_mut() {
            if script.after > 0 {
                script.after -= 1;
                return None;
            }
            if take(script, 1) {
                return Some(script.clone());
            }
            self.next.pop_front();
        }
        None
    }
}

/// Whether the script is used once more.
fn take(script: &mut Scripted, otherwise: u64) -> bool {
    if script.after > 0 {
        script.after -= 1;
        return false;
    }
    let left = script.count.unwrap_or(otherwise);
    script.count = Some(left.saturating_sub(1));
    left > 0
}

fn set<T>(to: &mut T, from: Option<T>) {
    if let Some(from) = from {
        *to = from;
    }
}

impl Change {
    fn check(&self) -> Result<(), String> {
        self.latency.as_ref().map_or(Ok(()), Latency::check)?;
        if self.late.is_some_and(|late| !(0.0..=1.0).contains(&late.share)) {
            return Err("late.share must be between 0 and 1".to_owned());
        }
        if self.streams_max == Some(0) {
            return Err("streams_max must be at least 1".to_owned());
        }
        for script in self.tokens.values().chain(&self.next) {
            let is_status = (200..600).contains(&script.status);
            if (script.act == Act::Answer) != is_status {
                return Err("a script needs a status between 200 and 599, or another act".to_owned());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(text: &str) -> Change {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn next_answers_are_given_in_order_and_then_end() {
        let mut behaviour = Behaviour::default();
        let text = r#"{"next":[{"after":1,"count":2,"status":503},{"do":"refuse"}]}"#;
        behaviour.change(change(text)).unwrap();
        let mut next = || behaviour.script("t").map(|script| (script.act, script.status));
        assert_eq!(next(), None);
        assert_eq!(next(), Some((Act::Answer, 503)));
        assert_eq!(next(), Some((Act::Answer, 503)));
        assert_eq!(next(), Some((Act::Refuse, 0)));
        assert_eq!(next(), None);
    }

    #[test]
    fn token_scripts_are_used_as_often_as_specified() {
        let mut behaviour = Behaviour::default();
        let text = r#"{"tokens":{"a":{"status":410},"b":{"status":429,"count":1,"retry_after_s":3}}}"#;
        behaviour.change(change(text)).unwrap();
        for (token, status) in
            [("a", Some(410)), ("b", Some(429)), ("b", None), ("a", Some(410)), ("c", None)]
        {
            assert_eq!(behaviour.script(token).map(|script| script.status), status, "{token}");
        }
    }

    #[test]
    fn reset_keeps_only_the_renewal_limit() {
        let mut behaviour = Behaviour::default();
        let text = r#"{"renewal":"any","streams_max":5,"next":[{"status":503}],"clock_ahead_s":9}"#;
        behaviour.change(change(text)).unwrap();
        behaviour.change(change(r#"{"reset":true,"handshake_ms":7}"#)).unwrap();
        assert_eq!((behaviour.streams_max, behaviour.clock_ahead_s, behaviour.handshake_ms), (1_000, 0, 7));
        assert_eq!((behaviour.script("t"), behaviour.renewal), (None, Renewal::Any));
    }

    #[test]
    fn invalid_changes_are_rejected_as_a_whole() {
        let mut behaviour = Behaviour::default();
        for text in [
            r#"{"streams_max":5,"late":{"share":2,"ms":1}}"#,
            r#"{"streams_max":0}"#,
            r#"{"streams_max":5,"next":[{}]}"#,
            r#"{"streams_max":5,"next":[{"status":503,"do":"refuse"}]}"#,
        ] {
            assert!(behaviour.change(change(text)).is_err(), "{text}");
        }
        assert_eq!(behaviour.streams_max, 1_000);
        assert!(serde_json::from_str::<Change>(r#"{"stream_max":1}"#).is_err());
    }
}
