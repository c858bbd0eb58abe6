//! Selects the app that a JWT belongs to, before any key is tried.
//!
//! Pure and cheap: reads the claims `iss` and `aud` of the unverified token and looks them up. A key never selects an
//! app, because public keys are public: an app that lists the keys of another app's identity provider would receive
//! that app's users. The selected app's keys then verify the token, and [`crate::jwt`] compares the verified `iss` and
//! `aud` with the app again.
//!
//! The request names the app, or the token does: its `aud` contains the app's audience and its `iss` is the app's
//! issuer if the app declares one; or it has no `aud` and its `iss` is the app's name. A token that names no app
//! belongs to the only app that signs tokens, if there is exactly one.
//!
//! No app takes precedence: a token that several apps match is rejected. [`Directory::rival`] prevents operators from
//! creating such apps; databases of earlier versions and fronts that mirror apps may still contain them.

use std::collections::HashMap;
use std::fmt;

use noroshi_store::{App, AppSettings};
use noroshi_types::AppId;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};

use crate::refused::Refused;

/// The issuer and the audience of a token (RFC 7519 §4.1). In an unverified token they only tell where to look for
/// keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
pub(crate) struct Named {
    #[serde(default)]
    pub(crate) iss: Option<String>,
    #[serde(default)]
    pub(crate) aud: Option<Audience>,
}

/// One string, or an array of strings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Audience {
    One(String),
    Many(Vec<String>),
}

// An untagged enum would first copy the value into a tree, at every log-in.
impl<'de> Deserialize<'de> for Audience {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AudienceVisitor)
    }
}

struct AudienceVisitor;

impl<'de> Visitor<'de> for AudienceVisitor {
    type Value = Audience;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string or an array of strings")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Audience, E> {
        Ok(Audience::One(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, values: A) -> Result<Audience, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(values)).map(Audience::Many)
    }
}

impl Audience {
    pub(crate) fn values(&self) -> &[String] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }

    pub(crate) fn contains(&self, value: &str) -> bool {
        self.values().iter().any(|one| one == value)
    }
}

/// The value that `aud` of the app's tokens contains.
pub(crate) fn audience_of(app: &App) -> &str {
    app.settings.audience.as_deref().unwrap_or(app.name.as_str())
}

pub(crate) fn signs(settings: &AppSettings) -> bool {
    settings.jwt_secret.is_some() || settings.jwks.is_some() || settings.jwks_url.is_some()
}

/// Indexes of the apps of a snapshot; a number is the app's position in the snapshot's list.
#[derive(Default)]
pub(crate) struct Directory {
    by_id: HashMap<AppId, usize>,
    by_name: HashMap<Box<str>, usize>,
    /// Several apps may share an audience, with different issuers.
    by_audience: HashMap<Box<str>, Vec<usize>>,
    /// Set if exactly one app signs tokens.
    only: Option<usize>,
}

impl Directory {
    pub(crate) fn of(apps: &[App]) -> Self {
        let mut directory = Self::default();
        for (i, app) in apps.iter().enumerate() {
            directory.by_id.insert(app.id, i);
            directory.by_name.insert(app.name.as_str().into(), i);
            directory.by_audience.entry(audience_of(app).into()).or_default().push(i);
        }
        let mut signing = (0..apps.len()).filter(|&i| signs(&apps[i].settings));
        directory.only = signing.next().filter(|_| signing.next().is_none());
        directory
    }

