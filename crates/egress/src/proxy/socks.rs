//! A connection through a SOCKS5 proxy: `CONNECT` of RFC 1928, without credentials or with user and password (RFC 1929). The
//! proxy resolves the name. Reads no byte after the reply from the stream: it belongs to the server.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use url::Host;

use super::Login;
use crate::Error;
use crate::target::Target;

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const NONE_ACCEPTABLE: u8 = 0xff;
/// RFC 1929 §2: of the negotiation of user and password.
const LOGIN_VERSION: u8 = 1;
const CONNECT: u8 = 1;
const RESERVED: u8 = 0;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Requests a connection to `target` from the proxy at the other end of `stream`. Without a timeout.
pub(crate) async fn open<S>(stream: &mut S, login: Option<&Login>, target: &Target) -> Result<(), Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let methods: &[u8] = match login {
        None => &[NO_AUTHENTICATION],
        Some(_) => &[NO_AUTHENTICATION, USER_AND_PASSWORD],
    };
    let mut greeting = vec![VERSION, methods.len() as u8]; // at most 2
    greeting.extend(methods);
    write(stream, &greeting).await?;
    let [version, method] = read(stream).await?;
    if version != VERSION {
        return Err(failed("did not answer like a SOCKS5 proxy"));
    }
    match (method, login) {
        (NO_AUTHENTICATION, _) => {}
        (USER_AND_PASSWORD, Some(login)) => log_in(stream, login).await?,
        (NONE_ACCEPTABLE, None) => return Err(failed("requires a user and a password")),
        (NONE_ACCEPTABLE, Some(_)) => return Err(failed("accepts neither no credentials nor a password")),
        _ => return Err(failed("chose an authentication that was not offered")),
    }
    write(stream, &request(target)).await?;
    let [version, reply, _, kind] = read(stream).await?;
    if version != VERSION {
        return Err(failed("did not answer like a SOCKS5 proxy"));
    }
    if reply != 0 {
        return Err(failed(&format!("answered {reply} ({}) for {target}", meaning(reply))));
    }
    // The address that the proxy connects from, which no one needs.
    let rest = match kind {
        IPV4 => 4 + 2,
        IPV6 => 16 + 2,
        NAME => usize::from(read::<1, _>(stream).await?[0]) + 2,
        _ => return Err(failed("did not answer like a SOCKS5 proxy")),
    };
    let mut bound = [0; 255 + 2];
    stream.read_exact(&mut bound[..rest]).await.map_err(broken)?;
    Ok(())
}

/// RFC 1929 §2.
async fn log_in<S>(stream: &mut S, login: &Login) -> Result<(), Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut message = vec![LOGIN_VERSION];
    for text in [&login.user, &login.password] {
        message.push(text.len() as u8); // `ProxyUrl::parse` limits both to 255 bytes
        message.extend(text);
    }
    write(stream, &message).await?;
    match read(stream).await? {
        [LOGIN_VERSION, 0] => Ok(()),
        [LOGIN_VERSION, _] => Err(failed("requires other credentials")),
        _ => Err(failed("did not answer like a SOCKS5 proxy")),
    }
}

/// RFC 1928 §4. A name has at most 253 bytes ([`Target::new`]).
fn request(target: &Target) -> Vec<u8> {
    let mut request = vec![VERSION, CONNECT, RESERVED];
    match &target.host {
        Host::Ipv4(address) => {
            request.push(IPV4);
            request.extend(address.octets());
        }
        Host::Ipv6(address) => {
            request.push(IPV6);
            request.extend(address.octets());
        }
        Host::Domain(name) => {
            request.extend([NAME, name.len() as u8]);
            request.extend(name.as_bytes());
        }
    }
    request.extend(target.port.to_be_bytes());
    request
}

/// RFC 1928 §6.
fn meaning(reply: u8) -> &'static str {
    match reply {
        1 => "general failure",
        2 => "not allowed by its rules",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "TTL expired",
        7 => "command not supported",
        8 => "address type not supported",
        _ => "unknown reason",
    }
}

async fn write<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) -> Result<(), Error> {
    stream.write_all(bytes).await.map_err(broken)?;
    stream.flush().await.map_err(broken)
}

async fn read<const N: usize, S: AsyncRead + Unpin>(stream: &mut S) -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await.map_err(broken)?;
    Ok(bytes)
}

fn broken(error: io::Error) -> Error {
    failed(&format!("closed the connection: {error}"))
}

