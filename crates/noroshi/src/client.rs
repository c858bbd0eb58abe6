//! The HTTP client of all commands: one connection pool, a timeout for each call, and problem responses (RFC 9457) as one line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::folder::{self, Secret};
use crate::output;
use noroshi_node::development::KEY_VARIABLE;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A batch of 10,000 notifications on a slow disk takes seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// A response with 10,000 results has a few MiB.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Maximum entries of a page.
const PAGE_MAX: usize = 1_000;
const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";
const DEFAULT_ADMIN: &str = "http://127.0.0.1:9090";

/// Address and credential of the server, the same for all commands.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Connect {
    /// Base URL of the server [default: the node running on the data folder, or http://127.0.0.1:8080]
    #[arg(long, global = true, env = "NOROSHI_URL", value_name = "URL")]
    pub(crate) server: Option<String>,
    /// API key [default: NOROSHI_DEV_KEY, or dev.key in the data folder]
    #[arg(long, global = true, env = "NOROSHI_KEY", hide_env_values = true, value_name = "KEY")]
    pub(crate) key: Option<Secret>,
    /// Data folder of a node on this machine, with its key and addresses
    #[arg(long, global = true, env = "NOROSHI_DATA", default_value = "./noroshi-data", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// Also trust the certificates in this PEM file
    #[arg(long, global = true, env = "NOROSHI_CA_FILE", value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
}

/// For the admin address.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ConnectAdmin {
    /// Base URL of the admin address [default: the node running on the data folder, or http://127.0.0.1:9090]
    #[arg(long, global = true, env = "NOROSHI_ADMIN_URL", value_name = "URL")]
    pub(crate) admin_url: Option<String>,
    /// Operator token [default: operator.token in the data folder]
    #[arg(long, global = true, env = "NOROSHI_OPERATOR_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub(crate) operator_token: Option<Secret>,
    /// Data folder of a node on this machine, with its token and addresses
    #[arg(long, global = true, env = "NOROSHI_DATA", default_value = "./noroshi-data", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// Also trust the certificates in this PEM file
    #[arg(long, global = true, env = "NOROSHI_CA_FILE", value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
}

#[derive(Clone)]
pub(crate) struct Client {
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Without a trailing slash.
    base: String,
    /// None for anonymous requests.
    bearer: Option<HeaderValue>,
}

impl Connect {
    /// A client with an API key.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let key = match &self.key {
            Some(key) => key.clone(),
            // The shell that started a node with this variable is often the one that runs commands.
            None => match std::env::var(KEY_VARIABLE).ok().and_then(|key| key.parse().ok()) {
                Some(key) => key,
                None => folder::key(&self.data_dir)?,
            },
        };
        self.client_with(&key)
    }

    /// A client with this credential.
    pub(crate) fn client_with(&self, bearer: &Secret) -> Result<Client, Failure> {
        let running = || folder::addresses(&self.data_dir).map(|addresses| addresses.http);
        let base = self.server.clone().or_else(running).unwrap_or_else(|| DEFAULT_SERVER.to_owned());
        Client::new(base, bearer, self.ca_file.as_deref())
    }
}

impl ConnectAdmin {
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let token = match &self.operator_token {
            Some(token) => token.clone(),
            None => folder::operator_token(&self.data_dir)?,
        };
        let running = || folder::addresses(&self.data_dir).map(|addresses| addresses.admin);
        let base = self.admin_url.clone().or_else(running).unwrap_or_else(|| DEFAULT_ADMIN.to_owned());
        Client::new(base, &token, self.ca_file.as_deref())
    }
}

impl Client {
    fn new(base: String, bearer: &Secret, ca_file: Option<&Path>) -> Result<Self, Failure> {
        Ok(Self { bearer: Some(credential(bearer.expose())?), ..Self::anonymous(base, ca_file)? })
    }