    pub(crate) fn by_id<'a>(&self, apps: &'a [App], id: AppId) -> Option<&'a App> {
        self.by_id.get(&id).and_then(|&i| apps.get(i))
    }

    pub(crate) fn by_name<'a>(&self, apps: &'a [App], name: &str) -> Option<&'a App> {
        self.by_name.get(name).and_then(|&i| apps.get(i))
    }

    /// The app whose keys verify the token. `named` is the app in the request. An unknown app, or one that signs no
    /// tokens, is rejected like a wrong signature, so that callers cannot find out which apps exist.
    pub(crate) fn select<'a>(
        &self,
        apps: &'a [App],
        token: &Named,
        named: Option<&str>,
    ) -> Result<&'a App, Refused> {
        let selected = match named {
            Some(name) => self.by_name.get(name).copied(),
            None => Some(match self.named_by(apps, token)? {
                Some(app) => app,
                None => self.only.ok_or(Refused::Unnamed)?,
            }),
        };
        let app = selected.and_then(|i| apps.get(i)).filter(|app| signs(&app.settings));
        app.ok_or(Refused::Signature)
    }

    /// The app that the token names. If several match, only those that sign tokens count.
    fn named_by(&self, apps: &[App], token: &Named) -> Result<Option<usize>, Refused> {
        let Some(audience) = &token.aud else {
            let issuer = token.iss.as_deref();
            return Ok(issuer.and_then(|issuer| self.by_name.get(issuer).copied()));
        };
        let (mut signing, mut silent) = (None, None);
        for &i in audience.values().iter().filter_map(|one| self.by_audience.get(one.as_str())).flatten() {
            let settings = &apps[i].settings;
            if settings.issuer.is_some() && settings.issuer != token.iss {
                continue;
            }
            if !signs(settings) {
                silent = Some(i);
            } else if signing.replace(i).is_some_and(|other| other != i) {
                // The same app twice: the array repeats a value.
                return Err(Refused::Ambiguous);
            }
        }
        Ok(signing.or(silent))
    }

    /// Another app with which an app of this name and these settings would newly share tokens. Apps with the same
    /// audience share tokens if their issuers are equal or one declares none, because that one accepts every issuer. An
    /// app that already shares tokens may change settings that do not add to that.
    pub(crate) fn rival<'a>(&self, apps: &'a [App], name: &str, settings: &AppSettings) -> Option<&'a App> {
        let audience = settings.audience.as_deref().unwrap_or(name);
        let is_as_before = |app: &App| {
            audience_of(app) == audience
                && app.settings.issuer == settings.issuer
                && (signs(&app.settings) || !signs(settings))
        };
        if self.by_name(apps, name).is_some_and(is_as_before) {
            return None;
        }
        let others = self.by_audience.get(audience)?.iter().map(|&i| &apps[i]);
        others.filter(|app| app.name.as_str() != name).find(|app| {
            let (one, other) = (&app.settings.issuer, &settings.issuer);
            one.is_none() || other.is_none() || one == other
        })
    }

    /// The app that accepts tokens without a named app.
    pub(crate) fn only<'a>(&self, apps: &'a [App]) -> Option<&'a App> {
        self.only.and_then(|i| apps.get(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noroshi_types::{AppName, Timestamp};

    /// `name[ issuer][ audience]`, `-` for unset; a name that ends in `!` signs no tokens.
    fn apps(described: &[&str]) -> Vec<App> {
        let app = |(i, text): (usize, &&str)| {
            let mut words = text.split(' ');
            let name = words.next().unwrap_or_default();
            let mut word = || words.next().filter(|word| *word != "-").map(str::to_owned);
            let (issuer, audience) = (word(), word());
            let jwt_secret = (!name.ends_with('!')).then(|| b"secret".to_vec());
            App {
                id: AppId(i as u32),
                name: AppName::parse(name.trim_end_matches('!')).expect("a name"),
                created_at: Timestamp(0),
                settings: AppSettings { jwt_secret, issuer, audience, ..AppSettings::default() },
            }
        };
        described.iter().enumerate().map(app).collect()
    }

    fn check(described: &[&str], claims: &str, named: Option<&str>, expected: Result<&str, Refused>) {
        let apps = apps(described);
        let token: Named = serde_json::from_str(claims).expect(claims);
        let selected = Directory::of(&apps).select(&apps, &token, named);
        assert_eq!(selected.map(|app| app.name.as_str()), expected, "{described:?} {claims} {named:?}");
    }

    #[test]
    fn a_token_without_an_app_belongs_to_the_only_signing_app() {
        check(&["a"], "{}", None, Ok("a"));
        check(&["a", "b!"], r#"{"iss":"https://id","aud":"other"}"#, None, Ok("a"));
        check(&["a", "b"], "{}", None, Err(Refused::Unnamed));
        check(&["a", "b"], r#"{"iss":"https://id","aud":"other"}"#, None, Err(Refused::Unnamed));
        check(&["a!"], "{}", None, Err(Refused::Unnamed));
    }

    #[test]
    fn a_request_names_the_app_before_the_token_does() {
        check(&["a", "b"], "{}", Some("b"), Ok("b"));
        check(&["a", "b"], r#"{"aud":"a"}"#, Some("b"), Ok("b"));
        check(&["a", "b!"], "{}", Some("b"), Err(Refused::Signature));
        check(&["a"], "{}", Some("x"), Err(Refused::Signature));
    }

    #[test]
    fn a_token_names_its_app_by_the_apps_name() {
        check(&["a", "b"], r#"{"aud":"b"}"#, None, Ok("b"));
        check(&["a", "b"], r#"{"aud":["x","b","b"]}"#, None, Ok("b"));
        check(&["a", "b"], r#"{"iss":"b"}"#, None, Ok("b"));
        check(&["a", "b"], r#"{"iss":"b","aud":"x"}"#, None, Err(Refused::Unnamed));
        check(&["a", "b"], r#"{"iss":"a","aud":"b"}"#, None, Ok("b"));
        check(&["a", "b"], r#"{"aud":["a","b"]}"#, None, Err(Refused::Ambiguous));
        // A token for an app that signs none is rejected.
        check(&["a", "b!"], r#"{"aud":"b"}"#, None, Err(Refused::Signature));
    }

    #[test]
    fn a_token_names_its_app_by_issuer_and_audience() {
        let apps = &["a https://a api", "b https://b api", "c - shop"];
        check(apps, r#"{"iss":"https://a","aud":"api"}"#, None, Ok("a"));
        check(apps, r#"{"iss":"https://b","aud":["api","x"]}"#, None, Ok("b"));
        check(apps, r#"{"iss":"https://x","aud":"api"}"#, None, Err(Refused::Unnamed));
        check(apps, r#"{"aud":"api"}"#, None, Err(Refused::Unnamed));
        check(apps, r#"{"aud":"shop"}"#, None, Ok("c"));
        check(apps, r#"{"aud":"c"}"#, None, Err(Refused::Unnamed));
    }

    #[test]
    fn a_token_that_two_apps_claim_is_ambiguous() {
        let token = r#"{"iss":"https://a","aud":"api"}"#;
        check(&["a https://a api", "b https://a api"], token, None, Err(Refused::Ambiguous));
        check(&["a https://a api", "api"], token, None, Err(Refused::Ambiguous));
        check(&["api", "a https://a api"], token, None, Err(Refused::Ambiguous));
        check(&["a https://a api", "api"], token, Some("a"), Ok("a"));
        check(&["a https://a api", "api"], r#"{"iss":"https://x","aud":"api"}"#, None, Ok("api"));
        // An app that signs no tokens does not compete.
        check(&["a https://a api", "api!"], token, None, Ok("a"));
        check(&["api!", "a https://a api"], token, None, Ok("a"));
    }

    #[test]
    fn two_apps_never_share_tokens() {
        let apps = apps(&["a https://a api", "b", "c - shop"]);
        let directory = Directory::of(&apps);
        let rival = |name: &str, issuer: Option<&str>, audience: Option<&str>| {
            let settings = AppSettings {
                issuer: issuer.map(str::to_owned),
                audience: audience.map(str::to_owned),
                ..AppSettings::default()
            };
            directory.rival(&apps, name, &settings).map(|app| app.name.as_str())
        };
        assert_eq!(rival("d", Some("https://a"), Some("api")), Some("a"));
        assert_eq!(rival("d", Some("https://d"), Some("api")), None);
        assert_eq!(rival("a", Some("https://a"), Some("api")), None);
        assert_eq!(rival("d", None, Some("b")), Some("b"));
        assert_eq!(rival("shop", None, None), Some("c"));
        assert_eq!(rival("shop", Some("https://shop"), None), Some("c"), "c takes tokens of every issuer");
        assert_eq!(rival("d", Some("https://b"), Some("b")), Some("b"));
        assert_eq!(rival("d", None, Some("api")), Some("a"));
        assert_eq!(rival("api", Some("https://b"), None), None);
        assert_eq!(rival("c", Some("https://c"), Some("b")), Some("b"));
    }

    #[test]
    fn an_app_that_already_shares_tokens_may_change_its_other_settings() {
        let apps = apps(&["a https://a api", "api", "b! - api"]);
        let directory = Directory::of(&apps);
        let rival = |place: usize, change: fn(&mut AppSettings)| {
            let App { name, mut settings, .. } = apps[place].clone();
            change(&mut settings);
            directory.rival(&apps, name.as_str(), &settings).map(|app| app.name.as_str().to_owned())
        };
        for place in 0..3 {
            assert_eq!(rival(place, |it| it.client_publish.push("a/#".to_owned())), None, "{place}");
            assert_eq!(rival(place, |it| it.jwt_secret = None), None, "{place}");
            assert_eq!(
                rival(place, |it| it.audience = Some("free".to_owned())),
                None,
                "{place}: the way out"
            );
        }
        assert_eq!(rival(0, |it| it.issuer = None).as_deref(), Some("api"));
        let signs_now = rival(2, |it| it.jwt_secret = Some(b"secret".to_vec()));
        assert_eq!(signs_now.as_deref(), Some("a"), "its keys would make the tokens of a ambiguous");
    }
}
