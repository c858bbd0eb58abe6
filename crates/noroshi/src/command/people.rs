//! `noroshi people`: lets people into the web console, through the admin address. Everything else about people is done in the
//! console.

use clap::Subcommand;
use noroshi_types::Role;
use serde_json::{Value, json};

use crate::client::ConnectAdmin;
use crate::failure::Failure;
use crate::output;

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
    /// Print a link that lets a person set a name and a password; it works once, for 7 days
    Invite {
        /// E-mail address, by which the person logs in. No e-mail is sent
        email: String,
        /// viewer, support, author, operator, owner
        #[arg(long, value_parser = role)]
        role: String,
        /// The app of the role [default: all apps]
        #[arg(long)]
        app: Option<String>,
    },
    /// Print a link that logs a person in, for one who lost their password; it works once, for 15 minutes
    Link {
        /// E-mail address of the person
        email: String,
    },
}

fn role(text: &str) -> Result<String, String> {
    let names = || Role::ALL.map(Role::as_str).join(", ");
    Role::named(text)
        .map(|role| role.as_str().to_owned())
        .ok_or_else(|| format!("must be one of {}", names()))
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let client = self.connect.client()?;
        let mut answer = match self.action {
            Action::Invite { email, role, app } => {
                let app = app.as_deref().unwrap_or("*");
                let body = json!({"email": email, "roles": [{"app": app, "role": role}]});
                client.post("/v1/console/invitations", &body).await?
            }
            Action::Link { email } => client.post("/v1/console/links", &json!({"email": email})).await?,
        };
        // The answer has a path, because the node does not know by which name people reach it.
        if let Some(link) = answer["link"].as_str() {
            answer["link"] = Value::String(format!("{}{link}", client.base()));
        }
        self.format.details(&answer)
    }
}
