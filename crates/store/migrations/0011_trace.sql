-- Of whose trace a notification is a part: 16 bytes of trace, 8 of the span that asked for it, and a byte of flags.
ALTER TABLE notifications ADD COLUMN trace BLOB;
