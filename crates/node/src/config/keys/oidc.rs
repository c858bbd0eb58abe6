//! Keys of the OpenID providers of the console: `console.oidc.NAME.…`, where the operator chooses the names. The rules between
//! keys, and the files with client secrets, are checked after all keys are read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use noroshi_console::{AppRef, Mapping, Provider};
use noroshi_types::{AppName, Role};
use parking_lot::Mutex;
use url::{Host, Url};

use super::Server;
use crate::config::reader::{Reader, Table, any};
use crate::small_file;

const PREFIX: &str = "console.oidc.";
/// Buttons of a page.
const PROVIDERS_MAX: usize = 8;
const NAME_BYTES_MAX: usize = 32;
const MAPPINGS_MAX: usize = 500;
const SECRET_FILE_BYTES_MAX: u64 = 4 << 10;

/// Providers whose client secrets are read with `OpenIds::complete`.
#[derive(Debug, Clone)]
pub struct OpenIds {
    pub providers: Vec<Provider>,
    secret_files: Vec<Option<PathBuf>>,
}

/// A key of a provider. Names are few, and the same at each reading, so each key is leaked once.
fn key(name: &str, rest: &str) -> &'static str {
    static KEYS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let key = format!("{PREFIX}{name}.{rest}");
    let mut keys = KEYS.lock();
    if let Some(known) = keys.get(key.as_str()) {
        return known;
    }
    let key: &'static str = key.leak();
    keys.insert(key);
    key
}

/// The name that stands for all of them in the reference.
pub(in crate::config) const ANY_NAME: &str = "NAME";

fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text == ANY_NAME
        || text.len() <= NAME_BYTES_MAX
            && text.starts_with(|first: char| first.is_ascii_lowercase())
            && text.bytes().all(plain)
}

impl OpenIds {
    pub(in crate::config) fn read(reader: &mut Reader) -> Self {
        let names = reader.names(PREFIX);
        let mut openids = Self { providers: Vec::new(), secret_files: Vec::new() };
        for name in names {
            if !is_name(&name) {
                let text =
                    format!("a name has a-z, 0-9 and -, at most {NAME_BYTES_MAX}, and begins with a letter");
                reader.forget(&format!("{PREFIX}{name}."), text);
                continue;
            }
            if openids.providers.len() == PROVIDERS_MAX {
                reader.forget(
                    &format!("{PREFIX}{name}."),
                    format!("there are at most {PROVIDERS_MAX} providers"),
                );
                continue;
            }
            let (provider, secret_file) = read(reader, &name);
            openids.providers.push(provider);
            openids.secret_files.push(secret_file);
        }
        openids
    }

    /// `url`: of the console.
    pub(in crate::config) fn complete(
        &mut self,
        reader: &mut Reader,
        server: &Server,
        url: &mut Option<String>,
    ) {
        if self.providers.is_empty() {
            return;
        }
        if url.is_none() && server.dev && server.admin.port() != 0 {
            *url = Some(format!("http://{}", server.admin));
        }
        if url.is_none() {
            let text = "requires console.url, the origin at which browsers reach the console";
            reader.problem(key(&self.providers[0].name, "issuer"), text);
        }
        let mut issuers = BTreeSet::new();
        for (provider, secret_file) in self.providers.iter_mut().zip(&self.secret_files) {
            if let Err((rest, text)) = check(provider, secret_file.as_deref(), server.dev) {
                reader.problem(key(&provider.name, rest), text);
            } else if !issuers.insert(provider.issuer.clone()) {
                reader.problem(key(&provider.name, "issuer"), "another provider has the same issuer");
            }
        }
    }
}

