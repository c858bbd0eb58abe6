use noroshi_server_sdk::{Client, Notification, Shown, To};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let url = std::env::var("NOROSHI_URL").unwrap_or_else(|_| "http://127.0.0.1:8080".to_owned());
    let noroshi = Client::new(url, "my-development-key")?;
    let hello = Notification::new(To::Users(vec!["u1".to_owned()])).notification(Shown::new().title("Hello"));
    let receipt = noroshi.publish(&hello).await?;
    println!("accepted: {}", receipt.id);
    Ok(())
}
