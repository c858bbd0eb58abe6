//! The address of Redis in the configuration.
//!
//! ```text
//!   redis://[user:password@]host[:6379][/database]            one server
//!   redis-cluster://[user:password@]host[:6379],host,…        Redis Cluster: some of its servers
//!   redis-sentinel://[user:password@]host[:26379],…/name[/database]
//! ```
//!
//! `rediss…` adds TLS; `valkey…` is an alias of `redis…`. User and password are percent-encoded. Sentinels with their
//! own password: `?sentinel_password=…` (and `sentinel_user=…`).

use std::fmt;

use noroshi_types::Invalid;
use percent_encoding::percent_decode_str;

/// The maximum number of hosts.
const HOSTS_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host {
    pub name: String,
    pub port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]:{}", self.name, self.port),
            false => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Servers {
    Standalone(Host),
    /// Any of them reports the others.
    Cluster(Vec<Host>),
    Sentinel {
        sentinels: Vec<Host>,
        master: String,
    },
}

/// The credentials.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Login {
    /// An ACL user; `None`: the default one.
    pub user: Option<String>,
    pub password: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub servers: Servers,
    pub tls: bool,
    pub login: Login,
    pub sentinel_login: Login,
    pub database: u32,
}

impl Address {
    /// Errors never show the password.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let (scheme, rest) =
            text.split_once("://").ok_or_else(|| invalid("must begin with a scheme, redis://"))?;
        let (tls, kind) = scheme_parts(scheme)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (parse_login(login)?, rest),
            None => (Login::default(), rest),
        };
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let sentinel_login = parse_query(query, kind)?;
        let (servers, database) = match kind {
            "" => (Servers::Standalone(one(parse_hosts(hosts, 6379)?)?), path),
            "cluster" => (Servers::Cluster(parse_hosts(hosts, 6379)?), path),
            _ => {
                let sentinels = parse_hosts(hosts, 26379)?;
                let (master, database) = path.split_once('/').unwrap_or((path, ""));
                if master.is_empty() {
                    return Err(invalid(
                        "must name the master that the sentinels monitor: redis-sentinel://host/name",
                    ));
                }
                (Servers::Sentinel { sentinels, master: decoded(master)? }, database)
            }
        };
        let database = match database {
            "" => 0,
            number => number.parse().map_err(|_| invalid("must have a number as its database"))?,
        };
        if kind == "cluster" && database != 0 {
            return Err(invalid("must have no database: Redis Cluster supports only 0"));
        }
        Ok(Self { servers, tls, login, sentinel_login, database })
    }
}

/// Without credentials, for logs.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, hosts, master) = match &self.servers {
            Servers::Standalone(host) => ("", std::slice::from_ref(host), None),
            Servers::Cluster(hosts) => ("-cluster", hosts.as_slice(), None),
            Servers::Sentinel { sentinels, master } => ("-sentinel", sentinels.as_slice(), Some(master)),
        };
        let scheme = if self.tls { "rediss" } else { "redis" };
        let hosts: Vec<String> = hosts.iter().map(Host::to_string).collect();
        write!(f, "{scheme}{kind}://{}", hosts.join(","))?;
        master.map_or(Ok(()), |master| write!(f, "/{master}"))
    }
}

fn invalid(rule: &str) -> Invalid {
    Invalid::new(format!("a Redis address {rule}"))
}

fn scheme_parts(scheme: &str) -> Result<(bool, &str), Invalid> {
    let (base, kind) = scheme.split_once('-').unwrap_or((scheme, ""));
    let tls = match base {
        "redis" | "valkey" => false,
        "rediss" | "valkeys" => true,
        _ => {
            return Err(invalid(
                "must begin with redis:// or rediss://, redis-cluster:// or redis-sentinel://",
            ));
        }
    };
    match kind {
        "" | "cluster" | "sentinel" => Ok((tls, kind)),
        _ => Err(invalid("must begin with redis://, redis-cluster:// or redis-sentinel://")),
    }
}

fn parse_login(text: &str) -> Result<Login, Invalid> {
    let (user, password) =
        text.split_once(':').ok_or_else(|| invalid("must have user:password before the @"))?;
    let user = match user {
        "" => None,
        user => Some(decoded(user)?),
    };
    Ok(Login { user, password: Some(decoded(password)?) })
}

