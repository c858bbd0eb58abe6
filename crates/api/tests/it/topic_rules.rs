//! Topic rules enforced by the API, with a webhook that counts concurrent calls.

use std::sync::Arc;

use http::{Method, StatusCode};
use noroshi_auth::Auth;
use noroshi_egress::{Config, Egress};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::service::{OPERATOR, Service};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Starts a webhook that allows everything once `together` calls are open; returns its address.
async fn webhook(together: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        loop {
            let mut open = Vec::new();
            while open.len() < together {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let mut read = Vec::new();
                while !read.ends_with(b"}") {
                    stream.read_buf(&mut read).await.expect("a request");
                }
                open.push(stream);
            }
            for stream in open {
                answer(stream).await;
            }
        }
    });
    url
}

async fn answer(mut stream: TcpStream) {
    let body = r#"{"allow":true}"#;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await.expect("answered");
    let _ = stream.shutdown().await;
}

fn egress() -> Arc<Egress> {
    let allow = vec!["127.0.0.0/8".parse().expect("a network")];
    Arc::new(Egress::new(Config { allow, ..Config::default() }).expect("egress"))
}

async fn service() -> Service {
    let service = Service::start().await;
    let delivery = service.state.delivery.clone();
    delivery.rules.attach_webhooks(egress());
    service.state.auth.watch_apps(move |_, rules| delivery.rules.set(rules)).await;
    service
}

fn rules(url: &str, secret: Option<&str>) -> String {
    let subscribe =
        [json!({ "topic": "room/+", "allow": "ask" }), json!({ "topic": "open", "allow": "anyone" })];
    let mut ask = json!({ "url": url, "timeout": "10s" });
    if let Some(secret) = secret {
        ask["secret"] = secret.into();
    }
    json!({ "subscribe": subscribe, "ask": ask }).to_string()
}

#[tokio::test]
async fn the_webhook_is_called_concurrently_for_all_topics_of_a_request() {
    let service = service().await;
    let path = "/v1/apps/dev/topic-rules";
    let set = service.operate(Method::PUT, path, OPERATOR, &rules(&webhook(16).await, Some(SECRET))).await;
    assert_eq!(set.status, StatusCode::OK, "{}", set.text);
    let token = service.device("d1", "u1").await;
    let register = async |count: usize| {
        let rooms = (0..count).map(|number| format!("room/{number}"));
        let topics: Vec<String> = std::iter::once("open".to_owned()).chain(rooms).collect();
        service.post("/v1/devices", &token, &json!({ "device": "d1", "topics": topics }).to_string()).await
    };
    let registered = register(16).await;
    assert_eq!(registered.status, StatusCode::CREATED, "{}", registered.text);
    // 16 answers are cached.
    let refused = register(16 + 65).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.text);
    assert_eq!(refused.json()["field"], "topics[81]");
}

#[tokio::test]
async fn a_secret_set_by_another_node_stays_if_none_is_given() {
    let service = service().await;
    let elsewhere = Auth::open(service.store.clone(), egress()).await.expect("auth");
    let checked = rules("http://127.0.0.1:9/", Some(SECRET));
    elsewhere.set_topic_rules(service.app(), Some(checked)).await.expect("set");
    let path = "/v1/apps/dev/topic-rules";
    let again = service.operate(Method::PUT, path, OPERATOR, &rules("http://127.0.0.1:9/", None)).await;
    assert_eq!(again.status, StatusCode::OK, "{}", again.text);
    assert_eq!(again.json()["ask"]["secret_set"], true);
}
