//! Credentials of push services.

use noroshi_store::{Error, NewCredential, RotatedCredential, Store};
use noroshi_types::{AppId, CredentialId, JsonText, PushEnvironment, PushService};

use super::fixture::*;

fn credential(app: AppId, service: PushService, environment: PushEnvironment) -> NewCredential {
    NewCredential {
        app,
        service,
        environment,
        provider: String::new(),
        name: "ours".to_owned(),
        shown: JsonText::from_valid(r#"{"key_id":"ABC123DEFG"}"#),
        sealed: vec![0, 1, 255],
        replace: false,
    }
}

pub(crate) async fn credentials_are_stored(store: &dyn Store) {
    let app = app(store, "shop").await;
    let new = credential(app, PushService::Apns, PushEnvironment::Sandbox);
    let made = store.put_credential(new.clone(), NOW).await.expect("created");
    assert_eq!(
        (made.app, made.service, made.environment, &made.name, &made.shown, &made.sealed, made.created_at),
        (new.app, new.service, new.environment, &new.name, &new.shown, &new.sealed, NOW)
    );
    let other = store
        .put_credential(credential(app, PushService::WebPush, PushEnvironment::Production), NOW)
        .await
        .expect("another service");
    assert_eq!(store.credentials().await.expect("read"), [made.clone(), other.clone()]);
    store.delete_credential(app, made.id).await.expect("deleted");
    assert_eq!(store.credentials().await.expect("read"), [other]);
    assert!(matches!(store.delete_credential(app, made.id).await, Err(Error::NotFound)));
}

pub(crate) async fn one_credential_exists_per_app_service_and_environment(store: &dyn Store) {
    let (mine, theirs) = (app(store, "mine").await, app(store, "theirs").await);
    let new = credential(mine, PushService::Apns, PushEnvironment::Production);
    let first = store.put_credential(new.clone(), NOW).await.expect("created");
    let again = store.put_credential(new.clone(), at(1)).await;
    assert!(matches!(again, Err(Error::Exists)), "{again:?}");
    let replaced = NewCredential { sealed: vec![9], name: "new".to_owned(), replace: true, ..new.clone() };
    let replaced = store.put_credential(replaced, at(2)).await.expect("replaced");
    assert_eq!((replaced.id, &*replaced.name, replaced.created_at), (first.id, "new", at(2)));
    assert_eq!(store.credentials().await.expect("read"), std::slice::from_ref(&replaced));
    for other in [
        NewCredential { app: theirs, ..new.clone() },
        NewCredential { environment: PushEnvironment::Sandbox, ..new.clone() },
        NewCredential { service: PushService::Fcm, replace: true, ..new.clone() },
        NewCredential { service: PushService::Webhook, provider: "mail".to_owned(), ..new.clone() },
        NewCredential { service: PushService::Webhook, provider: "sms".to_owned(), ..new.clone() },
    ] {
        let provider = other.provider.clone();
        let made = store.put_credential(other, NOW).await.expect("another use");
        assert_eq!(made.provider, provider);
    }
    assert_eq!(store.credentials().await.expect("read").len(), 6);
    let mail = NewCredential {
        service: PushService::Webhook,
        provider: "mail".to_owned(),
        name: "changed".to_owned(),
        ..new.clone()
    };
    assert!(matches!(store.put_credential(mail.clone(), NOW).await, Err(Error::Exists)));
    store.put_credential(NewCredential { replace: true, ..mail }, NOW).await.expect("replaced");
    let all = store.credentials().await.expect("read");
    let changed: Vec<_> = all.iter().filter(|one| one.name == "changed").collect();
    assert!(changed.len() == 1 && changed[0].provider == "mail", "only the named provider: {changed:?}");
    assert!(
        matches!(store.delete_credential(theirs, replaced.id).await, Err(Error::NotFound)),
        "another app's credential"
    );
    assert!(matches!(store.delete_credential(mine, CredentialId(999)).await, Err(Error::NotFound)));
    let nobodys = NewCredential { app: AppId(99), ..new };
    assert!(matches!(store.put_credential(nobodys, NOW).await, Err(Error::NotFound)));
    store.delete_app(mine).await.expect("deleted");
    let left = store.credentials().await.expect("read");
    assert!(left.len() == 1 && left[0].app == theirs, "{left:?}");
}

pub(crate) async fn a_credential_is_rotated_unless_it_changed(store: &dyn Store) {
    let (mine, theirs) = (app(store, "mine").await, app(store, "theirs").await);
    let new = credential(mine, PushService::Apns, PushEnvironment::Production);
    let made = store.put_credential(new, NOW).await.expect("created");
    let rotation = RotatedCredential {
        app: mine,
        id: made.id,
        before: made.sealed.clone(),
        name: "rotated".to_owned(),
        shown: JsonText::from_valid(r#"{"key_id":"NEW123DEFG"}"#),
        sealed: vec![7, 0],
    };
    for wrong in [
        RotatedCredential { app: theirs, ..rotation.clone() },
        RotatedCredential { id: CredentialId(999), ..rotation.clone() },
        RotatedCredential { before: vec![1], ..rotation.clone() },
    ] {
        let refused = store.rotate_credential(wrong, at(1)).await;
        assert!(matches!(refused, Err(Error::Conflict)), "{refused:?}");
    }
    assert_eq!(store.credentials().await.expect("read"), std::slice::from_ref(&made));
    let rotated = store.rotate_credential(rotation.clone(), at(2)).await.expect("rotated");
    let RotatedCredential { name, shown, sealed, .. } = rotation.clone();
    assert_eq!(rotated, noroshi_store::StoredCredential { name, shown, sealed, created_at: at(2), ..made });
    assert_eq!(store.credentials().await.expect("read"), [rotated]);
    let again = store.rotate_credential(rotation, at(3)).await;
    assert!(matches!(again, Err(Error::Conflict)), "the second of two rotations: {again:?}");
}