fn parse_query(query: &str, kind: &str) -> Result<Login, Invalid> {
    let mut login = Login::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "sentinel_user" if kind == "sentinel" => login.user = Some(decoded(value)?),
            "sentinel_password" if kind == "sentinel" => login.password = Some(decoded(value)?),
            _ => {
                return Err(invalid(
                    "must have no parameters except sentinel_user and sentinel_password with redis-sentinel://",
                ));
            }
        }
    }
    Ok(login)
}

fn decoded(text: &str) -> Result<String, Invalid> {
    let text = percent_decode_str(text).decode_utf8().map_err(|_| invalid("is UTF-8"))?;
    Ok(text.into_owned())
}

fn parse_hosts(text: &str, default_port: u16) -> Result<Vec<Host>, Invalid> {
    if text.split(',').count() > HOSTS_MAX {
        return Err(invalid(&format!("must name at most {HOSTS_MAX} hosts")));
    }
    text.split(',').map(|host| parse_host(host, default_port)).collect()
}

/// `name`, `name:port`, `[v6]`, `[v6]:port`.
fn parse_host(text: &str, default_port: u16) -> Result<Host, Invalid> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, rest) =
                rest.split_once(']').ok_or_else(|| invalid("must close an IPv6 address with ]"))?;
            (name, rest.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        },
    };
    if name.is_empty() {
        return Err(invalid("must name a host"));
    }
    let port = match port {
        Some(port) => port.parse().map_err(|_| invalid("must have a port of 1 to 65535"))?,
        None => default_port,
    };
    Ok(Host { name: name.to_owned(), port })
}

fn one(mut hosts: Vec<Host>) -> Result<Host, Invalid> {
    match hosts.len() {
        1 => Ok(hosts.remove(0)),
        _ => Err(invalid("with several hosts must begin with redis-cluster:// or redis-sentinel://")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Address {
        Address::parse(text).expect(text)
    }

    fn host(name: &str, port: u16) -> Host {
        Host { name: name.to_owned(), port }
    }

    #[test]
    fn every_form_is_parsed() {
        let plain = parsed("redis://localhost");
        assert_eq!(plain.servers, Servers::Standalone(host("localhost", 6379)));
        assert!(!plain.tls && plain.database == 0 && plain.login == Login::default());

        let full = parsed("rediss://me:p%40ss@[::1]:7000/3");
        assert_eq!(full.servers, Servers::Standalone(host("::1", 7000)));
        assert_eq!((full.tls, full.database), (true, 3));
        assert_eq!(full.login, Login { user: Some("me".to_owned()), password: Some("p@ss".to_owned()) });

        let cluster = parsed("valkey-cluster://a:1,b,c:3");
        assert_eq!(cluster.servers, Servers::Cluster(vec![host("a", 1), host("b", 6379), host("c", 3)]));

        let sentinel = parsed("redis-sentinel://:pw@a,b:5/main/2?sentinel_password=x");
        let sentinels = vec![host("a", 26379), host("b", 5)];
        assert_eq!(sentinel.servers, Servers::Sentinel { sentinels, master: "main".to_owned() });
        assert_eq!(sentinel.database, 2);
        assert_eq!(sentinel.sentinel_login.password.as_deref(), Some("x"));
    }

    #[test]
    fn errors_name_the_problem_and_hide_the_password() {
        for (text, part) in [
            ("localhost:6379", "scheme"),
            ("http://a", "redis://"),
            ("redis://a,b", "redis-cluster://"),
            ("redis://a:x", "port"),
            ("redis://a/x", "database"),
            ("redis-cluster://a/1", "database"),
            ("redis-sentinel://a", "master"),
            ("redis://secret@a", "user:password"),
            ("redis://:secret@", "host"),
            ("redis://:secret@a?x=1", "parameters"),
            ("redis://[::1", "]"),
        ] {
            let error = Address::parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
        let shown = format!("{:?} {}", parsed("redis://me:secret@a"), parsed("redis://me:secret@a"));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
