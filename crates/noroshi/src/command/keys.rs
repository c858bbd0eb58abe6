//! `noroshi keys`: manages API keys of an app, through the admin address. A key is shown only when it is created.

use std::time::{Duration, SystemTime};

use clap::Subcommand;
use noroshi_types::{Invalid, Scope, Timestamp};
use serde_json::json;

use crate::client::{ConnectAdmin, escape};
use crate::failure::Failure;
use crate::output;

const COLUMNS: [&str; 5] = ["id", "name", "scopes", "created_at", "expires_at"];

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// The app the keys belong to
    #[arg(long, default_value = "dev", global = true)]
    app: String,
    #[command(flatten)]
    connect: ConnectAdmin,
    #[command(flatten)]
    format: output::Format,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List keys, without the secrets
    List,
    /// Create a key and print it; it is never shown again
    Create {
        /// What the key is for
        name: String,
        /// publish, devices, read, admin; comma-separated
        #[arg(long, value_delimiter = ',', default_value = "publish,devices,read", value_parser = scope)]
        scopes: Vec<String>,
        /// When it expires: a duration such as 90d, or a time (RFC 3339) [default: never]
        #[arg(long, value_name = "WHEN", value_parser = expiry)]
        expires: Option<Expiry>,
    },
    /// Revoke a key at once
    Revoke {
        /// Its number in the list
        id: u64,
    },
}

#[derive(Debug, Clone, Copy)]
enum Expiry {
    After(Duration),
    At(Timestamp),
}

impl Expiry {
    fn time(self) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::After(span) => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                Timestamp(u64::try_from(now.as_millis()).unwrap_or(u64::MAX)).saturating_add(span)
            }
        }
    }
}

/// The server has the limits.
fn expiry(text: &str) -> Result<Expiry, Invalid> {
    match Timestamp::parse(text) {
        Some(at) => Ok(Expiry::At(at)),
        None => super::duration(text).map(Expiry::After),
    }
}

fn scope(text: &str) -> Result<String, String> {
    Scope::parse(text).map(|scope| scope.as_str().to_owned()).map_err(|error| error.to_string())
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let client = self.connect.client()?;
        let path = format!("/v1/apps/{}/keys", escape(&self.app));
        let answer = match self.action {
            Action::List => return self.format.list(&client.get(&path).await?, "keys", &COLUMNS),
            Action::Create { name, scopes, expires } => {
                let expires_at = expires.map(|expiry| expiry.time().to_string());
                let body = json!({"name": name, "scopes": scopes, "expires_at": expires_at});
                client.post(&path, &body).await?
            }
            Action::Revoke { id } => {
                client.delete(&format!("{path}/{id}")).await?;
                json!({"id": id, "revoked": true})
            }
        };
        self.format.details(&answer)
    }
}
