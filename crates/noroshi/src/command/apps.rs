//! `noroshi apps`: manages apps (tenants), through the admin address.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Map, Value, json};

use crate::client::{Client, ConnectAdmin, escape};
use crate::failure::Failure;
use crate::input::{read, read_json};
use crate::output;

const QUOTA_COLUMNS: [&str; 6] = ["quota", "limit", "source", "used", "refused", "scope"];
const COLUMNS: [&str; 7] =
    ["name", "jwt_secret_set", "jwks_url", "jwks_set", "issuer", "audience", "created_at"];

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    connect: ConnectAdmin,
    #[command(flatten)]
    format: output::Format,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List apps
    List,
    /// Create an app
    Create {
        name: String,
        #[command(flatten)]
        signing: Signing,
    },
    /// Change an app's JWT settings, what its devices may publish to, and its essential categories; other settings stay
    Update {
        name: String,
        #[command(flatten)]
        signing: Signing,
    },
    /// Show or change an app's quotas
    Quotas {
        #[command(subcommand)]
        action: QuotaAction,
    },
    /// Manage topic rules: which devices may subscribe and publish to which topics
    #[command(subcommand)]
    Rules(Rules),
    /// Delete an app with everything it owns
    Delete {
        name: String,
        /// Confirm the deletion
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Subcommand)]
enum QuotaAction {
    /// Show limits, usage and rejections
    Show { app: String },
    /// Set limits; other limits stay
    Set {
        app: String,
        /// Such as devices=1000, topics=unlimited, or keys=default for the node's default
        #[arg(required = true, value_name = "QUOTA=LIMIT")]
        limits: Vec<String>,
    },
    /// Restore the node's defaults
    Clear { app: String },
}

impl QuotaAction {
    async fn run(&self, client: &Client, format: output::Format) -> Result<(), Failure> {
        let path = |app: &str| format!("/v1/apps/{}/quotas", escape(app));
        let answer = match self {
            Self::Show { app } => client.get(&path(app)).await?,
            Self::Set { app, limits } => client.patch(&path(app), &changes(limits)?).await?,
            Self::Clear { app } => {
                client.delete(&path(app)).await?;
                client.get(&path(app)).await?
            }
        };
        format.list(&answer, "quotas", &QUOTA_COLUMNS)
    }
}

/// The server validates names and ranges.
fn changes(limits: &[String]) -> Result<Value, Failure> {
    let mut changes = Map::new();
    for text in limits {
        let wrong = || Failure::Usage(format!("{text}: must be QUOTA=LIMIT, such as devices=1000"));
        let (quota, limit) = text.split_once('=').ok_or_else(wrong)?;
        let limit = match limit {
            "default" => Value::Null,
            "unlimited" => limit.into(),
            number => number.replace('_', "").parse::<u64>().map_err(|_| wrong())?.into(),
        };
        changes.insert(quota.replace('-', "_"), limit);
    }
    Ok(changes.into())
}

#[derive(Debug, Subcommand)]
enum Rules {
    /// Print the rules as JSON, without the webhook's secret
    Get { name: String },
    /// Replace all rules from a JSON file; without a secret, the webhook keeps its secret
    Set {
        name: String,
        /// File with the rules; - for standard input
        file: PathBuf,
    },
    /// Remove the rules: every device may subscribe to every topic
    Delete { name: String },
}

#[derive(Debug, clap::Args)]
struct Signing {
    /// File with the HS256 secret of the app's JWTs; - for standard input
    #[arg(long, value_name = "FILE")]
    jwt_secret_file: Option<PathBuf>,
    /// URL of the app's RS256 or ES256 keys
    #[arg(long, value_name = "URL")]
    jwks_url: Option<String>,
    /// File with the app's RS256 or ES256 keys (a JWK set)
    #[arg(long, value_name = "FILE")]
    jwks_file: Option<PathBuf>,
    /// MQTT topic filter that the app's devices may publish to (repeatable); "" for none
    #[arg(long, value_name = "FILTER")]
    client_publish: Vec<String>,
    /// Required claim iss of the app's JWTs; "" for any
    #[arg(long, value_name = "ISSUER")]
    issuer: Option<String>,
    /// Required element of the claim aud of the app's JWTs; "" for the app's name, if there is an aud
    #[arg(long, value_name = "AUDIENCE")]
    audience: Option<String>,
    /// Category that ignores preferences (repeatable); "" clears the list
    #[arg(long, value_name = "CATEGORY")]
    essential: Vec<String>,
}

impl Signing {
    fn fields(&self) -> Result<Map<String, Value>, Failure> {
        let mut fields = Map::new();
        if let Some(path) = &self.jwt_secret_file {
            let secret = read(path)?;
            fields.insert("jwt_secret".to_owned(), secret.trim_end_matches(['\r', '\n']).into());
        }
        if let Some(url) = &self.jwks_url {
            fields.insert("jwks_url".to_owned(), url.clone().into());
        }
        if let Some(path) = &self.jwks_file {
            fields.insert("jwks".to_owned(), read_json(path)?);
        }
        for (name, list) in
            [("client_publish", &self.client_publish), ("essential_categories", &self.essential)]
        {
            if !list.is_empty() {
                let list: Vec<&String> = list.iter().filter(|one| !one.is_empty()).collect();
                fields.insert(name.to_owned(), json!(list));
            }
        }
        for (name, claim) in [("issuer", &self.issuer), ("audience", &self.audience)] {
            if let Some(claim) = claim {
                fields.insert(name.to_owned(), Some(claim.clone()).filter(|claim| !claim.is_empty()).into());
            }
        }
        Ok(fields)
    }
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let client = self.connect.client()?;
        let path = |name: &str| format!("/v1/apps/{}", escape(name));
        let answer = match self.action {
            Action::List => {
                return self.format.list(&client.get("/v1/apps").await?, "apps", &COLUMNS);
            }
            Action::Quotas { action } => return action.run(&client, self.format).await,
            Action::Create { name, signing } => {
                let mut fields = signing.fields()?;
                fields.insert("name".to_owned(), name.into());
                client.post("/v1/apps", &fields.into()).await?
            }
            Action::Update { name, signing } => client.patch(&path(&name), &signing.fields()?.into()).await?,
            Action::Rules(rules) => {
                let path = |name: &str| format!("{}/topic-rules", path(name));
                match rules {
                    // Always JSON, so that it can be edited and set again.
                    Rules::Get { name } => return output::line(client.get(&path(&name)).await?),
                    Rules::Set { name, file } => {
                        client.put(&path(&name), &read_json(&file)?).await?;
                        json!({"name": name, "topic_rules": "set"})
                    }
                    Rules::Delete { name } => {
                        client.delete(&path(&name)).await?;
                        json!({"name": name, "topic_rules": "removed"})
                    }
                }
            }
            Action::Delete { name, yes: true } => {
                client.delete(&path(&name)).await?;
                json!({"name": name, "deleted": true})
            }
            Action::Delete { name, yes: false } => {
                let text =
                    format!("{name} would be deleted with all devices and notifications; confirm with --yes");
                return Err(Failure::Usage(text));
            }
        };
        self.format.details(&answer)
    }
}
