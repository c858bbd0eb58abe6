-- The walks and the messages of a deleted app.
CREATE INDEX push_walks_by_app ON push_walks (app);
DROP INDEX cell_messages_by_app;
CREATE INDEX cell_messages_by_app ON cell_messages (app, num);
