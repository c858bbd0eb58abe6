//! Opens one connection to one server: TLS, log-in, timeouts, and a check of the server's role.
//!
//! All connections use RESP3, which delivers messages of a subscription next to answers. `TCP_NODELAY` is on (the
//! crate's default is off), and nothing waits longer than the timeouts of `Config`.

use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::{AsyncPushSender, MultiplexedConnection};
use ::redis::io::tcp::TcpSettings;
use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo, TlsCertificates, Value,
};

use super::Config;
use super::address::{Host, Login};
use crate::Error;

/// Requests queued for the connection's task; the semaphore of `Connections` limits ours before.
const PIPELINE_QUEUE: usize = 256;

/// The settings of all connections.
#[derive(Clone)]
pub(crate) struct Dialer {
    tls: bool,
    login: Login,
    sentinel_login: Login,
    database: u32,
    root_certificate: Option<Arc<Vec<u8>>>,
    connect_timeout: Duration,
    response_timeout: Duration,
}

impl Dialer {
    pub(crate) fn new(config: &Config) -> Self {
        let address = &config.address;
        if address.tls {
            // The crate needs the process's crypto provider and panics without one. An installed one stays.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        Self {
            tls: address.tls,
            login: address.login.clone(),
            sentinel_login: address.sentinel_login.clone(),
            database: address.database,
            root_certificate: config.root_certificate_pem.clone().map(Arc::new),
            connect_timeout: config.connect_timeout,
            response_timeout: config.response_timeout,
        }
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// A server that keeps data.
    pub(crate) async fn server(&self, host: &Host) -> Result<MultiplexedConnection, Error> {
        self.dial(host, &self.login, self.database, self.config()).await
    }

    /// The same with another response timeout, for commands that block.
    pub(crate) async fn blocking(
        &self,
        host: &Host,
        response_timeout: Duration,
    ) -> Result<MultiplexedConnection, Error> {
        let config = self.config().set_response_timeout(Some(response_timeout));
        self.dial(host, &self.login, self.database, config).await
    }

    /// A connection for subscriptions. `receive` must not block.
    pub(crate) async fn subscriber(
        &self,
        host: &Host,
        receive: impl AsyncPushSender,
    ) -> Result<MultiplexedConnection, Error> {
        self.dial(host, &self.login, self.database, self.config().set_push_sender(receive)).await
    }

    pub(crate) async fn sentinel(
        &self,
        host: &Host,
        receive: impl AsyncPushSender,
    ) -> Result<MultiplexedConnection, Error> {
        self.dial(host, &self.sentinel_login, 0, self.config().set_push_sender(receive)).await
    }

    fn config(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(self.response_timeout))
            .set_pipeline_buffer_size(PIPELINE_QUEUE)
            .set_write_backpressure_boundary(64 << 10)
    }

    async fn dial(
        &self,
        host: &Host,
        login: &Login,
        database: u32,
        config: AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, Error> {
        let client = self.client(host, login, database).map_err(|error| refused(&error))?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        connection.map_err(|error| error_of(&error))
    }

    fn client(&self, host: &Host, login: &Login, database: u32) -> ::redis::RedisResult<Client> {
        let (name, port) = (host.name.clone(), host.port);
        let address = match self.tls {
            true => ConnectionAddr::TcpTls { host: name, port, insecure: false, tls_params: None },
            false => ConnectionAddr::Tcp(name, port),
        };
        let mut settings =
            RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_db(i64::from(database));
        if let Some(user) = &login.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &login.password {
            settings = settings.set_password(password);
        }
        let tcp = TcpSettings::default().set_nodelay(true);
        let info = address.into_connection_info()?.set_redis_settings(settings).set_tcp_settings(tcp);
        match &self.root_certificate {
            Some(pem) if self.tls => {
                let root_cert = Some(pem.to_vec());
                Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert })
            }
            _ => Client::open(info),
        }
    }
}

/// The identity of a server, read on a new connection.
pub(crate) struct Identity {
    /// Changes with each start of the server process.
    pub(crate) run_id: String,
    pub(crate) is_master: bool,
}

/// Fails while the server loads its data, or is a replica without a master (PING is then rejected).
pub(crate) async fn identify(connection: &mut MultiplexedConnection) -> Result<Identity, Error> {
    let mut pipeline = ::redis::pipe();
    pipeline.cmd("PING").cmd("INFO").arg("server").cmd("INFO").arg("replication");
    let answers = connection.send_packed_commands(&pipeline, 0, 3).await.map_err(|error| error_of(&error))?;
    if let Some(Value::ServerError(error)) =
        answers.iter().find(|answer| matches!(answer, Value::ServerError(_)))
    {
        return Err(answered(error));
    }
    let text = |answer: &Value| -> String { ::redis::from_redis_value_ref(answer).unwrap_or_default() };
    let run_id = text(&answers[1]).lines().find_map(|line| line.strip_prefix("run_id:").map(str::to_owned));
    let is_master = !text(&answers[2]).lines().any(|line| line == "role:slave");
    Ok(Identity { run_id: run_id.unwrap_or_default(), is_master })
}

/// Sends a command and returns its answer.
pub(crate) async fn send(connection: &mut MultiplexedConnection, cmd: &Cmd) -> Result<Value, Error> {
    match connection.send_packed_command(cmd).await {
        Ok(Value::ServerError(error)) => Err(answered(&error)),
        Ok(answer) => Ok(answer),
        Err(error) => Err(error_of(&error)),
    }
}

/// Converts an error of the connection.
pub(crate) fn error_of(error: &::redis::RedisError) -> Error {
    use ::redis::ErrorKind;
    match error.kind() {
        ErrorKind::Io | ErrorKind::Parse | ErrorKind::Client => {
            let text = if error.is_timeout() { "no answer in time".to_owned() } else { error.to_string() };
            Error::Unavailable(text.into())
        }
        ErrorKind::Server(_) if error.code().is_some_and(is_passing) => {
            Error::Unavailable(error.to_string().into())
        }
        _ => refused(error),
    }
}

fn refused(error: &::redis::RedisError) -> Error {
    Error::Refused(error.to_string())
}

/// Converts an error that the server returned.
pub(crate) fn answered(error: &::redis::ServerError) -> Error {
    let text = format!("{} {}", error.code(), error.details().unwrap_or_default());
    match is_passing(error.code()) {
        true => Error::Unavailable(text.into()),
        false => Error::Refused(text),
    }
}

/// Temporary errors: loading, a failover, or a move of slots.
fn is_passing(code: &str) -> bool {
    matches!(
        code,
        "LOADING"
            | "MASTERDOWN"
            | "CLUSTERDOWN"
            | "TRYAGAIN"
            | "READONLY"
            | "MOVED"
            | "ASK"
            | "BUSY"
            | "NOREPLICAS"
    )
}
