//! `PATCH /v1/me/items`: a change of the state of items.

use noroshi_store::WhichItems;
use noroshi_types::{Invalid, ItemAction, Label, NotificationId, limits};
use serde::Deserialize;

use super::each_once;
use crate::error::Problem;
use crate::json::{self, Bounded, FromText, Text};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    action: Text<ItemAction>,
    ids: Option<Bounded<Text<NotificationId>, { limits::ITEM_IDS_MAX }>>,
    up_to: Option<Text<NotificationId>>,
    category: Option<Text<Label>>,
}

/// Items by `ids`, or all up to one.
pub fn item_change(bytes: &[u8]) -> Result<(ItemAction, WhichItems), Problem> {
    let Body { action, ids, up_to, category } = json::parse(bytes)?;
    let which = match (ids, up_to) {
        (Some(_), None) if category.is_some() => {
            return Err(Problem::field("category", "allowed only with `up_to`"));
        }
        (Some(ids), None) => {
            let ids = ids.all("ids")?.into_iter().map(|id| id.0).collect();
            WhichItems::Ids(each_once(ids))
        }
        (None, Some(Text(last))) => WhichItems::UpTo { last, category: category.map(|name| name.0) },
        (Some(_), Some(_)) | (None, None) => {
            let rule = "exactly one of `ids` and `up_to` names the items";
            return Err(Problem::field("ids", rule));
        }
    };
    Ok((action.0, which))
}

impl FromText for ItemAction {
    const WHAT: &'static str = "an action (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        let names = || Self::ALL.map(|action| format!(" \"{}\"", action.as_str())).concat();
        Self::named(text).ok_or_else(|| Invalid::new(format!("must be one of{}", names())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    #[test]
    fn a_change_names_items_or_the_last_of_them() {
        let id = NotificationId::parse(ID).expect("an id");
        let read = |text: &str| item_change(text.replace("ID", ID).as_bytes());
        let (action, which) = read(r#"{"action":"read","ids":["ID","ID"]}"#).expect("ids");
        assert!(matches!(which, WhichItems::Ids(ids) if ids == [id] && action == ItemAction::Read));
        let (action, which) = read(r#"{"action":"archive","up_to":"ID","category":"x"}"#).expect("up to");
        let is_x = |category: &Option<Label>| category.as_ref().is_some_and(|name| name.as_str() == "x");
        assert_eq!(action, ItemAction::Archive);
        assert!(matches!(which, WhichItems::UpTo { last, category } if last == id && is_x(&category)));
        assert!(read(r#"{"action":"unread","ids":[]}"#).is_ok());
        let refused = |text: &str, code: Code, field: &str| {
            let problem = read(text).expect_err(text);
            assert_eq!((problem.code(), problem.field_path()), (code, Some(field)), "{text}");
        };
        refused(r#"{"action":"read"}"#, Code::InvalidField, "ids");
        refused(r#"{"action":"read","ids":[],"up_to":"ID"}"#, Code::InvalidField, "ids");
        refused(r#"{"action":"read","ids":[],"category":"x"}"#, Code::InvalidField, "category");
        refused(r#"{"action":"delete","ids":[]}"#, Code::InvalidField, "action");
        refused(r#"{"ids":[]}"#, Code::InvalidField, "action");
        refused(r#"{"action":"read","ids":["x"]}"#, Code::InvalidField, "ids[0]");
        refused(r#"{"action":"read","up_to":1}"#, Code::InvalidField, "up_to");
        refused(r#"{"action":"read","up_to":"ID","category":"A B"}"#, Code::InvalidField, "category");
        refused(r#"{"action":"read","ids":[],"user":"u"}"#, Code::UnknownField, "user");
        let many = vec![format!("\"{ID}\""); limits::ITEM_IDS_MAX + 1].join(",");
        refused(&format!(r#"{{"action":"read","ids":[{many}]}}"#), Code::InvalidField, "ids");
    }
}
