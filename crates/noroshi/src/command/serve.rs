//! `noroshi serve`: runs a node, if needed without any configuration. Once it accepts traffic, prints its addresses and commands to
//! copy; logs go to standard error.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use noroshi_node::config::{Config, Flag, Inputs, Problem, Problems, Role, Source};
use noroshi_node::development::{Given, KEY_VARIABLE};
use noroshi_node::{Node, build, data};

use crate::failure::Failure;
use crate::output;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    settings: Settings,
}

/// Flags for configuration keys; the same for `config check` and `print`.
#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    /// Configuration file [default: noroshi.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Create the app `dev` with a key, even if other apps exist
    #[arg(long)]
    dev: bool,
    /// Data folder [default: ./noroshi-data]
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Public address [default: 0.0.0.0:8080, with --dev 127.0.0.1:8080]
    #[arg(long, value_name = "IP:PORT")]
    http: Option<String>,
    /// Address for MQTT [default: none]
    #[arg(long, value_name = "IP:PORT")]
    mqtt: Option<String>,
    /// Address for MQTT over TLS, with the certificate of --tls-cert [default: none]
    #[arg(long, value_name = "IP:PORT")]
    mqtts: Option<String>,
    /// Address for XMPP with STARTTLS [default: none]
    #[arg(long, value_name = "IP:PORT")]
    xmpp: Option<String>,
    /// Address for XMPP with direct TLS, with the certificate of --tls-cert [default: none]
    #[arg(long, value_name = "IP:PORT")]
    xmpps: Option<String>,
    /// Admin address [default: 127.0.0.1:9090]
    #[arg(long, value_name = "IP:PORT")]
    admin: Option<String>,
    /// Roles of this node: api, gateway, sender (comma-separated), or front [default: api,gateway,sender]
    #[arg(long, value_name = "ROLES")]
    role: Option<String>,
    /// Public URL for devices
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Certificate chain of the public address (PEM)
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<String>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,
    /// Certificate chain of the admin address (PEM)
    #[arg(long, value_name = "FILE")]
    admin_tls_cert: Option<String>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE")]
    admin_tls_key: Option<String>,
    /// off, error, warn, info, debug, trace, or a list with target=level
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// text or json
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Any other key, as KEY=VALUE (repeatable)
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
    /// Serve conformance suites: the WebSocket echo, MQTT without tokens
    #[arg(long, hide = true)]
    conformance: bool,
    /// An account of XMPP conformance suites (repeatable)
    #[arg(long = "xmpp-account", value_name = "NAME:PASSWORD", hide = true)]
    xmpp_accounts: Vec<String>,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

impl Settings {
    /// Loads file, environment and flags. Opens only the file, and the certificates and keys that it names.
    pub(crate) fn load(&self) -> Result<Config, Problems> {
        let inputs = Inputs {
            file: self.config.clone(),
            folder: PathBuf::from("."),
            // A name or value that is not UTF-8 cannot be a configuration key.
            environment: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
            flags: self.flags(),
        };
        let config = Config::load(&inputs);
        let secrets = Given::from_environment().check();
        if secrets.is_empty() {
            return config;
        }
        let mut problems = config.err().map(|problems| problems.0).unwrap_or_default();
        problems.extend(secrets.into_iter().map(|(name, invalid)| Problem {
            key: String::new(),
            source: Source::Environment { name: name.to_owned() },
            text: invalid.to_string(),
        }));
        Err(Problems(problems))
    }

    fn flags(&self) -> Vec<Flag> {
        let texts = [
            ("--data", "server.data", &self.data),
            ("--http", "server.http", &self.http),
            ("--mqtt", "mqtt.listen", &self.mqtt),
            ("--mqtts", "mqtt.tls_listen", &self.mqtts),
            ("--xmpp", "xmpp.listen", &self.xmpp),
            ("--xmpps", "xmpp.tls_listen", &self.xmpps),
            ("--admin", "server.admin", &self.admin),
            ("--role", "node.roles", &self.role),
            ("--public-url", "server.public_url", &self.public_url),
            ("--tls-cert", "tls.cert", &self.tls_cert),
            ("--tls-key", "tls.key", &self.tls_key),
            ("--admin-tls-cert", "admin.tls.cert", &self.admin_tls_cert),
            ("--admin-tls-key", "admin.tls.key", &self.admin_tls_key),
            ("--log-level", "log.level", &self.log_level),
            ("--log-format", "log.format", &self.log_format),
        ];
        let switches =
            [("--dev", "server.dev", self.dev), ("--conformance", "server.conformance", self.conformance)];
        let accounts = (!self.xmpp_accounts.is_empty()).then(|| Flag {
            name: "--xmpp-account",
            key: "xmpp.accounts".to_owned(),
            value: self.xmpp_accounts.join(","),
        });
        let set = self.set.iter().map(|(key, value)| Flag {
            name: "--set",
            key: key.clone(),
            value: value.clone(),
        });
        let texts = texts
            .into_iter()
            .filter_map(|(name, key, value)| Some(Flag { name, key: key.to_owned(), value: value.clone()? }));
        let switches = switches.into_iter().filter(|(_, _, on)| *on).map(|(name, key, _)| Flag {
            name,
            key: key.to_owned(),
            value: "true".to_owned(),
        });
        texts.chain(switches).chain(accounts).chain(set).collect()
    }
}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let config = self.settings.load()?;
        let given = Given::from_environment();
        let show = |node: &Node| {
            // A closed terminal does not stop the node.
            let _ = output::line(banner(node, &given));
        };
        match noroshi_node::run(config, &given, show) {
            Ok(ended) => Ok(ExitCode::from(ended.exit_code())),
            Err(error @ build::Error::Tls(_)) => Err(Failure::Configuration(Problems(vec![Problem {
                key: String::new(),
                source: Source::Default,
                text: error.to_string(),
            }]))),
            Err(error) => Err(Failure::failed(error.to_string())),
        }
    }
}

