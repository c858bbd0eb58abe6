//! Connections: the URL, TLS, and the settings of every session.

use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Connect, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use percent_encoding::percent_decode_str;
use tokio::task::JoinHandle;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::{Client, Config, Error};

use super::options::{PostgresError, PostgresOptions};
use super::tls::Tls;
use super::transaction::text_of;

/// A connection without an answer to a packet ends after this time.
const TCP_TIMEOUT: Duration = Duration::from_secs(10);
/// `server_version_num` of the first supported version.
const SERVER_MIN: i32 = 140_000;

/// Opens connections.
#[derive(Clone)]
pub(crate) struct Connector {
    config: Config,
    tls: Tls,
    settings: Arc<str>,
    /// `host:port/database`, for messages.
    server: Arc<str>,
}

impl Connector {
    pub(crate) fn new(options: &PostgresOptions) -> Result<Self, PostgresError> {
        let (url, authorities) = split_url(&options.url)?;
        let mut config: Config = url.parse().map_err(|error| PostgresError::Url(text_of(&error)))?;
        if config.get_hosts().is_empty() || config.get_dbname().is_none() {
            return Err(PostgresError::Url("it has no host or no database".to_owned()));
        }
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.tcp_user_timeout(TCP_TIMEOUT).keepalives_idle(TCP_TIMEOUT);
        config.keepalives_interval(TCP_TIMEOUT / 4).keepalives_retries(3);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(options.connect_timeout);
        }
        if config.get_application_name().is_none() {
            config.application_name("noroshi");
        }
        let tls = Tls::new(authorities.as_deref())
            .map_err(|reason| PostgresError::Authorities { path: authorities.unwrap_or_default(), reason })?;
        let (settings, server) = (settings(options).into(), server_of(&config).into());
        Ok(Self { config, tls, settings, server })
    }

    pub(crate) fn server(&self) -> String {
        self.server.to_string()
    }

    /// A connection outside the pool.
    pub(crate) async fn session(&self) -> Result<ClientWrapper, Error> {
        let (client, driver) = self.open().await?;
        client.batch_execute("SET plan_cache_mode = force_custom_plan").await?;
        Ok(ClientWrapper::new(client, driver))
    }

    async fn open(&self) -> Result<(Client, JoinHandle<()>), Error> {
        let (client, connection) = self.config.connect(self.tls.clone()).await?;
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::warn!(error = text_of(&error), "a connection to the database ended");
            }
        });
        client.batch_execute(&self.settings).await?;
        Ok((client, driver))
    }

    pub(super) fn pool(&self, options: &PostgresOptions) -> Result<Pool, PostgresError> {
        let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_connect(self.config.clone(), self.clone(), manager);
        Pool::builder(manager)
            .max_size(options.connections.max(1))
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(options.pool_wait))
            .create_timeout(Some(options.connect_timeout * 2))
            .build()
            .map_err(|error| PostgresError::Engine { server: self.server(), reason: error.to_string() })
    }

    /// Rejects a server that is too old.
    pub(crate) async fn check_server(&self, client: &Client) -> Result<(), PostgresError> {
        let sql = "SELECT current_setting('server_version_num')::int4, current_setting('server_version')";
        let row = client.query_one(sql, &[]).await.map_err(|error| self.failed(&error))?;
        match row.get::<_, i32>(0) >= SERVER_MIN {
            true => Ok(()),
            false => Err(PostgresError::Server { server: self.server(), found: row.get(1) }),
        }
    }

    /// An error while the store is opened.
    pub(crate) fn failed(&self, error: &Error) -> PostgresError {
        let (server, reason) = (self.server(), text_of(error));
        match error.code() {
            Some(_) => PostgresError::Engine { server, reason },
            None => PostgresError::Unreachable { server, reason },
        }
    }
}

type Opening<'a> = Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + 'a>>;

impl Connect for Connector {
    fn connect(&self, _: &Config) -> Opening<'_> {
        Box::pin(self.open())
    }
}

/// The URL in the form of tokio-postgres, and the file of `sslrootcert`.
fn split_url(url: &str) -> Result<(String, Option<String>), PostgresError> {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let mut authorities = None;
    let mut kept = String::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let pair = match pair.split_once('=') {
            Some(("sslrootcert", path)) => {
                let path = percent_decode_str(path).decode_utf8();
                let path = path.map_err(|_| PostgresError::Url("sslrootcert is not UTF-8".to_owned()))?;
                authorities = Some(path.into_owned());
                continue;
            }
            // With TLS, the certificate and the name are always verified.
            Some(("sslmode", "verify-full" | "verify-ca")) => "sslmode=require",
            _ => pair,
        };
        // Writing to a String cannot fail.
        let _ = write!(kept, "{}{pair}", if kept.is_empty() { '?' } else { '&' });
    }
    Ok((base.to_owned() + &kept, authorities))
}

fn server_of(config: &Config) -> String {
    let mut text = String::new();
    for (i, host) in config.get_hosts().iter().enumerate() {
        let host = match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(path) => path.display().to_string(),
        };
        let ports = config.get_ports();
        let port = ports.get(i).or(ports.first()).copied().unwrap_or(5432);
        let _ = write!(text, "{}{host}:{port}", if i > 0 { "," } else { "" });
    }
    text + "/" + config.get_dbname().unwrap_or_default()
}

/// Settings of every session. Statements are point lookups by index, so other plans are always worse.
///
/// A statement outside a transaction reads one device. It reuses its plan: planning takes 280 µs, execution 38 µs, and
/// only one index fits. Transactions and [`Connector::session`] plan each execution: their statements are for many
/// values, and PostgreSQL chooses the index from their number and the current size of the tables.
///
/// Keepalives detect a node that disappeared, so its locks, including its slot, are free within 20 s instead of the
/// system default of hours.
fn settings(options: &PostgresOptions) -> String {
    format!(
        "SET statement_timeout = {}; SET lock_timeout = {}; SET idle_in_transaction_session_timeout = {};
         SET idle_session_timeout = 0; SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 3;
         SET tcp_keepalives_count = 3; SET client_min_messages = warning; SET TimeZone = 'UTC';
         SET plan_cache_mode = force_generic_plan; SET jit = off; SET max_parallel_workers_per_gather = 0;
         SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
         SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
        options.statement_timeout.as_millis(),
        options.lock_timeout.as_millis(),
        options.idle_timeout.as_millis(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, server: &str) {
        let connector = Connector::new(&PostgresOptions::new(url)).expect(url);
        assert_eq!(connector.server(), server);
    }

    #[test]
    fn urls_are_parsed_and_shown_without_the_password() {
        check("postgres://u:secret@db.example/noroshi", "db.example:5432/noroshi");
        check("postgresql://u@a:1,b:2/n?sslmode=verify-full", "a:1,b:2/n");
        check("postgres://u@%2Frun%2Fpg:54/n?connect_timeout=1", "/run/pg:54/n");
    }

    #[test]
    fn a_bad_url_is_reported() {
        for (url, text) in [
            ("postgres://u@h", "no database"),
            ("postgres://u@h/d?sslmode=maybe", "sslmode"),
            ("postgres://u:secret@h/d?colour=blue", "colour"),
            ("postgres://u@h/d?sslrootcert=/does/not/exist", "/does/not/exist"),
        ] {
            let error = Connector::new(&PostgresOptions::new(url)).err().expect(url).to_string();
            assert!(error.contains(text) && !error.contains("secret"), "{error}");
        }
    }
}
