//! Who may do what: API keys, device tokens, app JWTs
