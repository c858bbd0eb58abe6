//! `noroshi experiment`: manages experiments, which decide which users get which variant, through the admin address.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Map, Value, json};

use crate::client::{ConnectAdmin, escape};
use crate::command::definition::{Kind, List};
use crate::failure::Failure;
use crate::input::parse_json;
use crate::output;

const COLUMNS: [&str; 6] = ["name", "state", "variants", "starts_at", "ends_at", "updated_at"];
const KIND: Kind = Kind { list: "experiments", columns: &COLUMNS, shown: line_of };

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// The app the experiments belong to
    #[arg(long, default_value = "dev", global = true)]
    app: String,
    #[command(flatten)]
    connect: ConnectAdmin,
    #[command(flatten)]
    format: output::Format,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List live experiments, or archived ones
    List(List),
    /// Show an experiment
    Show { name: String },
    /// Create or replace an experiment
    Put {
        name: String,
        /// A variant and its weight (repeatable)
        #[arg(long = "variant", value_name = "NAME=WEIGHT", required = true, value_parser = variant)]
        variants: Vec<(String, u32)>,
        /// A description
        #[arg(long)]
        description: Option<String>,
        /// Start (RFC 3339)
        #[arg(long, value_name = "TIME")]
        starts_at: Option<String>,
        /// End, after which it is archived (RFC 3339)
        #[arg(long, value_name = "TIME")]
        ends_at: Option<String>,
        /// Only devices that match a condition on topics: "'a' in topics && !('b' in topics)"
        #[arg(long)]
        condition: Option<String>,
        /// Only devices with these attributes: `audience.devices` of the API as JSON
        #[arg(long, value_name = "JSON", value_parser = parse_json)]
        devices: Option<Value>,
        /// Assign a variant to a user, regardless of weights (repeatable)
        #[arg(long = "override", value_name = "USER=VARIANT", value_parser = pair)]
        overrides: Vec<(String, String)>,
    },
    /// Create or change all experiments and notices of a file (TOML or JSON)
    Apply {
        /// File; - for standard input
        file: PathBuf,
    },
    /// Stop an experiment at once
    Kill { name: String },
    /// Restart a killed experiment
    Revive { name: String },
    /// Archive an experiment; its name is free again
    Archive { name: String },
    /// Show the variant of a device
    Variant { name: String, device: String },
}

fn variant(text: &str) -> Result<(String, u32), String> {
    let (name, weight) = text.rsplit_once('=').ok_or("a variant must be NAME=WEIGHT, such as green=50")?;
    let weight = weight.parse().map_err(|_| format!("{weight:?} is not a whole number"))?;
    Ok((name.to_owned(), weight))
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (user, variant) = text.rsplit_once('=').ok_or("an override must be USER=VARIANT")?;
    Ok((user.to_owned(), variant.to_owned()))
}

/// Formats variants for people.
fn line_of(mut experiment: Value) -> Value {
    let one = |variant: &Value| format!("{}={}", output::cell(variant.get("name")), variant["weight"]);
    experiment["variants"] = output::entries(&experiment, "variants").iter().map(one).collect();
    experiment
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let client = self.connect.client()?;
        let base = format!("/v1/apps/{}/experiments", escape(&self.app));
        let path = |name: &str| format!("{base}/{}", escape(name));
        let killed = |killed: bool| json!({"killed": killed});
        let answer = match self.action {
            Action::List(list) => return KIND.list(&client, &base, list, self.format).await,
            Action::Apply { file } => {
                return super::definition::apply(&client, &self.app, &file, self.format).await;
            }
            Action::Show { name } => client.get(&path(&name)).await?,
            Action::Put {
                name,
                variants,
                description,
                starts_at,
                ends_at,
                condition,
                devices,
                overrides,
            } => {
                let variant = |(name, weight): (String, u32)| json!({"name": name, "weight": weight});
                let variants: Vec<Value> = variants.into_iter().map(variant).collect();
                let users: Map<String, Value> =
                    overrides.into_iter().map(|(user, variant)| (user, variant.into())).collect();
                let body = json!({
                    "description": description,
                    "variants": variants,
                    "starts_at": starts_at,
                    "ends_at": ends_at,
                    "audience": {"condition": condition, "devices": devices},
                    "overrides": {"users": users},
                });
                client.put(&path(&name), &body).await?
            }
            Action::Kill { name } => client.patch(&path(&name), &killed(true)).await?,
            Action::Revive { name } => client.patch(&path(&name), &killed(false)).await?,
            Action::Archive { name } => {
                client.delete(&path(&name)).await?;
                json!({"name": name, "archived": true})
            }
            Action::Variant { name, device } => {
                client.get(&format!("{}/devices/{}", path(&name), escape(&device))).await?
            }
        };
        let is_shown = answer["variants"].is_array() && !self.format.json;
        self.format.details(&if is_shown { line_of(answer) } else { answer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_and_overrides_are_pairs() {
        assert_eq!(variant("green=50"), Ok(("green".to_owned(), 50)));
        assert!(variant("green").is_err() && variant("green=x").is_err());
        assert_eq!(pair("a=b=green"), Ok(("a=b".to_owned(), "green".to_owned())));
        let shown = line_of(json!({"variants": [{"name": "a", "weight": 1}, {"name": "b", "weight": 2}]}));
        assert_eq!(shown["variants"], json!(["a=1", "b=2"]));
    }
}
