//! Shows messages of the device whose token is in `TOKEN`.

use noroshi_client::{BoxError, Client, Event};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = std::env::var("NOROSHI_URL").unwrap_or_else(|_| "http://127.0.0.1:8080".to_owned());
    let (client, mut events) = Client::builder(url, |_| async { Ok(std::env::var("TOKEN")?) }).build()?;
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
