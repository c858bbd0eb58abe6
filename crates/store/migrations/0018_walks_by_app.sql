-- The walks of a deleted app.
CREATE INDEX push_walks_by_app ON push_walks (app);