fn failed(reason: &str) -> Error {
    Error::Proxy { reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(https: bool, host: &str, port: u16) -> Target {
        Target::new(https, host, port).expect("a target")
    }

    fn login() -> Login {
        Login { user: b"u".to_vec(), password: b"s3cr".to_vec() }
    }

    /// Plays the proxy: each pair is what it expects and what it answers. `rest`: what the server sends after that.
    async fn play(
        login: Option<Login>,
        target: &Target,
        script: &[(&[u8], &[u8])],
        rest: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let (mut ours, mut theirs) = tokio::io::duplex(4_096);
        let script: Vec<(Vec<u8>, Vec<u8>)> =
            script.iter().map(|(expected, answer)| (expected.to_vec(), answer.to_vec())).collect();
        let last = rest.to_vec();
        let proxy = tokio::spawn(async move {
            for (expected, answer) in script {
                let mut got = vec![0; expected.len()];
                theirs.read_exact(&mut got).await.expect("a message");
                assert_eq!(got, expected);
                // Byte by byte: a message may arrive in pieces.
                for byte in answer {
                    theirs.write_all(&[byte]).await.expect("written");
                    tokio::task::yield_now().await;
                }
            }
            let _ = theirs.write_all(&last).await;
        });
        let opened = open(&mut ours, login.as_ref(), target).await;
        let mut after = Vec::new();
        if opened.is_ok() {
            ours.read_to_end(&mut after).await.expect("read");
        }
        proxy.await.expect("the proxy got what it expected");
        opened.map(|()| after)
    }

    #[tokio::test]
    async fn a_name_is_resolved_by_the_proxy_and_no_byte_of_the_server_is_lost() {
        let request = [&[5, 1, 0, 3, 11][..], b"far.example", &[1, 187]].concat();
        let script: [(&[u8], &[u8]); 2] =
            [(&[5, 1, 0], &[5, 0]), (&request, &[5, 0, 0, 1, 10, 0, 0, 1, 4, 56])];
        let after = play(None, &target(true, "far.example", 443), &script, b"hello").await;
        assert_eq!(after.expect("open"), b"hello");
    }

    #[tokio::test]
    async fn addresses_go_as_bytes_and_replies_have_any_address() {
        let v4: [(&[u8], &[u8]); 2] = [
            (&[5, 1, 0], &[5, 0]),
            (&[5, 1, 0, 1, 8, 8, 4, 4, 0, 80], &[5, 0, 0, 3, 3, b'a', b'.', b'b', 0, 1]),
        ];
        assert_eq!(play(None, &target(false, "8.8.4.4", 80), &v4, b"x").await.expect("open"), b"x");
        let request = [&[5, 1, 0, 4][..], &[0x20, 1, 0xd, 0xb8], &[0; 11], &[1], &[0, 80]].concat();
        let reply = [&[5, 0, 0, 4][..], &[0; 18]].concat();
        let v6: [(&[u8], &[u8]); 2] = [(&[5, 1, 0], &[5, 0]), (&request, &reply)];
        assert_eq!(play(None, &target(false, "[2001:db8::1]", 80), &v6, b"x").await.expect("open"), b"x");
    }

    #[tokio::test]
    async fn a_password_is_sent_only_if_the_proxy_asks_for_it() {
        let far = target(true, "a.b", 1);
        let request: &[u8] = &[5, 1, 0, 3, 3, b'a', b'.', b'b', 0, 1];
        let reply: &[u8] = &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        let asked: [(&[u8], &[u8]); 3] =
            [(&[5, 2, 0, 2], &[5, 2]), (b"\x01\x01u\x04s3cr", &[1, 0]), (request, reply)];
        play(Some(login()), &far, &asked, b"").await.expect("logged in");
        let open: [(&[u8], &[u8]); 2] = [(&[5, 2, 0, 2], &[5, 0]), (request, reply)];
        play(Some(login()), &far, &open, b"").await.expect("not asked");
    }

    #[tokio::test]
    async fn every_refusal_is_an_error_of_the_proxy_without_the_password() {
        let far = target(true, "a.b", 1);
        let request: &[u8] = &[5, 1, 0, 3, 3, b'a', b'.', b'b', 0, 1];
        let check = async |login: Option<Login>, script: &[(&[u8], &[u8])], part: &str| {
            let error = play(login, &far, script, b"").await.expect_err(part);
            let text = error.to_string();
            assert!(matches!(error, Error::Proxy { .. }) && text.contains(part), "{text}");
            assert!(!text.contains("s3cr"), "{text}");
        };
        check(None, &[(&[5, 1, 0], &[5, 0xff])], "requires a user and a password").await;
        check(None, &[(&[5, 1, 0], &[5, 2])], "was not offered").await;
        check(None, &[(&[5, 1, 0], b"HT")], "SOCKS5").await;
        check(None, &[(&[5, 1, 0], &[5])], "closed").await;
        check(Some(login()), &[(&[5, 2, 0, 2], &[5, 0xff])], "neither").await;
        let wrong: [(&[u8], &[u8]); 2] = [(&[5, 2, 0, 2], &[5, 2]), (b"\x01\x01u\x04s3cr", &[1, 1])];
        check(Some(login()), &wrong, "other credentials").await;
        for (reply, part) in
            [(1, "general failure"), (2, "not allowed"), (4, "host unreachable"), (77, "unknown")]
        {
            let reply = [5, reply, 0, 1, 0, 0, 0, 0, 0, 0];
            let script: [(&[u8], &[u8]); 2] = [(&[5, 1, 0], &[5, 0]), (request, &reply)];
            check(None, &script, part).await;
        }
        let strange: [(&[u8], &[u8]); 2] = [(&[5, 1, 0], &[5, 0]), (request, &[5, 0, 0, 9])];
        check(None, &strange, "SOCKS5").await;
        let cut: [(&[u8], &[u8]); 2] = [(&[5, 1, 0], &[5, 0]), (request, &[5, 0, 0, 1, 10])];
        check(None, &cut, "closed").await;
    }
}
