//! Reads the usage of a Redis server with `INFO`: processed commands and CPU time. One blocking connection, whose
//! own commands are excluded.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Error;
use crate::process::Cpu;

const TIMEOUT: Duration = Duration::from_secs(10);

/// The usage of a server since its start.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Done {
    pub(crate) commands: u64,
    pub(crate) calls: BTreeMap<String, u64>,
    pub(crate) cpu: Cpu,
    /// Now, not since the start.
    pub(crate) connections: u64,
    pub(crate) memory_bytes: u64,
}

impl Done {
    /// The usage from this point to a later one, excluding the INFO command.
    pub(crate) fn until(&self, later: &Done) -> Done {
        let calls = later.calls.iter().map(|(name, count)| {
            (name.clone(), count.saturating_sub(self.calls.get(name).copied().unwrap_or_default()))
        });
        let calls: BTreeMap<String, u64> =
            calls.filter(|(name, count)| *count > 0 && name != "info").collect();
        Done {
            commands: later.commands.saturating_sub(self.commands).saturating_sub(1),
            calls,
            cpu: later.cpu - self.cpu,
            connections: later.connections,
            memory_bytes: later.memory_bytes,
        }
    }

    pub(crate) fn of(&self, names: &[&str]) -> u64 {
        names.iter().filter_map(|name| self.calls.get(*name)).sum()
    }

    /// Commands that write; for a script, the commands that it calls.
    pub(crate) fn writes(&self) -> u64 {
        self.of(&[
            "set", "setex", "psetex", "mset", "del", "unlink", "hset", "hdel", "zadd", "zrem", "pexpire",
            "expire",
        ])
    }

    /// `mget 120, set 8`, most frequent first.
    pub(crate) fn shown(&self) -> String {
        let mut calls: Vec<(&String, &u64)> = self.calls.iter().collect();
        calls.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), (*name).clone()));
        let shown: Vec<String> =
            calls.iter().take(12).map(|(name, count)| format!("{name} {count}")).collect();
        shown.join(", ")
    }
}

pub(crate) struct Redis {
    connection: redis::Connection,
    /// Without the password.
    url: String,
}

impl Redis {
    pub(crate) fn open(url: &str) -> Result<Self, Error> {
        let rule = |_| Error::Usage("--redis must be redis://HOST:PORT to count its commands".to_owned());
        let client = redis::Client::open(url).map_err(rule)?;
        let url = format!("redis://{}", client.get_connection_info().addr());
        let connection = client.get_connection_with_timeout(TIMEOUT);
        let connection = connection.map_err(|error| failed(&url, "the connection", error))?;
        connection.set_read_timeout(Some(TIMEOUT)).map_err(|error| failed(&url, "a timeout", error))?;
        Ok(Self { connection, url })
    }

    pub(crate) fn ping(&mut self) -> Result<(), Error> {
        redis::cmd("PING").exec(&mut self.connection).map_err(|error| failed(&self.url, "PING", error))
    }

    pub(crate) fn done(&mut self) -> Result<Done, Error> {
        let text = redis::cmd("INFO").arg("all").query::<String>(&mut self.connection);
        Ok(parse(&text.map_err(|error| failed(&self.url, "INFO", error))?))
    }
}

fn failed(url: &str, request: &str, error: redis::RedisError) -> Error {
    match error.is_io_error() {
        true => Error::Unreachable { url: url.to_owned(), source: std::io::Error::other(error) },
        false => Error::Refused { request: request.to_owned(), status: 0, body: error.to_string() },
    }
}

/// Parses the text of `INFO all`.
fn parse(text: &str) -> Done {
    let mut done = Done::default();
    let seconds = |value: &str| value.parse::<f64>().unwrap_or_default() * 1e6;
    for (key, value) in text.lines().filter_map(|line| line.trim_end().split_once(':')) {
        match key {
            "total_commands_processed" => done.commands = value.parse().unwrap_or_default(),
            "connected_clients" => done.connections = value.parse().unwrap_or_default(),
            "used_memory" => done.memory_bytes = value.parse().unwrap_or_default(),
            "used_cpu_user" => done.cpu.user_us = seconds(value),
            "used_cpu_sys" => done.cpu.system_us = seconds(value),
            _ => {
                if let (Some(name), Some(calls)) =
                    (key.strip_prefix("cmdstat_"), value.strip_prefix("calls="))
                {
                    let calls = calls.split(',').next().unwrap_or_default();
                    done.calls.insert(name.to_owned(), calls.parse().unwrap_or_default());
                }
            }
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_between_two_points_excludes_info() {
        let info = |commands: u64, sets: u64, infos: u64| {
            parse(&format!(
                "# Stats\r\ntotal_commands_processed:{commands}\r\n# CPU\r\nused_cpu_sys:1.5\r\nused_cpu_user:{}.25\r\n\
                 used_cpu_sys_main_thread:9\r\n# Commandstats\r\ncmdstat_set:calls={sets},usec=9,usec_per_call=1.00\r\n\
                 cmdstat_config|get:calls=3,usec=1\r\ncmdstat_info:calls={infos},usec=1\r\n",
                commands / 10
            ))
        };
        let done = info(10, 1, 1).until(&info(31, 21, 2));
        assert_eq!((done.commands, done.of(&["set", "get"]), done.writes()), (20, 20, 20));
        assert_eq!(done.shown(), "set 20");
        assert_eq!((done.cpu.user_us, done.cpu.system_us), (2e6, 0.0));
    }

    #[test]
    fn address_is_a_url() {
        assert!(matches!(Redis::open("localhost:1"), Err(Error::Usage(_))));
        let Err(Error::Unreachable { url, .. }) = Redis::open("redis://:secret@127.0.0.1:1/0") else {
            panic!("it is there")
        };
        assert_eq!(url, "redis://127.0.0.1:1");
    }
}
