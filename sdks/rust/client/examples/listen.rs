use noroshi_client::{Client, Event};
use noroshi_server_sdk::DeviceRegistration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let url = std::env::var("NOROSHI_URL").unwrap_or_else(|_| "http://127.0.0.1:8080".to_owned());
    // In production your backend registers the device, or signs a JWT.
    let backend = noroshi_server_sdk::Client::new(&url, "my-development-key")?;
    let (client, mut events) = Client::builder(&url, move |_| {
        let backend = backend.clone();
        async move {
            let device = DeviceRegistration::new().device("laptop").user("u1");
            Ok(backend.register_device(&device).await?.token)
        }
    })
    .build()?;
    client.connect();
    while let Some(event) = events.next().await {
        match event {
            Event::Message(message) => {
                println!("{}", message.title().unwrap_or("(no title)"));
                message.handled();
            }
            Event::State(state) => eprintln!("{state}"),
            Event::Error(error) => eprintln!("{error}"),
            _ => {}
        }
    }
    Ok(())
}