    /// A client without a credential.
    pub(crate) fn anonymous(base: String, ca_file: Option<&Path>) -> Result<Self, Failure> {
        let wrong = || Failure::Usage(format!("{base:?} is not a URL such as http://127.0.0.1:8080"));
        let url = url::Url::parse(&base).map_err(|_| wrong())?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(wrong());
        }
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls_config(ca_file)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let pool = Pool::builder(TokioExecutor::new()).build(connector);
        Ok(Self { pool, base: base.trim_end_matches('/').to_owned(), bearer: None })
    }

    /// Without a slash at its end.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.json(Method::GET, path, None).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<Value, Failure> {
        self.json(Method::DELETE, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.json(Method::POST, path, Some(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.json(Method::PUT, path, Some(body)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.json(Method::PATCH, path, Some(body)).await
    }

    async fn json(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        let body = body.map(|body| ("application/json", body.to_string()));
        let text = self.text(method, path, body, &[]).await?;
        match text.is_empty() {
            true => Ok(Value::Null),
            false => serde_json::from_str(&text)
                .map_err(|error| Failure::failed(format!("the server's response is not JSON: {error}"))),
        }
    }

    /// Sends any body. Returns the text of a successful response.
    pub(crate) async fn text(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, String)>,
        headers: &[(&str, &str)],
    ) -> Result<String, Failure> {
        let mut request = self.request(method, path)?;
        if let Some((kind, text)) = body {
            let kind = HeaderValue::try_from(kind).map_err(|error| Failure::failed(error.to_string()))?;
            request.headers_mut().insert(CONTENT_TYPE, kind);
            *request.body_mut() = Full::from(text);
        }
        for (name, value) in headers {
            let name =
                http::HeaderName::try_from(*name).map_err(|error| Failure::failed(error.to_string()))?;
            let value = HeaderValue::try_from(*value)
                .map_err(|_| Failure::Usage(format!("the value of {name} must be printable ASCII")))?;
            request.headers_mut().insert(name, value);
        }
        text(self.answer(request, ANSWER_TIMEOUT).await?)
    }

    /// Downloads binary data. The server may take `work` before it responds.
    pub(crate) async fn download(&self, path: &str, work: Duration) -> Result<Bytes, Failure> {
        self.answer(self.request(Method::GET, path)?, ANSWER_TIMEOUT + work).await
    }

    /// The body of a successful response.
    async fn answer(&self, request: Request<Full<Bytes>>, timeout: Duration) -> Result<Bytes, Failure> {
        let answer = async {
            let response = self.send(request).await?;
            match response.status().is_success() {
                true => read(response).await,
                false => Err(refusal(response).await),
            }
        };
        tokio::time::timeout(timeout, answer).await.unwrap_or_else(|_| Err(self.unreachable("timeout")))
    }

    /// A request with the credential, if there is one, and an empty body.
    pub(crate) fn request(&self, method: Method, path: &str) -> Result<Request<Full<Bytes>>, Failure> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer.clone());
        }
        request.body(Full::default()).map_err(|error| Failure::Usage(error.to_string()))
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failure> {
        self.pool.request(request).await.map_err(|error| self.unreachable(&cause(&error)))
    }

    fn unreachable(&self, cause: &str) -> Failure {
        Failure::Unreachable { server: self.base.clone(), cause: cause.to_owned() }
    }
}

fn credential(secret: &str) -> Result<HeaderValue, Failure> {
    let mut bearer = HeaderValue::try_from(format!("Bearer {secret}"))
        .map_err(|_| Failure::Usage("a credential must be printable ASCII".to_owned()))?;
    bearer.set_sensitive(true);
    Ok(bearer)
}

/// The requested part of a list.
#[derive(Debug, clap::Args)]
pub(crate) struct PageArguments {
    /// Maximum number of entries
    #[arg(long, default_value_t = 100, value_parser = at_least_one)]
    limit: usize,
    /// Continue after this position, as printed by the previous list
    #[arg(long, value_name = "NEXT", allow_hyphen_values = true)]
    pub(crate) after: Option<String>,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "must be a number of at least 1".to_owned())
}

/// A part of a list.
pub(crate) struct Listed {
    pub(crate) entries: Vec<Value>,
    /// The value of `--after` for the next part. None at the end of the list.
    pub(crate) next: Option<String>,
}

