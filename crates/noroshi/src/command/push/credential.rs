//! `noroshi push add`: one command per push service with the fields of its credential.
//!
//! Secrets are read from files and sent to the admin address, never printed. A generated key is written to
//! a file only on request, and never over an existing file.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Subcommand;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use serde_json::{Map, Value, json};

use super::Managed;
use crate::failure::Failure;
use crate::input::{read, read_json};

#[derive(Debug, Subcommand)]
pub(super) enum Service {
    /// Apple: a signing key (.p8) with --key, or a certificate with --certificate and --private-key
    Apns(Apns),
    /// Google: the JSON file of a service account
    Fcm(Fcm),
    /// Browsers and UnifiedPush: the VAPID key (applicationServerKey of web pages)
    Webpush(WebPush),
    /// A provider of your choice (another vendor, e-mail, SMS) behind a signed webhook
    Webhook(Webhook),
    /// Huawei Push Kit (HarmonyOS 5 and newer): the JSON file of a service account
    Hms(Hms),
    /// Windows: an app registration of Microsoft Entra ID, or the package SID of a Store app
    Wns(Wns),
}

/// Fields of every credential.
#[derive(Debug, clap::Args)]
struct Common {
    /// A name of your choice, shown in lists
    #[arg(long)]
    name: Option<String>,
    /// Replace the app's existing credential for this service and environment
    #[arg(long)]
    replace: bool,
    /// Maximum pushes per second [default: the push service's own limit]
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    #[command(flatten)]
    managed: Managed,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  noroshi push add apns --key AuthKey_ABC123DEFG.p8 --key-id ABC123DEFG --team-id DEF123GHIJ --topic com.example.app
  noroshi push add apns --certificate push.pem --private-key push.key --topic com.example.app --environment sandbox")]
pub(super) struct Apns {
    /// The signing key, a .p8 file; - reads standard input
    #[arg(long, value_name = "FILE", required_unless_present = "certificate", requires_all = ["key_id", "team_id"])]
    key: Option<PathBuf>,
    /// ID of the signing key, ten characters
    #[arg(long, requires = "key")]
    key_id: Option<String>,
    /// ID of the Apple developer team, ten characters
    #[arg(long, requires = "key")]
    team_id: Option<String>,
    /// A certificate chain in PEM, instead of a signing key
    #[arg(long, value_name = "FILE", conflicts_with = "key", requires = "private_key")]
    certificate: Option<PathBuf>,
    /// The certificate's private key in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    private_key: Option<PathBuf>,
    /// Bundle ID of the app
    #[arg(long)]
    topic: String,
    /// Apple's environment of the credential's devices
    #[arg(long, value_parser = ["production", "sandbox"], default_value = "production")]
    environment: String,
    /// A server other than Apple's, for tests
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// A different server for broadcasts [default: the server of pushes]
    #[arg(long, value_name = "URL")]
    broadcast_endpoint: Option<String>,
    /// A server other than Apple's that manages broadcast channels, for tests
    #[arg(long, value_name = "URL")]
    channels_endpoint: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub(super) struct Fcm {
    /// The service account's JSON file as issued by Google; - reads standard input
    #[arg(long, value_name = "FILE")]
    service_account: PathBuf,
    /// A server other than Google's, for tests
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// A different server for access tokens, for tests
    #[arg(long, value_name = "URL")]
    token_endpoint: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Subscriptions are bound to the key: after a key change every browser must subscribe again. Keep a copy \
(--save-key) separate from the node's data.")]
pub(super) struct WebPush {
    /// The private key: a PEM file, or its 32 bytes as base64url [default: a generated key]
    #[arg(long, value_name = "FILE")]
    private_key: Option<PathBuf>,
    /// Also write the generated private key to this file (mode 0600)
    #[arg(long, value_name = "FILE", conflicts_with = "private_key")]
    save_key: Option<PathBuf>,
    /// Contact for push services, such as mailto:ops@example.com; required
    #[arg(long, value_name = "URL")]
    subject: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Noroshi posts batches of pushes to the URL as JSON, signed by Standard Webhooks (https://www.standardwebhooks.com).
Tokens name the provider: {\"service\":\"webhook\",\"provider\":\"mail\",\"token\":\"ann@example.com\"}

Examples:
  echo whsec_$(openssl rand -base64 32) > mail.secret
  noroshi push add webhook --name mail --url https://provider.example/push --secret mail.secret
  noroshi push add webhook --name mail --url https://provider.example/push --secret new.secret --previous-secret mail.secret --replace")]
pub(super) struct Webhook {
    /// The https URL that receives batches; http only on this machine
    #[arg(long, value_name = "URL")]
    url: String,
    /// A file with the secret that signs requests (whsec_…); - reads standard input
    #[arg(long, value_name = "FILE")]
    secret: PathBuf,
    /// While a secret is being replaced: the old one, with which requests are signed too
    #[arg(long, value_name = "FILE")]
    previous_secret: Option<PathBuf>,
    /// Recipients of one request, 1 to 500 [default: 100]
    #[arg(long, value_name = "COUNT")]
    batch_size: Option<u32>,
    /// Requests at a time, 1 to 32 [default: 4]
    #[arg(long, value_name = "COUNT")]
    concurrency: Option<u32>,
    /// Seconds to wait for an answer, 1 to 30 [default: 10]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u32>,
    /// Devices may register tokens themselves. Not for e-mail addresses and phone numbers, which may belong to another person
    #[arg(long)]
    device_tokens: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
pub(super) struct Hms {
    /// The service account's JSON file as issued by Huawei; - reads standard input
    #[arg(long, value_name = "FILE")]
    service_account: PathBuf,
    /// Category of notifications that name none [default: MARKETING, which needs no permission by Huawei]
    #[arg(long)]
    category: Option<String>,
    /// A server other than Huawei's, for tests
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  noroshi push add wns --tenant-id TENANT --client-id APPLICATION --client-secret wns.secret
  noroshi push add wns --client-id ms-app://s-1-15-2-… --client-secret wns.secret")]
pub(super) struct Wns {
    /// ID of the application in Microsoft Entra ID, or the package SID (ms-app://…) of a Store app
    #[arg(long, value_name = "ID")]
    client_id: String,
    /// A file with the client secret; - reads standard input
    #[arg(long, value_name = "FILE")]
    client_secret: PathBuf,
    /// ID of the tenant in Microsoft Entra ID; not for a package SID
    #[arg(long, value_name = "ID")]
    tenant_id: Option<String>,
    /// A server other than Microsoft's, for tests
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// A different server for access tokens, for tests
    #[arg(long, value_name = "URL")]
    token_endpoint: Option<String>,
    #[command(flatten)]
    common: Common,
}

impl Service {
    pub(super) async fn add(self) -> Result<(), Failure> {
        match self {
            Service::Apns(apns) => apns.common.add(apns.body()?).await,
            Service::Fcm(fcm) => fcm.common.add(fcm.body()?).await,
            Service::Webhook(webhook) => webhook.common.add(webhook.body()?).await,
            Service::Hms(hms) => hms.common.add(hms.body()?).await,
            Service::Wns(wns) => wns.common.add(wns.body()?).await,
            Service::Webpush(webpush) => {
                let (body, made) = webpush.body()?;
                webpush.common.add(body).await?;
                // Needed by web pages; standard output holds the server's response.
                if let Some(public) = made {
                    eprintln!("applicationServerKey: {public}");
                }
                Ok(())
            }
        }
    }
}

impl Common {
    async fn add(&self, mut body: Map<String, Value>) -> Result<(), Failure> {
        if let Some(name) = &self.name {
            body.insert("name".to_owned(), name.clone().into());
        }
        if let Some(rate) = self.rate {
            body.insert("quota".to_owned(), json!({"per_second": rate}));
        }
        let query = if self.replace { "?replace=true" } else { "" };
        let path = format!("{}{query}", self.managed.path());
        let answer = self.managed.connect.client()?.post(&path, &body.into()).await?;
        self.managed.format.details(&answer)
    }
}

impl Apns {
    fn body(&self) -> Result<Map<String, Value>, Failure> {
        let file = |path: &Option<PathBuf>| path.as_deref().map(read).transpose();
        Ok(given([
            ("service", Some("apns".to_owned())),
            ("environment", Some(self.environment.clone())),
            ("key", file(&self.key)?),
            ("key_id", self.key_id.clone()),
            ("team_id", self.team_id.clone()),
            ("certificate", file(&self.certificate)?),
            ("private_key", file(&self.private_key)?),
            ("topic", Some(self.topic.clone())),
            ("endpoint", self.endpoint.clone()),
            ("broadcast_endpoint", self.broadcast_endpoint.clone()),
            ("channels_endpoint", self.channels_endpoint.clone()),
        ]))
    }
}

impl Fcm {
    fn body(&self) -> Result<Map<String, Value>, Failure> {
        let account = read_json(&self.service_account)?;
        let mut body = given([
            ("service", Some("fcm".to_owned())),
            ("endpoint", self.endpoint.clone()),
            ("token_endpoint", self.token_endpoint.clone()),
        ]);
        body.insert("service_account".to_owned(), account);
        Ok(body)
    }
}

impl Webhook {
    fn body(&self) -> Result<Map<String, Value>, Failure> {
        let secret = |path: &Path| Ok::<_, Failure>(read(path)?.trim().to_owned());
        let mut body = given([
            ("service", Some("webhook".to_owned())),
            ("url", Some(self.url.clone())),
            ("secret", Some(secret(&self.secret)?)),
            ("previous_secret", self.previous_secret.as_deref().map(secret).transpose()?),
        ]);
        let counts = [
            ("batch_size", self.batch_size),
            ("concurrency", self.concurrency),
            ("timeout_seconds", self.timeout),
        ];
        body.extend(counts.into_iter().filter_map(|(name, count)| Some((name.to_owned(), count?.into()))));
        if self.device_tokens {
            body.insert("device_tokens".to_owned(), true.into());
        }
        Ok(body)
    }
}

impl Hms {
    fn body(&self) -> Result<Map<String, Value>, Failure> {
        let mut body = given([
            ("service", Some("hms".to_owned())),
            ("category", self.category.clone()),
            ("endpoint", self.endpoint.clone()),
        ]);
        body.insert("service_account".to_owned(), read_json(&self.service_account)?);
        Ok(body)
    }
}

impl Wns {
    fn body(&self) -> Result<Map<String, Value>, Failure> {
        Ok(given([
            ("service", Some("wns".to_owned())),
            ("client_id", Some(self.client_id.clone())),
            ("client_secret", Some(read(&self.client_secret)?.trim().to_owned())),
            ("tenant_id", self.tenant_id.clone()),
            ("endpoint", self.endpoint.clone()),
            ("token_endpoint", self.token_endpoint.clone()),
        ]))
    }
}

impl WebPush {
    /// With the public key, if the key was generated here.
    fn body(&self) -> Result<(Map<String, Value>, Option<String>), Failure> {
        let (private_key, made) = match &self.private_key {
            Some(path) => (read(path)?.trim().to_owned(), None),
            None => {
                let (pem, public) = make_key()?;
                if let Some(path) = &self.save_key {
                    save(path, &pem)?;
                }
                (pem, Some(public))
            }
        };
        let body = given([
            ("service", Some("webpush".to_owned())),
            ("private_key", Some(private_key)),
            ("subject", self.subject.clone()),
        ]);
        Ok((body, made))
    }
}

/// A new key as PEM, and its public key as base64url.
fn make_key() -> Result<(String, String), Failure> {
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
        .map_err(|error| Failure::failed(format!("cannot generate a key: {error}")))?;
    Ok((pair.serialize_pem(), URL_SAFE_NO_PAD.encode(pair.public_key_raw())))
}

/// Never overwrites: an existing file may be the only copy of another key.
fn save(path: &Path, text: &str) -> Result<(), Failure> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
}

fn given<const N: usize>(fields: [(&str, Option<String>); N]) -> Map<String, Value> {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_key_is_readable_from_its_pem() {
        let (pem, public) = make_key().expect("a key");
        assert!(pem.lines().all(|line| line.len() <= 64), "{pem}");
        assert!(pem.starts_with("-----BEGIN PRIVATE KEY-----\n"), "{pem}");
        let read = KeyPair::from_pem(&pem).expect("readable");
        assert_eq!(URL_SAFE_NO_PAD.encode(read.public_key_raw()), public);
    }
}
