//! What a fake does besides its service's rules: latency, scripted answers, trouble with connections. As JSON it
//! is the body of `POST /behave`: what is given replaces what was, what is not given stays.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::latency::{Late, Latency};

/// Scripts of single tokens and of next requests that are kept.
const SCRIPTS_MAX: usize = 1_000_000;

/// How a fake behaves from now on.
#[derive(Debug, Clone, Serialize)]
pub struct Behaviour {
    pub latency: Latency,
    pub late: Option<Late>,
    /// Streams a connection may have open; more are refused (REFUSED_STREAM).
    pub streams_max: u32,
    /// APNs with token authentication allows one stream until the first authorised push.
    pub one_until_authorised: bool,
    /// Connections above are reset, as Apple's answer to too many is.
    pub connections_max: u32,
    pub handshake_ms: u64,
    /// How far the fake's clock is ahead of the machine's: tokens become old at will.
    pub clock_ahead_s: u64,
    /// What is renewed sooner than every 20 minutes counts as too many updates.
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

/// Among what a provider token may be renewed once in 20 minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Renewal {
    /// All connections of a team, as Apple counts.
    Team,
    /// It may be renewed at any time: for senders that are started again and again.
    Any,
}

/// An answer that is given whatever the rules say of a request that keeps them all.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scripted {
    /// Requests that pass before it begins.
    #[serde(default)]
    pub after: u64,
    /// How often it is given; none: for a token always, for next requests once.
    #[serde(default)]
    pub count: Option<u64>,
    #[serde(default, rename = "do")]
    pub act: Act,
    #[serde(default)]
    pub status: u16,
    #[serde(default)]
    pub reason: String,
    /// Milliseconds since 1970 (APNs' `timestamp`); none: now.
    #[serde(default)]
    pub timestamp: Option<u64>,
    #[serde(default)]
    pub retry_after_s: Option<u64>,
}

/// What is done in place of the usual.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// `status` with `reason`.
    #[default]
    Answer,
    /// RST_STREAM with REFUSED_STREAM: certainly not processed.
    Refuse,
    /// RST_STREAM with INTERNAL_ERROR, after it was processed.
    Reset,
    /// It is processed and never answered.
    Silence,
    /// It is processed, and the TCP connection is reset before the answer.
    Disconnect,
    /// GOAWAY: this stream and those after it are not processed; the connection ends when the earlier ones
    /// are answered.
    GoAway,
}

/// A change of behaviour, as it comes over HTTP.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Which fake; none: all.
    pub service: Option<crate::Service>,
    /// Begin with the default; how often tokens may be renewed stays as it was started with.
    #[serde(default)]
    pub reset: bool,
    pub latency: Option<Latency>,
    /// `{"share":0,"ms":0}` ends it.
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
    /// In this order, each after the one before it.
    #[serde(default)]
    pub next: Vec<Scripted>,
    /// Every connection hears GOAWAY now.
    #[serde(default)]
    pub go_away: bool,
    /// Every connection is reset now.
    #[serde(default)]
    pub disconnect: bool,
}

impl Behaviour {
    /// Takes the change, or nothing of it.
    pub(crate) fn change(&mut self, change: Change) -> Result<(), String> {
        change.check()?;
        if change.reset {
            *self = Self { renewal: self.renewal, ..Self::default() };
        }
        if self.tokens.len() + change.tokens.len() > SCRIPTS_MAX
            || self.next.len() + change.next.len() > SCRIPTS_MAX
        {
            return Err(format!("at most {SCRIPTS_MAX} scripts are kept"));
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

    /// The script for a request of this token, which keeps all rules.
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

/// Whether it is given once more.
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
            return Err("late.share is 0 to 1".to_owned());
        }
        if self.streams_max == Some(0) {
            return Err("streams_max is at least 1".to_owned());
        }
        for script in self.tokens.values().chain(&self.next) {
            let is_status = (200..600).contains(&script.status);
            if (script.act == Act::Answer) != is_status {
                return Err("a script has a status of 200 to 599, or something else to do".to_owned());
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
    fn next_answers_come_in_order_and_end() {
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
    fn a_token_has_its_script_for_as_long_as_it_says() {
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
    fn a_reset_forgets_all_but_how_often_tokens_may_be_renewed() {
        let mut behaviour = Behaviour::default();
        let text = r#"{"renewal":"any","streams_max":5,"next":[{"status":503}],"clock_ahead_s":9}"#;
        behaviour.change(change(text)).unwrap();
        behaviour.change(change(r#"{"reset":true,"handshake_ms":7}"#)).unwrap();
        assert_eq!((behaviour.streams_max, behaviour.clock_ahead_s, behaviour.handshake_ms), (1_000, 0, 7));
        assert_eq!((behaviour.script("t"), behaviour.renewal), (None, Renewal::Any));
    }

    #[test]
    fn what_cannot_be_is_refused_and_changes_nothing() {
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