impl Listed {
    /// Prints a list of the API, or a table and, to standard error, how to list more.
    pub(crate) fn print(self, name: &str, columns: &[&str], format: output::Format) -> Result<(), Failure> {
        format.list(&json!({name: self.entries, "next": self.next}), name, columns)?;
        if let Some(next) = self.next.filter(|_| !format.json) {
            eprintln!("more: --after {}", output::quoted(&output::clean(&next)));
        }
        Ok(())
    }
}

/// Reads as many pages as needed. `name`: the field with the entries.
pub(crate) async fn pages(
    client: &Client,
    path: &str,
    name: &str,
    filter: Option<&str>,
    page: PageArguments,
) -> Result<Listed, Failure> {
    let PageArguments { limit, after: mut next } = page;
    let filter = filter.map(|filter| format!("&{filter}")).unwrap_or_default();
    // An empty `after` is the first page.
    let query = |size: usize, after: &str| format!("{path}?limit={size}{filter}&after={}", escape(after));
    let mut entries: Vec<Value> = Vec::new();
    while entries.len() < limit {
        let size = (limit - entries.len()).min(PAGE_MAX);
        let answer = client.get(&query(size, next.as_deref().unwrap_or_default())).await?;
        entries.extend_from_slice(output::entries(&answer, name));
        next = answer["next"].as_str().map(str::to_owned);
        if next.is_none() {
            break;
        }
    }
    // A full last page also has a `next`: only reading it shows that nothing follows.
    if let Some(position) = &next {
        let rest = client.get(&query(1, position)).await?;
        next = next.filter(|_| !output::entries(&rest, name).is_empty());
    }
    Ok(Listed { entries, next })
}

/// A path segment or query value.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            // RFC 3986 §2.3
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte))
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

async fn read(response: Response<Incoming>) -> Result<Bytes, Failure> {
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| Failure::failed(format!("the response ended early: {error}")))?;
    Ok(body.to_bytes())
}

fn text(body: Bytes) -> Result<String, Failure> {
    String::from_utf8(body.into()).map_err(|_| Failure::failed("the server's response is not UTF-8"))
}

/// The failure in an unsuccessful response.
pub(crate) async fn refusal(response: Response<Incoming>) -> Failure {
    let (status, retry_after) = (response.status(), retry_after(response.headers()));
    match read(response).await.and_then(text) {
        Ok(text) => problem(status, retry_after, &text),
        Err(failure) => failure,
    }
}

/// RFC 9110 §10.2.3, only in seconds, as the server sends it.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// The message of an error response, in one line.
fn problem(status: StatusCode, retry_after: Option<Duration>, text: &str) -> Failure {
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    let field = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
    let detail = field("detail")
        .or_else(|| field("title"))
        .unwrap_or_else(|| format!("the server responded {status}"));
    let detail = field("field").map(|name| format!("{name}: {detail}")).unwrap_or(detail);
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Failure::Refused(format!("refused: {detail}")),
        _ => {
            let code = field("code").unwrap_or_else(|| "no_code".to_owned());
            Failure::Answered { status: status.as_u16(), code, detail, retry_after }
        }
    }
}

pub(crate) fn tls_config(ca_file: Option<&Path>) -> Result<rustls::ClientConfig, Failure> {
    let mut roots = rustls::RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    if let Some(path) = ca_file {
        let wrong = |error: &dyn std::fmt::Display| Failure::Usage(format!("{}: {error}", path.display()));
        let certificates = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| wrong(&error))?;
            roots.add(certificate).map_err(|error| wrong(&error))?;
        }
    }
    Ok(rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

/// The cause, and advice if the TLS library's message has none.
fn cause(error: &dyn std::error::Error) -> String {
    let cause = root_cause(error);
    // The library does not export the type of this error, so only its text identifies it.
    if cause.contains("CaUsedAsEndEntity") {
        return "the server's certificate is a CA's (CA:TRUE), which no server may show: make one with \
                basicConstraints CA:FALSE, or let the CA sign one for the server"
            .to_owned();
    }
    match cause.contains("UnknownIssuer") {
        true => format!(
            "{cause}: no trusted authority signed it; pass --ca-file with the CA's certificate or the server's own"
        ),
        false => cause,
    }
}

/// The innermost error is the cause; the outer ones only add context.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