/// The text printed at start: addresses, development secrets and first commands.
fn banner(node: &Node, given: &Given) -> String {
    let mut text = format!("noroshi {} is ready.\n\n", env!("CARGO_PKG_VERSION"));
    let folder = &node.config.server.data;
    let shown = node.config.server.public_url.as_ref().unwrap_or(&node.addresses.http);
    let roles = &node.config.node.roles;
    let serves_api = roles.has(Role::Api) || roles.has(Role::Front);
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "  {:<19}  {}",
        public_name(serves_api, roles.has(Role::Gateway)),
        node.addresses.http
    );
    let (mqtt, xmpp) = (&node.config.mqtt, &node.config.xmpp);
    let listeners = [
        ("mqtt", mqtt.listen),
        ("mqtts", mqtt.tls_listen),
        ("xmpp", xmpp.listen),
        ("xmpps", xmpp.tls_listen),
    ];
    for (scheme, address) in listeners {
        if let Some(address) = address {
            let _ = writeln!(text, "  {:<19}  {scheme}://{address}", scheme[..4].to_uppercase());
        }
    }
    let _ = writeln!(text, "  admin and metrics    {}", node.addresses.admin);
    let _ = writeln!(text, "  data folder          {}", folder.display());
    let _ = writeln!(text, "\n{}.", capitalized(&node.capacity.to_string()));
    let Some(development) = &node.development else { return text };
    if !serves_api {
        return text + "\nCommands such as noroshi send require a node with the role api.";
    }
    let _ = writeln!(text, "\nDevelopment app `dev`");
    let file = |name: &str| format!("  (also in {})", folder.join(name).display());
    let secret = |secret: &Option<String>, variable: &str, name: &str| match secret {
        Some(secret) => format!("{secret}{}", file(name)),
        None => format!("from {variable}"),
    };
    let jwt = noroshi_node::development::JWT_SECRET_VARIABLE;
    let _ = writeln!(text, "  API key     {}", secret(&development.key, KEY_VARIABLE, data::DEV_KEY));
    let _ = writeln!(text, "  JWT secret  {}", secret(&development.jwt_secret, jwt, data::DEV_JWT_SECRET));
    let program = program();
    let options = options(node, given);
    let _ = writeln!(text, "\nIn another terminal:");
    let _ = writeln!(text, "  {program} listen{options} --user u1 --topics news");
    let _ =
        writeln!(text, "  {program} send{options} --user u1 --title \"Hello\" --body \"from the backend\"");
    if let Some(link) = &node.console_link {
        let _ = writeln!(text, "\nThe web console, for one log-in: {}{link}", node.addresses.admin);
    }
    let _ = write!(text, "\nThe whole API: {shown}/docs");
    text
}

/// What the public address serves.
fn public_name(serves_api: bool, serves_devices: bool) -> &'static str {
    match (serves_api, serves_devices) {
        (true, true) => "API, WebSocket, SSE",
        (true, false) => "API",
        (false, true) => "WebSocket, SSE",
        (false, false) => "public address",
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Additional flags of the printed commands; usually none.
fn options(node: &Node, given: &Given) -> String {
    let mut options = String::new();
    let folder = &node.config.server.data;
    if folder != std::path::Path::new("./noroshi-data") {
        let _ = write!(options, " --data-dir {}", output::quoted(&folder.display().to_string()));
    }
    if given.key.is_some() {
        let _ = write!(options, " --key \"${KEY_VARIABLE}\"");
    }
    if let Some(tls) = &node.config.server.tls {
        let _ = write!(options, " --ca-file {}", output::quoted(&tls.cert.display().to_string()));
    }
    options
}

/// The path by which this program was called, or its name.
fn program() -> String {
    match std::env::args_os().next().map(PathBuf::from) {
        Some(path) if path.components().count() > 1 => output::quoted(&path.display().to_string()),
        _ => "noroshi".to_owned(),
    }
}
