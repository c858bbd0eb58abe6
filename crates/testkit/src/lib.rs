//! Strict fakes of what cannot be had in a test: APNs, FCM and a Web Push service. They verify every
//! header, token, size and encryption, and fail on command.