fn read(reader: &mut Reader, name: &str) -> (Provider, Option<PathBuf>) {
    let key = |rest| key(name, rest);
    let help = "On the button of the log-in page. Unset: the provider's name.";
    let title = reader.optional(key("title"), ("text", "at most 60 characters"), title, help);
    let help = "The provider's issuer, as its configuration at `/.well-known/openid-configuration` names it. An http URL only \
                of this machine, with `server.dev`.";
    let issuer = reader.optional(key("issuer"), ("text", "an https URL"), any, help);
    let help = "The name of this client at the provider.";
    let client_id = reader.optional(key("client_id"), ("text", "printable ASCII"), ascii, help);
    let help = "The client's secret.";
    let secret = reader.secret(key("client_secret"), "the secret", help);
    let help = "File with the client's secret, on one line, instead of `client_secret`.";
    let secret_file = reader.optional_path(key("client_secret_file"), "a file with the secret", help);
    let help = "Requested scopes, separated by spaces.";
    let default = "openid email profile";
    let scopes = reader.text(key("scopes"), default, ("text", "scopes with openid"), scopes, help);
    let help = "The claim whose values `mappings` compares: a string, or a list. Dots lead into objects, such as \
                realm_access.roles.";
    let roles_claim = reader.text(key("roles_claim"), "groups", ("text", "a claim"), claim, help);
    let help = "Roles by values of `roles_claim`, as a list of { value, app, role }; the app `*` stands for all apps. For each \
                app, the first entry that applies decides.";
    let mappings = reader.tables(key("mappings"), "at most 500 of { value, app, role }", mappings, help);
    let help = "Role of people to whom no mapping applies. Unset: they are refused.";
    let expected = "viewer, support, author, operator";
    let default_role = reader.optional(key("default_role"), ("word", expected), default_role, help);
    let help = "App of `default_role`; `*` stands for all apps.";
    let default_app = reader.text(key("default_app"), "*", ("text", "an app, or *"), app, help);
    let help = "Domains of e-mail addresses that may log in. Empty: all.";
    let domains = reader.texts(key("allowed_email_domains"), "domains", domain, help);
    let help = "Accepts people whose e-mail address the provider does not call verified.";
    let accepts_unverified_email = reader.switch(key("unverified_email"), false, help);
    let help = "The first log-in takes over the person with the same verified e-mail address. Those who control the provider can \
                then act as that person.";
    let links_by_email = reader.switch(key("link_by_email"), false, help);
    let default_role = default_role.as_deref().and_then(Role::named);
    let provider = Provider {
        name: name.to_owned(),
        title: title.unwrap_or_else(|| name.to_owned()),
        issuer: issuer.unwrap_or_default(),
        client_id: client_id.unwrap_or_default(),
        client_secret: secret.unwrap_or_default(),
        scopes,
        roles_claim,
        mappings,
        default_role: default_role.map(|role| (AppRef::parse(&default_app), role)),
        email_domains: domains.iter().map(|domain| domain.to_lowercase()).collect(),
        accepts_unverified_email,
        links_by_email,
    };
    (provider, secret_file)
}

/// The error has the last part of the key.
fn check(
    provider: &mut Provider,
    secret_file: Option<&Path>,
    dev: bool,
) -> Result<(), (&'static str, String)> {
    check_issuer(&provider.issuer, dev).map_err(|text| ("issuer", text))?;
    if provider.client_id.is_empty() {
        return Err(("client_id", "must be set".to_owned()));
    }
    match secret_file {
        Some(_) if !provider.client_secret.is_empty() => {
            return Err(("client_secret_file", "must not be set together with client_secret".to_owned()));
        }
        Some(path) => {
            provider.client_secret = secret(path).map_err(|text| ("client_secret_file", text))?;
        }
        None if provider.client_secret.is_empty() => {
            return Err(("client_secret", "must be set, or client_secret_file".to_owned()));
        }
        None => {}
    }
    if provider.accepts_unverified_email && provider.roles_claim == "email" {
        let text = "must not be set while roles_claim is email: anybody could claim the address of an owner";
        return Err(("unverified_email", text.to_owned()));
    }
    if provider.mappings.is_empty() && provider.default_role.is_none() {
        return Err((
            "mappings",
            "must have an entry, or default_role must be set: nobody could log in".to_owned(),
        ));
    }
    Ok(())
}

fn check_issuer(issuer: &str, dev: bool) -> Result<(), String> {
    let expected =
        "must be an https URL without query and fragment, such as \"https://id.example.com/realms/main\"";
    let url = Url::parse(issuer).map_err(|_| expected.to_owned())?;
    let is_here = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    let has_scheme = url.scheme() == "https" || url.scheme() == "http" && is_here && dev;
    let is_plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    match has_scheme && is_plain && url.host().is_some() {
        true => Ok(()),
        false if url.scheme() == "http" => {
            Err("must begin with https://; http:// only of this machine, with server.dev".to_owned())
        }
        false => Err(expected.to_owned()),
    }
}

