//! One exchange: limited in size and time, and never redirected.

use std::time::Duration;

use bytes::Bytes;
use noroshi_egress::{Error, Limits, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::server::{Authority, LONG, Server, open_egress, read_head};

const LIMITS: Limits = Limits { body_bytes_max: 1_000, timeout: LONG };

async fn get(answer: impl Into<String>) -> Result<Bytes, Error> {
    let server = Server::answering(answer.into()).await;
    let url = format!("http://near.example:{}/", server.port());
    open_egress(|_| {}).get(&url, LIMITS).await
}

#[tokio::test]
async fn a_body_is_fetched() {
    assert_eq!(get("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await.expect("fetched"), "hello");
    assert_eq!(get("HTTP/1.1 200 OK\r\n\r\nhello").await.expect("fetched"), "hello");
    let chunked = "HTTP/1.1 203 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
    assert_eq!(get(chunked).await.expect("fetched"), "hello");
    let informed =
        "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n!";
    assert_eq!(get(informed).await.expect("fetched"), "!");
    let most = format!("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{}", "x".repeat(1_000));
    assert_eq!(get(most).await.expect("fetched").len(), 1_000);
}

#[tokio::test]
async fn a_status_other_than_success_is_an_error_and_redirects_are_not_followed() {
    for status in [304, 404, 429, 500] {
        let answer = format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(get(answer).await, Err(Error::Status(status)));
    }
    let elsewhere = Server::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned()).await;
    for status in [301, 302, 303, 307, 308] {
        let location = format!("http://{}/", elsewhere.address);
        let answer = format!("HTTP/1.1 {status} There\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(get(answer).await, Err(Error::Status(status)));
    }
    assert_eq!(elsewhere.came(), 0);
}

#[tokio::test]
async fn a_body_over_the_limit_is_an_error() {
    let declared = "HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n".to_owned() + &"x".repeat(1_001);
    let endless = "HTTP/1.1 200 OK\r\n\r\n".to_owned() + &"x".repeat(1 << 20);
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned() + &"1\r\nx\r\n".repeat(2_000);
    for answer in [declared, endless, chunked] {
        assert_eq!(get(answer).await, Err(Error::TooLarge { bytes_max: 1_000 }));
    }
}

#[tokio::test]
async fn an_incomplete_response_is_an_error() {
    for answer in [
        String::new(),
        "SSH-2.0-x\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Le".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel".to_owned(),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel".to_owned(),
        format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(1 << 20)),
    ] {
        let result = get(answer.clone()).await;
        assert!(matches!(result, Err(Error::Exchange { .. })), "{answer:.40}: {result:?}");
    }
}

#[tokio::test]
async fn a_silent_or_slow_server_times_out() {
    let limits = Limits { timeout: Duration::from_millis(100), ..LIMITS };
    let silent = Server::silent().await;
    let slow = Server::start(|mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    for server in [silent, slow] {
        let url = format!("http://near.example:{}/", server.port());
        let late = open_egress(|_| {}).get(&url, limits).await;
        assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    }
}

#[tokio::test]
async fn a_request_has_only_the_necessary_headers() {
    let (heard, mut requests) = mpsc::channel(1);
    let server = Server::start(move |mut stream| {
        let heard = heard.clone();
        async move {
            let head = read_head(&mut stream).await;
            let mut body = vec![0; if head.starts_with("POST") { 8 } else { 0 }];
            stream.read_exact(&mut body).await.expect("read");
            heard.send((head, body)).await.expect("heard");
            let answer = b"HTTP/1.1 400 Bad\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\n{}";
            stream.write_all(answer).await.expect("written");
        }
    })
    .await;
    let (port, egress) = (server.port(), open_egress(|_| {}));

    let url = format!("http://near.example:{port}/a%20b?c=d#e");
    assert_eq!(egress.get(&url, LIMITS).await, Err(Error::Status(400)));
    let (head, _) = requests.recv().await.expect("heard");
    assert!(head.starts_with("GET /a%20b?c=d HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("host: near.example:{port}\r\n")), "{head}");
    assert!(!head.contains("accept-encoding") && !head.contains("content-"), "{head}");

    let form = Bytes::from_static(b"a=b&c=dd");
    let response = egress.post_form(&format!("http://near.example:{port}"), form, LIMITS).await;
    let retry_after = Some(Duration::from_secs(7));
    assert_eq!(response, Ok(Response { status: 400, retry_after, body: Bytes::from_static(b"{}") }));
    let (head, body) = requests.recv().await.expect("heard");
    assert!(head.starts_with("POST / HTTP/1.1\r\n") && body == b"a=b&c=dd", "{head}");
    assert!(head.contains("content-type: application/x-www-form-urlencoded\r\n"), "{head}");
    assert!(head.contains("content-length: 8\r\n"), "{head}");
}

#[tokio::test]
async fn an_invalid_url_is_not_connected_to() {
    let egress = open_egress(|_| {});
    for url in ["", "near.example", "ftp://near.example/", "http://u:p@near.example/", "file:///etc/passwd"] {
        assert!(matches!(egress.get(url, LIMITS).await, Err(Error::Invalid(_))), "{url}");
    }
    for url in ["http://10.0.0.1/", "http://[::1]/", "https://169.254.169.254/latest/meta-data"] {
        assert!(matches!(egress.get(url, LIMITS).await, Err(Error::Refused { .. })), "{url}");
    }
}

#[tokio::test]
async fn https_is_fetched_over_http_1_1() {
    let authority = Authority::new();
    let acceptor = authority.acceptor("near.example", &[b"h2", b"http/1.1"], false);
    let server = Server::start(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let mut stream = acceptor.accept(stream).await.expect("TLS");
            read_head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await.expect("written");
        }
    })
    .await;
    let egress = open_egress(|config| config.ca = vec![authority.certificate()]);
    let url = format!("https://near.example:{}/", server.port());
    assert_eq!(egress.get(&url, LIMITS).await.expect("fetched"), "hi");
}
