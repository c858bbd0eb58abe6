//! Broadcast channels: what the management host rejects, and the two environments. `e2e` drives it with a
//! third-party client.

use noroshi_testkit::{Fakes, Service};
use serde_json::json;

use crate::apns::provider_token;
use crate::client::{Client, Headers};
use crate::sign::now_s;

const CHANNELS: &str = "/1/apps/com.example.app/channels";
const NEW: &str = r#"{"message-storage-policy":0,"push-type":"LiveActivity"}"#;

fn sender(fakes: &Fakes) -> Headers {
    vec![("authorization".to_owned(), provider_token(fakes, now_s()))]
}

#[tokio::test]
async fn each_environment_has_its_own_channels() {
    let fakes = Fakes::start().unwrap();
    let headers = sender(&fakes);
    let mut client = Client::connect(&fakes, Service::ApnsChannels).await;
    let made = client.post(CHANNELS, &headers, NEW).await;
    assert_eq!(made.status, 201);
    let id = made.headers["apns-channel-id"].to_str().unwrap().to_owned();
    let one = [headers.clone(), vec![("apns-channel-id".to_owned(), id)]].concat();
    assert_eq!(client.send("GET", CHANNELS, &one, "").await.unwrap().status, 200);
    let mut sandbox = Client::connect(&fakes, Service::ApnsSandboxChannels).await;
    let answer = sandbox.send("GET", CHANNELS, &one, "").await.unwrap();
    assert_eq!((answer.status, answer.reason()), (400, "ChannelNotRegistered"));
}

#[tokio::test]
async fn each_part_of_a_request_is_checked() {
    let fakes = Fakes::start().unwrap();
    let right = sender(&fakes);
    let mut client = Client::connect(&fakes, Service::ApnsChannels).await;
    let made = client.post(CHANNELS, &right, NEW).await;
    assert_eq!((made.status, made.body), (201, json!(null)));
    let mut refused = async |path: &str, headers: &Headers, body: &str, status: u16, reason: &str| {
        let answer = client.post(path, headers, body.to_owned()).await;
        assert_eq!((answer.status, answer.reason()), (status, reason), "{path} {body}");
    };
    refused(CHANNELS, &right, "", 400, "PayloadEmpty").await;
    refused(CHANNELS, &right, "[]", 400, "StrictBody").await;
    refused(CHANNELS, &right, r#"{"message-storage-policy":0}"#, 400, "MissingPushType").await;
    let alert = r#"{"message-storage-policy":0,"push-type":"Alert"}"#;
    refused(CHANNELS, &right, alert, 400, "InvalidPushType").await;
    let policy = r#"{"message-storage-policy":2,"push-type":"LiveActivity"}"#;
    refused(CHANNELS, &right, policy, 400, "StrictBody").await;
    let more = r#"{"message-storage-policy":0,"push-type":"LiveActivity","x":1}"#;
    refused(CHANNELS, &right, more, 400, "StrictBody").await;
    refused("/1/apps/com.example.app/all-channels", &right, NEW, 405, "MethodNotAllowed").await;
    refused("/3/device/00", &right, NEW, 404, "BadPath").await;
    refused("/1/apps/org.stranger/channels", &right, NEW, 400, "TopicMismatch").await;
    refused("/1/apps/com.example.nobroadcast/channels", &right, NEW, 403, "FeatureNotEnabled").await;
    refused(CHANNELS, &Vec::new(), NEW, 403, "MissingProviderToken").await;
    let with = |name: &str, value: &str| [right.clone(), vec![(name.to_owned(), value.to_owned())]].concat();
    refused(CHANNELS, &with("apns-request-id", "1"), NEW, 400, "BadMessageId").await;
    refused(CHANNELS, &with("apns-topic", "com.example.app"), NEW, 400, "StrictHeaderName").await;
    // The other host has none of these paths.
    let mut pushes = Client::connect(&fakes, Service::Apns).await;
    let answer = pushes.post(CHANNELS, &right, NEW).await;
    assert_eq!((answer.status, answer.reason()), (404, "BadPath"));
}
