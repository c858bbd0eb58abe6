//! Reads the usage of a Redis server with `INFO`: processed commands and CPU time. One blocking RESP2
//! connection, whose own commands are excluded.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::Error;
use crate::process::Cpu;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Far above the size of INFO's response.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The usage of a server since its start.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Done {
    pub(crate) commands: u64,
    pub(crate) calls: BTreeMap<String, u64>,
    pub(crate) cpu: Cpu,
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
    stream: BufReader<TcpStream>,
    url: String,
}

impl Redis {
    /// `redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]`
    pub(crate) fn open(url: &str) -> Result<Self, Error> {
        let rule = || Error::Usage("--redis must be redis://HOST:PORT to count its commands".to_owned());
        let rest = url.strip_prefix("redis://").ok_or_else(rule)?;
        let (who, place) = rest.rsplit_once('@').unwrap_or(("", rest));
        let place = place.split(['/', '?']).next().unwrap_or_default();
        let address = if place.contains(':') { place.to_owned() } else { format!("{place}:6379") };
        // Omits the password.
        let shown = format!("redis://{address}");
        let unreachable = |source| Error::Unreachable { url: shown.clone(), source };
        let stream = TcpStream::connect(&address).map_err(unreachable)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let mut redis = Self { stream: BufReader::new(stream), url: shown };
        if let Some((user, password)) = who.split_once(':') {
            let words = if user.is_empty() { vec!["AUTH", password] } else { vec!["AUTH", user, password] };
            redis.ask(&words)?;
        }
        Ok(redis)
    }

    pub(crate) fn ping(&mut self) -> Result<(), Error> {
        self.ask(&["PING"]).map(drop)
    }

    pub(crate) fn done(&mut self) -> Result<Done, Error> {
        self.ask(&["INFO", "all"]).map(|text| parse(&text))
    }

    fn ask(&mut self, words: &[&str]) -> Result<String, Error> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        let answer = self.stream.get_mut().write_all(request.as_bytes()).and_then(|()| self.answer());
        match answer {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(refused)) => {
                Err(Error::Refused { request: words[0].to_owned(), status: 0, body: refused })
            }
            Err(source) => Err(Error::Unreachable { url: self.url.clone(), source }),
        }
    }

    /// A simple or bulk string, or the error response.
    fn answer(&mut self) -> std::io::Result<Result<String, String>> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let line = line.trim_end();
        let Some(kind) = line.chars().next() else { return Err(std::io::ErrorKind::UnexpectedEof.into()) };
        let rest = &line[kind.len_utf8()..];
        match kind {
            '+' => Ok(Ok(rest.to_owned())),
            '-' => Ok(Err(rest.to_owned())),
            '$' => {
                let len: usize = rest.parse().unwrap_or(usize::MAX);
                if len > ANSWER_BYTES_MAX {
                    return Err(std::io::Error::other("a response is too long"));
                }
                let mut bytes = vec![0; len + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(len);
                Ok(Ok(String::from_utf8_lossy(&bytes).into_owned()))
            }
            _ => Err(std::io::Error::other("the response is not RESP2")),
        }
    }
}

/// Parses the text of `INFO all`.
fn parse(text: &str) -> Done {
    let mut done = Done::default();
    let seconds = |value: &str| value.parse::<f64>().unwrap_or_default() * 1e6;
    for (key, value) in text.lines().filter_map(|line| line.trim_end().split_once(':')) {
        match key {
            "total_commands_processed" => done.commands = value.parse().unwrap_or_default(),
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
