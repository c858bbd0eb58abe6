-- The notifications of an app, newest first: entries are appended, since numbers increase.
CREATE INDEX notifications_by_app ON notifications (app);
