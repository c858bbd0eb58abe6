-- Of whose trace a message at a front is a part, as notifications keep it.
ALTER TABLE cell_messages ADD COLUMN trace BYTEA;