fn secret(path: &Path) -> Result<String, String> {
    let text = small_file::read(path, SECRET_FILE_BYTES_MAX)?.unwrap_or_default();
    let secret = text.trim_end_matches(['\r', '\n']);
    match secret.is_empty() || secret.contains(char::is_control) {
        true => Err("must contain the secret, on one line".to_owned()),
        false => Ok(secret.to_owned()),
    }
}

fn title(text: &str) -> Result<(), String> {
    match (1..=60).contains(&text.chars().count()) && !text.contains(char::is_control) {
        true => Ok(()),
        false => Err("at most 60 characters, without control characters".to_owned()),
    }
}

fn ascii(text: &str) -> Result<(), String> {
    match !text.is_empty() && text.len() <= 512 && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(()),
        false => Err("printable ASCII characters, at most 512".to_owned()),
    }
}

/// RFC 6749 §3.3.
fn scopes(text: &str) -> Result<(), String> {
    let is_scope = |scope: &str| !scope.is_empty() && scope.bytes().all(|byte| byte.is_ascii_graphic());
    match text.len() <= 512 && text.split(' ').all(is_scope) && text.split(' ').any(|scope| scope == "openid")
    {
        true => Ok(()),
        false => Err("scopes separated by single spaces, openid among them".to_owned()),
    }
}

fn claim(text: &str) -> Result<(), String> {
    match !text.is_empty() && text.len() <= 256 && !text.contains(char::is_control) {
        true => Ok(()),
        false => Err("the name of a claim".to_owned()),
    }
}

/// An owner must be named in a mapping.
fn default_role(text: &str) -> Result<(), String> {
    match Role::named(text) {
        Some(role) if role != Role::Owner => Ok(()),
        _ => Err("one of viewer, support, author, operator; only a mapping makes owners".to_owned()),
    }
}

fn app(text: &str) -> Result<(), String> {
    match text == "*" || AppName::parse(text).is_ok() {
        true => Ok(()),
        false => Err("the name of an app, or \"*\"".to_owned()),
    }
}

fn domain(text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-');
    match !text.is_empty() && text.len() <= 253 && text.chars().all(plain) {
        true => Ok(()),
        false => Err("a domain, such as \"example.com\"".to_owned()),
    }
}

fn mappings(tables: &[Vec<(String, String)>]) -> Result<Vec<Mapping>, String> {
    if tables.len() > MAPPINGS_MAX {
        return Err(format!("has {} entries, at most {MAPPINGS_MAX} are allowed", tables.len()));
    }
    tables.iter().enumerate().map(|(at, table)| mapping(at, table)).collect()
}

fn mapping(at: usize, table: &[(String, String)]) -> Result<Mapping, String> {
    let field = |wanted: &str| {
        let found = table.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        found.filter(|text| !text.is_empty()).ok_or_else(|| format!("[{at}].{wanted}: must be set"))
    };
    if let Some((unknown, _)) =
        table.iter().find(|(name, _)| !["value", "app", "role"].contains(&name.as_str()))
    {
        return Err(format!("[{at}].{unknown}: unknown key; expected value, app and role"));
    }
    let (value, its_app, role) = (field("value")?, field("app")?, field("role")?);
    app(its_app).map_err(|expected| format!("[{at}].app: expected {expected}, got {its_app:?}"))?;
    let names = Role::ALL.map(Role::as_str).join(", ");
    let role =
        Role::named(role).ok_or_else(|| format!("[{at}].role: expected one of {names}, got {role:?}"))?;
    Ok(Mapping { value: value.to_owned(), app: AppRef::parse(its_app), role })
}

impl Table for Mapping {
    fn fields(&self) -> Vec<(&'static str, &str)> {
        let app = match &self.app {
            AppRef::All => "*",
            AppRef::Named(name) => name,
        };
        vec![("value", &self.value), ("app", app), ("role", self.role.as_str())]
    }
}
