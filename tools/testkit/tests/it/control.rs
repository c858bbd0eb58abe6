//! The control port as used by tests in other languages, and HTTP/1.1 where senders use it.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use noroshi_testkit::{Config, Fakes, Service};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::client::tls;

async fn ask(fakes: &Fakes, method: &str, path: &str, body: &str) -> (u16, Value) {
    let address = fakes.control().strip_prefix("http://").unwrap().to_owned();
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder().method(method).uri(path).header("host", "localhost");
    let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
    let response = sender.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

#[tokio::test]
async fn the_control_port_is_sufficient_for_other_languages() {
    let fakes = Fakes::start().unwrap();
    let (status, info) = ask(&fakes, "GET", "/info", "").await;
    assert_eq!((status, info["credentials"]["apns"]["key_id"].as_str()), (200, Some("DEVKEY0001")));
    assert!(info["ca"].as_str().unwrap().contains("BEGIN CERTIFICATE"));
    let (status, made) = ask(&fakes, "POST", "/tokens", r#"{"service":"webpush","count":3}"#).await;
    assert_eq!((status, made["push_tokens"].as_array().unwrap().len()), (200, 3));
    let change = r#"{"service":"fcm","next":[{"status":503,"retry_after_s":1}]}"#;
    assert_eq!(ask(&fakes, "POST", "/behave", change).await.0, 204);
    for (path, body) in
        [("/behave", r#"{"streams":1}"#), ("/tokens", r#"{"service":"sms"}"#), ("/behave", "x")]
    {
        let (status, problem) = ask(&fakes, "POST", path, body).await;
        assert!(status == 400 && problem["error"].is_string(), "{path} {body}");
    }
    assert_eq!(ask(&fakes, "GET", "/nothing", "").await.0, 404);
    let (_, made) = ask(&fakes, "POST", "/certificate", "").await;
    assert!(made["private_key"].as_str().unwrap().contains("PRIVATE KEY"));

    post_plain(&fakes, Service::Fcm).await;
    let (_, counts) = ask(&fakes, "GET", "/counts", "").await;
    assert_eq!(counts["fcm"]["requests"], 1);
    let (_, received) = ask(&fakes, "GET", "/received?service=fcm&limit=5", "").await;
    assert_eq!(received["received"][0]["status"], 404);
    assert_eq!(ask(&fakes, "GET", "/received?service=sms", "").await.0, 400);
    assert_eq!(ask(&fakes, "DELETE", "/received", "").await.0, 204);
    let (_, received) = ask(&fakes, "GET", "/received", "").await;
    assert_eq!(received, json!({"received": []}));
}

/// An HTTP/1.1 request that is not valid for FCM.
async fn post_plain(fakes: &Fakes, service: Service) {
    let tcp = TcpStream::connect(fakes.address(service)).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(tls(fakes, None, "http/1.1"));
    let stream = connector.connect(ServerName::try_from("localhost").unwrap(), tcp).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post("/none").header("host", "localhost").body(Full::new(Bytes::new())).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 404);
}

#[tokio::test]
async fn light_fakes_count_requests_without_keeping_them() {
    let fakes = Fakes::start_with(Config { light: true, ..Config::default() }).unwrap();
    post_plain(&fakes, Service::Fcm).await;
    assert_eq!(fakes.counts(Service::Fcm).requests, 1);
    assert!(fakes.received(Service::Fcm).is_empty());
}

#[test]
fn keys_and_authority_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let config = || Config { folder: Some(folder.path().to_owned()), ..Config::default() };
    let fakes = Fakes::start_with(config()).unwrap();
    let before = (fakes.ca().to_owned(), fakes.keys().apns_p8.clone());
    drop(fakes);
    let fakes = Fakes::start_with(config()).unwrap();
    assert_eq!((fakes.ca().to_owned(), fakes.keys().apns_p8.clone()), before);
    assert!(fakes.ca_file().unwrap().exists());
}
